// What the simulator says of things, in a trace and in a complaint.

#pragma once

#include "pawl/core/message.hpp"
#include "pawl/core/wait_for_graph.hpp"

#include <string>
#include <vector>

namespace pawl::sim {

[[nodiscard]] char letter(lock_mode x) noexcept;
[[nodiscard]] std::string text(const std::vector<term_lock>& terms);
[[nodiscard]] std::string text(const std::vector<fencing_token>& tokens);
[[nodiscard]] std::string text(const std::vector<node_slot>& nodes);
[[nodiscard]] std::string text(const wait_name& x);

/// What matters of a message.
[[nodiscard]] std::string text(const message& x);

} // namespace pawl::sim
