// Fencing tokens: 64 bits that grow with every later exclusive grant.
//
// A token is (counter << slot_bits) | slot: the counter of the granting node
// and, in the lowest bits, that node's slot, so that two sides of a cut never
// issue the same number. A counter starts from the start time of its node in
// ticks of 16 ns and grows by one per exclusive grant; since no node grants
// one term more than once in 16 ns, counters never outrun the time, and a
// restarted node starts above all that it issued before. (If its wall clock
// stepped back meanwhile, the floor that its peers hand over puts it above.
// The one exception is documented: *all* nodes down and the clock stepped
// back.)
//
// Pure arithmetic; the counters themselves lie beside the buckets of the lock
// table. No thread-safety concerns.

#pragma once

#include "pawl/core/ids.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pawl {

/// What a guarded resource compares. 0 is never issued.
using fencing_token = std::uint64_t;

namespace fencing {

constexpr unsigned slot_bits = 7;
constexpr std::uint64_t slot_mask = (std::uint64_t{1} << slot_bits) - 1;
static_assert(max_nodes <= slot_mask + 1);

/// Length of a tick. Counters of 57 bits in such ticks last until 2093.
constexpr std::chrono::nanoseconds tick{16};

/// 2020-01-01 00:00:00 UTC, in nanoseconds since the Unix epoch.
constexpr std::uint64_t origin_ns = 1'577'836'800'000'000'000ull;

/// The largest token that a node started at wall-clock time `unix_ns` treats
/// as issued before it: its floor, without slot.
constexpr fencing_token floor_at(std::uint64_t unix_ns) noexcept {
  auto since = unix_ns > origin_ns ? unix_ns - origin_ns : 0;
  return (since / static_cast<std::uint64_t>(tick.count()) + 1) << slot_bits;
}

/// What a node can issue at most within `span`, as a distance of tokens.
constexpr fencing_token reach(std::chrono::nanoseconds span) noexcept {
  return (static_cast<std::uint64_t>(span.count() / tick.count()) + 1)
         << slot_bits;
}

/// The token of an exclusive grant by `slot` that is larger than `seen`.
constexpr fencing_token next(fencing_token seen, node_slot slot) noexcept {
  return (((seen >> slot_bits) + 1) << slot_bits)
         | (to_index(slot) & slot_mask);
}

constexpr node_slot issuer(fencing_token x) noexcept {
  return static_cast<node_slot>(x & slot_mask);
}

/// The largest token that may have been issued by now by anybody of whom this
/// node has heard. It runs with the time, as counters may: so what a node knows
/// of a peer's counters stays true while it hears nothing. Nodes tell each
/// other theirs, and the largest spreads.
class running_floor {
public:
  using time_point = std::chrono::nanoseconds; // of a steady clock

  /// That much may have been issued at that time.
  void raise(fencing_token x, time_point now) noexcept {
    auto at_zero = x - run(now);
    auto known = at_zero_.load(std::memory_order_relaxed);
    // As differences: the zero of the clock may lie before that of the tokens.
    while (static_cast<std::int64_t>(at_zero - known) > 0
           && !at_zero_.compare_exchange_weak(known, at_zero,
                                              std::memory_order_relaxed)) {
      // retry
    }
  }

  [[nodiscard]] fencing_token at(time_point now) const noexcept {
    return at_zero_.load(std::memory_order_relaxed) + run(now);
  }

private:
  static fencing_token run(time_point now) noexcept {
    return static_cast<fencing_token>(now.count() / tick.count()) << slot_bits;
  }

  std::atomic<fencing_token> at_zero_{0};
};

} // namespace fencing
} // namespace pawl
