// How long locks took, from asking to being granted: a histogram that is
// emptied when it is read, so it tells of the time since the last reading.
//
// Buckets grow by an eighth, so a quantile is at most that much too large.
// Thread-safe.

#pragma once

#include "clock.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace scada {

class latency {
public:
  /// `locks` were granted together, `span` after they were asked for.
  void record(time_ns span, std::uint64_t locks = 1) noexcept {
    auto x = static_cast<std::uint64_t>(span < 0 ? 0 : span);
    counts_[bucket_of(x)].fetch_add(locks, std::memory_order_relaxed);
  }

  /// The span that 99 of 100 did not exceed; 0 if there were none. Empties.
  time_ns take_p99() noexcept {
    std::array<std::uint64_t, buckets> counts;
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < buckets; ++i)
      all += counts[i] = counts_[i].exchange(0, std::memory_order_relaxed);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < buckets && all != 0; ++i)
      if ((below += counts[i]) * 100 >= all * 99)
        return upper_bound(i);
    return 0;
  }

private:
  static constexpr unsigned step_bits = 3;
  static constexpr std::uint64_t steps = 1 << step_bits;
  static constexpr std::size_t buckets = (64 - step_bits + 1) * steps;

  static std::size_t bucket_of(std::uint64_t x) noexcept {
    if (x < steps)
      return x;
    auto power = static_cast<unsigned>(std::bit_width(x)) - 1;
    return (power - step_bits + 1) * steps
           + (x >> (power - step_bits) & (steps - 1));
  }

  static time_ns upper_bound(std::size_t bucket) noexcept {
    if (bucket < steps)
      return static_cast<time_ns>(bucket);
    auto power = bucket / steps + step_bits - 1;
    auto width = std::uint64_t{1} << (power - step_bits);
    return static_cast<time_ns>((steps + bucket % steps + 1) * width - 1);
  }

  std::array<std::atomic<std::uint64_t>, buckets> counts_ = {};
};

} // namespace scada
