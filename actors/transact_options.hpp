// Options of a transaction.

#pragma once

#include "pawl/actors/cancel.hpp"

#include <chrono>

namespace pawl {

struct transact_options {
  /// The delay before the body is run again is drawn between half of this and
  /// the whole of it; doubled each time,
  std::chrono::nanoseconds first_delay = std::chrono::microseconds{500};
  /// up to this.
  std::chrono::nanoseconds most_delay = std::chrono::milliseconds{100};
  /// How often the body is run before the deadlock is told; at least 1.
  unsigned tries = 20;
  /// Ends it with `cancelled`. For a task, `cancel_with` does the same.
  cancel_token cancel;
};

/// Throws `misuse` unless they make sense. For pawl's own use.
void check_options(const transact_options& x);

} // namespace pawl
