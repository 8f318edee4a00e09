// harness: what benches have in common: the canonical workload, the count of
// allocations, and a report of medians and ratios.
//
// Included by one source file of a program: it replaces operator new.

#pragma once

#include <benchmark/benchmark.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <sys/utsname.h>
#include <unistd.h>

// -- allocations --------------------------------------------------------------

namespace bench {

/// Calls of operator new by this thread. Both sides of a comparison pay for the
/// count: one addition.
inline thread_local std::uint64_t allocations = 0;

/// Sanitizers switch pawl's pools off, so that a use after free is seen.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool pools_are_on = false;
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool pools_are_on = false;
#  else
inline constexpr bool pools_are_on = true;
#  endif
#else
inline constexpr bool pools_are_on = true;
#endif

inline void* allocate(std::size_t size, std::size_t alignment = 0) {
  ++allocations;
  size = std::max<std::size_t>(size, 1);
  auto* memory = alignment == 0
                   ? std::malloc(size)
                   : std::aligned_alloc(alignment, (size + alignment - 1)
                                                     / alignment * alignment);
  if (memory == nullptr)
    throw std::bad_alloc{};
  return memory;
}

} // namespace bench

// The forms of the standard library that are not here call one of these.
void* operator new(std::size_t size) {
  return bench::allocate(size);
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  return bench::allocate(size, static_cast<std::size_t>(alignment));
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace bench {

// -- the canonical workload ---------------------------------------------------

/// 100,000 free terms and 100,000 others that are held all the time, 12
/// characters each. Threads work on terms of their own, so a term is free
/// whenever it is asked for.
struct workload {
  static constexpr std::size_t size = 100'000;
  static constexpr std::size_t hot = 100;
  static constexpr std::size_t sequence = std::size_t{1} << 17;

  workload() {
    for (std::size_t i = 0; i < size; ++i) {
      terms.push_back(fmt::format("tag/{:08}", i));
      held.push_back(fmt::format("box/{:08}", i));
    }
  }

  /// In which order a thread takes the first `set` terms: at random.
  [[nodiscard]] std::vector<std::uint32_t> order(std::size_t set, int threads,
                                                 int thread) const {
    auto count = static_cast<std::uint32_t>(threads);
    auto mine = static_cast<std::uint32_t>(thread);
    std::mt19937 random{4711u + mine};
    std::uniform_int_distribution<std::uint32_t> pick{
      0, static_cast<std::uint32_t>(set) / count - 1};
    std::vector<std::uint32_t> result(sequence);
    for (auto& x : result)
      x = pick(random) * count + mine;
    return result;
  }

  std::vector<std::string> terms;
  std::vector<std::string> held;
};

/// The terms of one thread, one after the other, without end.
class term_stream {
public:
  term_stream(const workload& what, std::size_t set, int threads, int thread)
    : what_(what), order_(what.order(set, threads, thread)) {
    // nop
  }

  const std::string& next() noexcept {
    return what_.terms[next_index()];
  }

  std::size_t next_index() noexcept {
    return order_[at_++ & (workload::sequence - 1)];
  }

private:
  const workload& what_;
  std::vector<std::uint32_t> order_;
  std::size_t at_ = 0;
};

// -- the machine --------------------------------------------------------------

inline std::string machine() {
  std::string model = "unknown processor";
  std::ifstream info{"/proc/cpuinfo"};
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  utsname system{};
  ::uname(&system);
  return fmt::format("{}, {} processors, {} {}, compiler {}", model,
                     ::sysconf(_SC_NPROCESSORS_ONLN), system.sysname,
                     system.release, __VERSION__);
}

inline double load() {
  double result[1] = {0};
  return ::getloadavg(result, 1) == 1 ? result[0] : 0.0;
}

// -- the report ---------------------------------------------------------------

struct spread {
  double median = 0;
  double least = 0;
  double most = 0;
};

inline spread spread_of(std::vector<double> xs) {
  if (xs.empty())
    return {};
  std::sort(xs.begin(), xs.end());
  auto middle = xs.size() / 2;
  auto median
    = xs.size() % 2 == 1 ? xs[middle] : (xs[middle - 1] + xs[middle]) / 2;
  return {median, xs.front(), xs.back()};
}

/// Keeps what Google Benchmark has measured, for the summary at the end.
class keeping_reporter : public benchmark::ConsoleReporter {
public:
  /// Name of the benchmark, threads.
  using key = std::tuple<std::string, int>;

  keeping_reporter() : ConsoleReporter(OO_Tabular) {
    // nop
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    auto single = false;
    for (const auto& x : runs)
      single = single || (x.run_type == Run::RT_Iteration && x.repetitions > 1);
    for (const auto& x : runs)
      if (x.run_type == Run::RT_Iteration && x.iterations > 0) {
        // All iterations of all threads in the time of the wall clock: as one
        // thread sees it, a round takes `threads` times as long.
        auto rounds = static_cast<double>(x.iterations);
        auto& to
          = kept_[{x.run_name.function_name, static_cast<int>(x.threads)}];
        to.wall.push_back(x.real_accumulated_time * 1e9 / rounds
                          * static_cast<double>(x.threads));
        to.processor.push_back(x.cpu_accumulated_time * 1e9 / rounds);
      }
    // Of many repetitions the table at the end says enough.
    if (!single)
      ConsoleReporter::ReportRuns(runs);
  }

  /// Nanoseconds of a round, by the clock on the wall as one thread sees it, or
  /// of the process on its processors. All zero: not measured.
  enum class time { wall, processor };

  [[nodiscard]] spread ns(const std::string& name, int threads,
                          time what) const {
    auto i = kept_.find({name, threads});
    if (i == kept_.end())
      return {};
    return spread_of(what == time::wall ? i->second.wall : i->second.processor);
  }

private:
  struct samples {
    std::vector<double> wall;
    std::vector<double> processor;
  };
  std::map<key, samples> kept_;
};

} // namespace bench
