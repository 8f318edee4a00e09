// Options of a scope.

#pragma once

#include "pawl/core/ids.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace pawl {

struct scope_options {
  /// Requests of a node that may wait in the scope at once, before they end with
  /// `too_many_waiters` (`pawl.max-waiters`).
  std::uint32_t max_waiters = 1'000'000;
  /// Locks and sessions that one search for a deadlock may visit
  /// (`pawl.probe-limit`).
  std::uint32_t probe_limit = 10'000;
  /// How long a request waits with nothing but parts of its own before a search
  /// for a deadlock begins: contended hand-overs between nodes mostly resolve by
  /// themselves (`pawl.deadlock-grace`).
  std::chrono::milliseconds deadlock_grace{5};
  /// A node that is silent for so long is down (`pawl.node-timeout`).
  std::chrono::milliseconds node_timeout{2000};
};

/// Who the node is that opens a scope. The node (pawl::node) fills it in.
struct scope_place {
  /// Sorted names of all configured nodes; a slot is a place in it.
  std::vector<std::string> names{"local"};
  node_slot self = static_cast<node_slot>(0);
  /// The start of this node by the wall clock, in ns since the Unix epoch; no
  /// token at or below it is issued.
  std::uint64_t started_unix_ns = 0;
  /// Upper bits of session and request serials: differ between incarnations.
  std::uint64_t serial_base = 0;
};

} // namespace pawl
