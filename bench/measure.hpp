// measure: what the long benches have in common: a histogram of durations, what
// the process has used, and the report.
//
// A bench hands its figures to a `report`, one row per subject. Rows are
// printed as they come and, with --json, appended to a file, one JSON object a
// line:
//
//   {"bench": "contention", "subject": "pawl", "where": {"actors": 20, ...},
//    "figures": {"per_second": ..., ...}, "good": true, "lacks": ""}
//
// `where` says what was run, `figures` what came out, `good` whether the work
// was proven, `lacks` what the subject does not promise that pawl does.
// bench/run reads these files.

#pragma once

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using json = nlohmann::ordered_json;
using steady = std::chrono::steady_clock;

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
           steady::now().time_since_epoch())
    .count();
}

inline double seconds_since(std::int64_t ns) {
  return static_cast<double>(now_ns() - ns) * 1e-9;
}

// -- durations ----------------------------------------------------------------

/// Durations in nanoseconds, log-linear: a quantile is at most 1/32 too large.
/// Written by one thread, read by others.
class histogram {
public:
  static constexpr unsigned step_bits = 5;
  static constexpr std::uint64_t steps = 1u << step_bits;
  static constexpr unsigned powers = 41; // up to 36 minutes
  static constexpr std::size_t buckets = (powers - step_bits + 1) * steps;

  void record(std::int64_t ns) noexcept {
    auto x = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0));
    bump(counts_[bucket_of(x)], 1);
    bump(sum_, x);
    if (x > max_.load(std::memory_order_relaxed))
      max_.store(x, std::memory_order_relaxed);
  }

  void add(const histogram& other) noexcept {
    for (std::size_t i = 0; i < buckets; ++i)
      bump(counts_[i], other.counts_[i].load(std::memory_order_relaxed));
    bump(sum_, other.sum_.load(std::memory_order_relaxed));
    max_.store(std::max(max_.load(std::memory_order_relaxed),
                        other.max_.load(std::memory_order_relaxed)),
               std::memory_order_relaxed);
  }

  /// Empty again; while nobody writes.
  void clear() noexcept {
    for (auto& x : counts_)
      x.store(0, std::memory_order_relaxed);
    sum_.store(0, std::memory_order_relaxed);
    max_.store(0, std::memory_order_relaxed);
  }

  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t result = 0;
    for (const auto& x : counts_)
      result += x.load(std::memory_order_relaxed);
    return result;
  }

  /// In microseconds: the mean, p50, p95, p99 and the largest.
  [[nodiscard]] json figures() const;

  // -- to another process -----------------------------------------------------

  /// Only the buckets that are not empty.
  [[nodiscard]] json pack() const;

  void add(const json& packed);

private:
  using counter = std::atomic<std::uint64_t>;

  static void bump(counter& x, std::uint64_t by) noexcept {
    x.store(x.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  static std::size_t bucket_of(std::uint64_t ns) noexcept {
    if (ns < steps)
      return ns;
    auto power = static_cast<unsigned>(std::bit_width(ns)) - 1;
    if (power >= powers)
      return buckets - 1;
    return (power - step_bits + 1) * steps
           + ((ns >> (power - step_bits)) & (steps - 1));
  }

  [[nodiscard]] double quantile(std::uint64_t n, double q) const;

  std::array<counter, buckets> counts_{};
  counter sum_{0};
  counter max_{0};
};

// -- the process --------------------------------------------------------------

/// Processor time of all threads.
double cpu_seconds();

// -- the report ---------------------------------------------------------------

double median(std::vector<double> xs);

/// A number for people: 1,234,567 or 12.3 or 0.123.
std::string readable(double x);

class report {
public:
  explicit report(std::string bench) : bench_(std::move(bench)) {
    // nop
  }

  /// Adds --json.
  void options(CLI::App& app);

  /// A measured row. `good`: the work was proven.
  void row(const std::string& subject, json where, json figures, bool good,
           const std::string& lacks = {});

  /// A subject that could not be run, and why.
  void absent(const std::string& subject, const std::string& why);

  /// The exit status: 0 if all the work was proven.
  [[nodiscard]] int status() const {
    return good_ ? 0 : 1;
  }

private:
  void append(const json& x) const;

  std::string bench_;
  std::string file_;
  bool good_ = true;
};

} // namespace bench
