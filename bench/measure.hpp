// measure: what the long benches have in common: a histogram of durations, a
// thing per thread, what the process has used, and the report.
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
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

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
  [[nodiscard]] json figures() const {
    auto n = count();
    json result;
    result["mean_us"] = n == 0 ? 0.0
                               : static_cast<double>(sum_.load()) / 1e3
                                   / static_cast<double>(n);
    result["p50_us"] = quantile(n, 0.5);
    result["p95_us"] = quantile(n, 0.95);
    result["p99_us"] = quantile(n, 0.99);
    result["max_us"] = static_cast<double>(max_.load()) / 1e3;
    return result;
  }

  // -- to another process -----------------------------------------------------

  /// Only the buckets that are not empty.
  [[nodiscard]] json pack() const {
    json result;
    result["sum"] = sum_.load();
    result["max"] = max_.load();
    auto& to = result["counts"] = json::array();
    for (std::size_t i = 0; i < buckets; ++i)
      if (auto n = counts_[i].load(); n != 0)
        to.push_back({i, n});
    return result;
  }

  void add(const json& packed) {
    bump(sum_, packed.at("sum").get<std::uint64_t>());
    max_.store(std::max(max_.load(), packed.at("max").get<std::uint64_t>()));
    for (const auto& x : packed.at("counts"))
      bump(counts_.at(x.at(0).get<std::size_t>()),
           x.at(1).get<std::uint64_t>());
  }

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

  static std::uint64_t upper_bound(std::size_t bucket) noexcept {
    if (bucket < steps)
      return bucket;
    auto power = bucket / steps + step_bits - 1;
    auto width = std::uint64_t{1} << (power - step_bits);
    return (std::uint64_t{1} << power) + (bucket % steps + 1) * width - 1;
  }

  [[nodiscard]] double quantile(std::uint64_t n, double q) const {
    auto rank = static_cast<std::uint64_t>(q * static_cast<double>(n));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets; ++i) {
      seen += counts_[i].load(std::memory_order_relaxed);
      if (seen > rank)
        return static_cast<double>(std::min(upper_bound(i), max_.load())) / 1e3;
    }
    return static_cast<double>(max_.load()) / 1e3;
  }

  std::array<counter, buckets> counts_{};
  counter sum_{0};
  counter max_{0};
};

/// One T for each thread that asks for its own. One object of a type T: the
/// thread's is found through a thread-local pointer.
template <class T>
class per_thread {
public:
  static T& mine() {
    thread_local T* x = make();
    return *x;
  }

  /// Calls `f` for each. They are kept when their threads end.
  template <class F>
  static void for_each(F f) {
    auto& x = self();
    std::lock_guard guard{x.lock_};
    for (auto& y : x.all_)
      f(*y);
  }

private:
  static per_thread& self() {
    static per_thread x;
    return x;
  }

  static T* make() {
    auto& x = self();
    std::lock_guard guard{x.lock_};
    return x.all_.emplace_back(std::make_unique<T>()).get();
  }

  std::mutex lock_;
  std::vector<std::unique_ptr<T>> all_;
};

// -- the process --------------------------------------------------------------

/// Processor time of all threads.
inline double cpu_seconds() {
  rusage x{};
  ::getrusage(RUSAGE_SELF, &x);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec)
           + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(x.ru_utime) + seconds(x.ru_stime);
}

// -- the report ---------------------------------------------------------------

inline double median(std::vector<double> xs) {
  if (xs.empty())
    return 0;
  std::sort(xs.begin(), xs.end());
  auto middle = xs.size() / 2;
  return xs.size() % 2 == 1 ? xs[middle] : (xs[middle - 1] + xs[middle]) / 2;
}

/// A number for people: 1,234,567 or 12.3 or 0.123.
inline std::string readable(double x) {
  if (x >= 1000 || x <= -1000) {
    auto digits = fmt::format("{:.0f}", x);
    for (auto i = static_cast<int>(digits.size()) - 3; i > (x < 0 ? 1 : 0);
         i -= 3)
      digits.insert(static_cast<std::size_t>(i), ",");
    return digits;
  }
  return x == static_cast<double>(static_cast<long>(x))
           ? fmt::format("{:.0f}", x)
           : fmt::format("{:.3g}", x);
}

class report {
public:
  explicit report(std::string bench) : bench_(std::move(bench)) {
    // nop
  }

  /// Adds --json.
  void options(CLI::App& app) {
    app.add_option("--json", file_, "append the figures to this file, too");
  }

  /// A measured row. `good`: the work was proven.
  void row(const std::string& subject, json where, json figures, bool good,
           const std::string& lacks = {}) {
    good_ = good_ && good;
    auto line = fmt::format("{:<28}", subject);
    for (const auto& [key, x] : where.items())
      line += fmt::format(" {}={}", key, text(x));
    line += "\n    ";
    for (const auto& [key, x] : figures.items())
      line += fmt::format(" {} {}", key, text(x));
    fmt::print("{}\n     check: {}{}\n", line, good ? "good" : "BAD",
               lacks.empty() ? "" : "; lacks: " + lacks);
    std::fflush(stdout);
    append({{"bench", bench_},
            {"subject", subject},
            {"where", std::move(where)},
            {"figures", std::move(figures)},
            {"good", good},
            {"lacks", lacks}});
  }

  /// A subject that could not be run, and why.
  void absent(const std::string& subject, const std::string& why) {
    fmt::print("{:<28} absent: {}\n", subject, why);
    std::fflush(stdout);
    append({{"bench", bench_}, {"subject", subject}, {"absent", why}});
  }

  /// The exit status: 0 if all the work was proven.
  [[nodiscard]] int status() const {
    return good_ ? 0 : 1;
  }

private:
  static std::string text(const json& x) {
    if (x.is_number())
      return readable(x.get<double>());
    return x.is_string() ? x.get<std::string>() : x.dump();
  }

  void append(const json& x) const {
    if (file_.empty())
      return;
    std::ofstream out{file_, std::ios::app};
    out << x.dump() << '\n';
  }

  std::string bench_;
  std::string file_;
  bool good_ = true;
};

} // namespace bench
