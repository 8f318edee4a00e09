#include "pawl/core/message.hpp"

#include <array>

namespace pawl {

std::string_view name_of(const message& x) noexcept {
  constexpr std::array<std::string_view, std::variant_size_v<message>> names{
    "request", "granted",      "refused",      "abandon",   "release",
    "downgrade", "raise",      "raised",       "lost",      "scope_opened",
    "scope_closed", "hand_over", "hand_over_ack",
    "waits_elsewhere", "walk_question", "walk_answer", "walk_verdict"};
  return names[x.index()];
}

} // namespace pawl
