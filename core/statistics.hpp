// statistics: what the locks of one scope have done, counted inside the locks.
//
// Counters and histograms are kept per thread and merged when read. A thread
// owns its shard: counting there is a plain load and store, no locked
// instruction. When more threads than shards count at once, the last shard is
// shared and counts with atomic adds. Grants without a wait are counted exactly;
// their hold times are sampled, 1 in 64 (two clock reads cost as much as the
// lock). Whoever waits is measured always: it costs a wait anyway.
//
// The histograms are log-linear (as in HdrHistogram): 16 steps per power of
// two, so a quantile is at most 1/16 too large.
//
// Thread-safe. count_fast_grant is a thread-local look-up, a load and a store.

#pragma once

#include "pawl/core/outcome.hpp"
#include "pawl/core/term.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pawl {

namespace detail {

/// Numbers that belong to one thread at a time.
inline constexpr std::size_t owned_thread_numbers = 63;

/// The one of all threads that came too late, or that are about to end.
inline constexpr std::size_t shared_thread_number = owned_thread_numbers;

inline constexpr std::size_t no_thread_number = shared_thread_number + 1;

/// Of the calling thread; taken when it first counts, given back when it ends.
inline constinit thread_local std::size_t thread_number = no_thread_number;

} // namespace detail

/// Durations in nanoseconds. Written by one thread, or by several (`shared`).
class duration_histogram {
public:
  static constexpr unsigned steps = 16;
  static constexpr unsigned step_bits = 4;
  /// Up to 2^40 ns, 18 minutes; longer ones count as that.
  static constexpr unsigned powers = 40;
  static constexpr std::size_t buckets = (powers - step_bits + 1) * steps;

  void record(std::uint64_t ns, bool shared) noexcept;

  static constexpr std::size_t bucket_of(std::uint64_t ns) noexcept {
    if (ns < steps)
      return ns;
    auto power = static_cast<unsigned>(std::bit_width(ns)) - 1;
    if (power >= powers)
      return buckets - 1;
    return (power - step_bits + 1) * steps
           + ((ns >> (power - step_bits)) & (steps - 1));
  }

  /// The largest duration of a bucket.
  static constexpr std::uint64_t upper_bound(std::size_t bucket) noexcept {
    if (bucket < steps)
      return bucket;
    auto power = bucket / steps + step_bits - 1;
    auto step = bucket % steps;
    auto width = std::uint64_t{1} << (power - step_bits);
    return (std::uint64_t{1} << power) + (step + 1) * width - 1;
  }

private:
  friend class statistics;

  std::array<std::atomic<std::uint64_t>, buckets> counts_{};
  std::atomic<std::uint64_t> sum_{0};
  std::atomic<std::uint64_t> max_{0};
};

class statistics {
public:
  // -- types ------------------------------------------------------------------

  /// Times in nanoseconds.
  struct times {
    std::uint64_t count = 0;
    double mean = 0;
    std::uint64_t median = 0;
    std::uint64_t p95 = 0;
    std::uint64_t p99 = 0;
    std::uint64_t max = 0;
  };

  struct hot_term {
    term what;
    std::uint64_t waits = 0;
    std::uint64_t waited_ns = 0;
  };

  struct snapshot {
    /// All that were asked: fast grants, waits, and those refused at once.
    std::uint64_t requests = 0;
    /// Granted without waiting.
    std::uint64_t fast_grants = 0;
    /// Had to wait, however they ended.
    std::uint64_t waits = 0;
    /// How requests ended, by outcome.
    std::array<std::uint64_t, static_cast<std::size_t>(last_outcome) + 1>
      outcomes{};
    /// Holds that were taken away from their sessions.
    std::uint64_t lost = 0;
    /// Bodies that were run again after a deadlock.
    std::uint64_t restarts = 0;
    /// Searches for a deadlock that began here, and the sessions and waits that
    /// they visited.
    std::uint64_t walks = 0;
    std::uint64_t walk_visits = 0;
    times wait;
    /// Of all that waited, and of 1 in 64 others.
    times hold;
    /// Where was waited longest, longest first; approximate (space-saving).
    std::vector<hot_term> hottest;

    [[nodiscard]] std::uint64_t ended(outcome x) const noexcept {
      return outcomes[static_cast<std::size_t>(x)];
    }
  };

  statistics();
  ~statistics();

  statistics(const statistics&) = delete;
  statistics& operator=(const statistics&) = delete;

  // -- events -----------------------------------------------------------------

  void count_fast_grant() noexcept {
    auto& s = mine();
    add(s, s.fast_grants, 1);
  }

  /// A request that ended at once without a grant.
  void count_refused(outcome why) noexcept;

  /// A request that had to wait has ended so.
  void count_wait(const term& what, std::chrono::nanoseconds waited,
                  outcome how) noexcept;

  void count_lost() noexcept;
  void count_restart() noexcept;
  void count_walk(std::uint64_t visited) noexcept;

  /// How long a lock was held.
  void hold_time(std::int64_t ns) noexcept;

  /// Whether this thread's next hold is to be timed: 1 in 64.
  [[nodiscard]] bool sample() noexcept {
    auto& ticks = mine().ticks;
    auto now = ticks.load(std::memory_order_relaxed);
    ticks.store(now + 1, std::memory_order_relaxed); // a shared one may lose some
    return now % 64 == 0;
  }

  // -- queries ----------------------------------------------------------------

  /// Merges the shards. O(shards x buckets).
  [[nodiscard]] snapshot read() const;

private:
  static constexpr std::size_t owned_shards = detail::owned_thread_numbers;
  static constexpr std::size_t hot_terms = 16;

  struct alignas(64) shard {
    std::atomic<std::uint64_t> fast_grants{0};
    std::atomic<std::uint32_t> ticks{0};
    bool shared = false;
    std::array<std::atomic<std::uint64_t>,
               static_cast<std::size_t>(last_outcome) + 1>
      refused{};
    std::array<std::atomic<std::uint64_t>,
               static_cast<std::size_t>(last_outcome) + 1>
      waited{};
    std::atomic<std::uint64_t> lost{0};
    std::atomic<std::uint64_t> restarts{0};
    std::atomic<std::uint64_t> walks{0};
    std::atomic<std::uint64_t> walk_visits{0};
    duration_histogram wait;
    duration_histogram hold;
  };

  static void add(const shard& s, std::atomic<std::uint64_t>& to,
                  std::uint64_t x) noexcept {
    if (s.shared)
      to.fetch_add(x, std::memory_order_relaxed);
    else
      to.store(to.load(std::memory_order_relaxed) + x,
               std::memory_order_relaxed);
  }

  /// The shard of the calling thread. A thread without a number finds none.
  shard& mine() noexcept {
    auto* s = shards_[detail::thread_number].load(std::memory_order_acquire);
    if (s != nullptr) [[likely]]
      return *s;
    return make_shard();
  }

  shard& make_shard() noexcept;
  void note_hot(const term& what, std::uint64_t waited) noexcept;
  [[nodiscard]] static times merge(
    const std::vector<const duration_histogram*>& all);

  /// By number: those of one thread each, the shared one, and always null.
  std::array<std::atomic<shard*>, owned_shards + 2> shards_{};
  mutable std::mutex hot_lock_;
  std::vector<hot_term> hot_; // at most hot_terms
  shard fallback_;            // if there is no memory for another
};

std::string to_string(const statistics::snapshot& x);

} // namespace pawl
