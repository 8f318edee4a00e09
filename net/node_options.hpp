// What a node is told: its name, where it listens, who the others are. Checked
// as a whole before anything starts; an error names the option and the value.
//
// Values. Thread-safe as such.

#pragma once

#include "pawl/core/ids.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pawl {

/// Options as a user gives them. In the option group `pawl.*` the words are
/// those of the comments.
struct node_options {
  /// `pawl.name`: the name of this node, stable over restarts.
  std::string name;
  /// `pawl.listen`: host:port. Only this machine can reach the default host.
  std::string listen = "127.0.0.1:0";
  /// `pawl.peers`: the other nodes, each as name=host:port. This node itself
  /// may be among them (so that all nodes can have the same list); it is
  /// skipped.
  std::vector<std::string> peers;
  /// `pawl.node-timeout`: a node that is silent for so long is down. The same
  /// on all nodes.
  std::chrono::milliseconds node_timeout{2000};
  /// `pawl.heartbeat-interval`; 0: an eighth of the node-timeout.
  std::chrono::milliseconds heartbeat{0};
  /// `pawl.window`: batches that may be under way to a peer unacknowledged.
  std::uint32_t window = 32;
};

struct endpoint {
  std::string host;
  std::uint16_t port = 0;
};

std::string to_string(const endpoint& x);

/// Options that were found good, in the form in which they are used.
struct cluster_plan {
  /// The names of all nodes, sorted: slots are places in it.
  std::vector<std::string> names;
  node_slot self = no_node;
  endpoint listen;
  /// By slot; the place of this node is empty.
  std::vector<endpoint> addresses;
  std::chrono::milliseconds node_timeout{0};
  std::chrono::milliseconds heartbeat{0};
  std::uint32_t window = 0;

  [[nodiscard]] const std::string& name() const {
    return names[to_index(self)];
  }
};

/// The plan, or one sentence that names the option and the value.
std::variant<cluster_plan, std::string> make_plan(const node_options& x);

/// Splits "b=host:port, c=host:port" at its commas.
std::vector<std::string> split_list(std::string_view text);

} // namespace pawl
