#include "pawl/core/statistics.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace pawl {

namespace {

/// Which thread numbers are taken. A number that comes back is used again: its
/// shards then go on counting for another thread.
class thread_numbers {
public:
  std::size_t take() noexcept {
    auto taken = taken_.load(std::memory_order_relaxed);
    for (;;) {
      auto free = ~taken & all;
      if (free == 0)
        return detail::shared_thread_number;
      auto bit = free & (~free + 1);
      // Acquire: what the last owner counted is seen by the next.
      if (taken_.compare_exchange_weak(taken, taken | bit,
                                       std::memory_order_acquire,
                                       std::memory_order_relaxed))
        return static_cast<std::size_t>(std::countr_zero(bit));
    }
  }

  void give(std::size_t number) noexcept {
    if (number != detail::shared_thread_number)
      taken_.fetch_and(~(std::uint64_t{1} << number),
                       std::memory_order_release);
  }

private:
  static constexpr auto all
    = (std::uint64_t{1} << detail::owned_thread_numbers) - 1;

  std::atomic<std::uint64_t> taken_{0};
};

constinit thread_numbers numbers;

/// Gives the number back at the end of its thread. What the thread counts after
/// that, in other destructors, goes to the shared shard.
struct number_owner {
  number_owner() {
    detail::thread_number = numbers.take();
  }

  ~number_owner() {
    numbers.give(
      std::exchange(detail::thread_number, detail::shared_thread_number));
  }
};

void raise(std::atomic<std::uint64_t>& to, std::uint64_t x) noexcept {
  auto old = to.load(std::memory_order_relaxed);
  while (old < x
         && !to.compare_exchange_weak(old, x, std::memory_order_relaxed)) {
    // retry
  }
}

} // namespace

void duration_histogram::record(std::uint64_t ns, bool shared) noexcept {
  auto& count = counts_[bucket_of(ns)];
  if (shared) {
    count.fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(ns, std::memory_order_relaxed);
    raise(max_, ns);
    return;
  }
  count.store(count.load(std::memory_order_relaxed) + 1,
              std::memory_order_relaxed);
  sum_.store(sum_.load(std::memory_order_relaxed) + ns,
             std::memory_order_relaxed);
  if (max_.load(std::memory_order_relaxed) < ns)
    max_.store(ns, std::memory_order_relaxed);
}

statistics::statistics() {
  fallback_.shared = true;
}

statistics::~statistics() {
  for (auto& x : shards_)
    delete x.load();
}

statistics::shard& statistics::make_shard() noexcept {
  if (detail::thread_number == detail::no_thread_number) {
    static thread_local number_owner owner;
    (void)owner;
  }
  // Another thread had the number before, and counted here; or it is shared.
  auto number = detail::thread_number;
  auto* found = shards_[number].load(std::memory_order_acquire);
  if (found != nullptr)
    return *found;
  auto* fresh = new (std::nothrow) shard;
  if (fresh == nullptr)
    return fallback_;
  fresh->shared = number == detail::shared_thread_number;
  if (shards_[number].compare_exchange_strong(found, fresh,
                                              std::memory_order_acq_rel,
                                              std::memory_order_acquire))
    return *fresh;
  delete fresh; // threads that share a shard met here
  return *found;
}

// -- events -------------------------------------------------------------------

void statistics::count_refused(outcome why) noexcept {
  auto& s = mine();
  add(s, s.refused[static_cast<std::size_t>(why)], 1);
}

void statistics::count_wait(const term& what, std::chrono::nanoseconds waited,
                            outcome how) noexcept {
  auto& s = mine();
  auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(waited.count(),
                                                              0));
  add(s, s.waited[static_cast<std::size_t>(how)], 1);
  s.wait.record(ns, s.shared);
  note_hot(what, ns);
}

void statistics::count_lost() noexcept {
  auto& s = mine();
  add(s, s.lost, 1);
}

void statistics::count_restart() noexcept {
  auto& s = mine();
  add(s, s.restarts, 1);
}

void statistics::count_walk(std::uint64_t visited) noexcept {
  auto& s = mine();
  add(s, s.walks, 1);
  add(s, s.walk_visits, visited);
}

void statistics::hold_time(std::int64_t ns) noexcept {
  auto& s = mine();
  s.hold.record(static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0)),
                s.shared);
}

/// Space-saving (Metwally, Agrawal, El Abbadi 2005): a newcomer takes the place
/// of the smallest entry and inherits its count, so that no heavy term is
/// missed; counts of light ones are too large by what they inherited.
void statistics::note_hot(const term& what, std::uint64_t waited) noexcept {
  std::unique_lock guard{hot_lock_, std::try_to_lock};
  if (!guard.owns_lock())
    return; // approximate anyway; nobody waits for statistics
  try {
    for (auto& x : hot_) {
      if (x.what == what) {
        ++x.waits;
        x.waited_ns += waited;
        return;
      }
    }
    if (hot_.size() < hot_terms) {
      hot_.push_back({what, 1, waited});
      return;
    }
    auto& least = *std::min_element(
      hot_.begin(), hot_.end(), [](const hot_term& a, const hot_term& b) {
        return a.waited_ns < b.waited_ns;
      });
    least.what = what;
    ++least.waits;
    least.waited_ns += waited;
  } catch (...) {
    // No memory for a name.
  }
}

// -- queries ------------------------------------------------------------------

statistics::snapshot statistics::read() const {
  snapshot result;
  std::vector<const duration_histogram*> waits;
  std::vector<const duration_histogram*> holds;
  auto merge_one = [&](const shard& s) {
    result.fast_grants += s.fast_grants.load(std::memory_order_relaxed);
    result.lost += s.lost.load(std::memory_order_relaxed);
    result.restarts += s.restarts.load(std::memory_order_relaxed);
    result.walks += s.walks.load(std::memory_order_relaxed);
    result.walk_visits += s.walk_visits.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < s.waited.size(); ++i) {
      auto waited = s.waited[i].load(std::memory_order_relaxed);
      auto refused = s.refused[i].load(std::memory_order_relaxed);
      result.waits += waited;
      result.requests += waited + refused;
      result.outcomes[i] += waited + refused;
    }
    waits.push_back(&s.wait);
    holds.push_back(&s.hold);
  };
  for (const auto& x : shards_)
    if (auto* s = x.load(std::memory_order_acquire))
      merge_one(*s);
  merge_one(fallback_);
  result.requests += result.fast_grants;
  result.outcomes[static_cast<std::size_t>(outcome::granted)]
    += result.fast_grants;
  result.wait = merge(waits);
  result.hold = merge(holds);
  {
    std::lock_guard guard{hot_lock_};
    result.hottest = hot_;
  }
  std::sort(result.hottest.begin(), result.hottest.end(),
            [](const hot_term& a, const hot_term& b) {
              return a.waited_ns > b.waited_ns;
            });
  return result;
}

statistics::times statistics::merge(
  const std::vector<const duration_histogram*>& all) {
  times result;
  std::array<std::uint64_t, duration_histogram::buckets> counts{};
  std::uint64_t sum = 0;
  for (const auto* x : all) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      auto n = x->counts_[i].load(std::memory_order_relaxed);
      counts[i] += n;
      result.count += n;
    }
    sum += x->sum_.load(std::memory_order_relaxed);
    result.max = std::max(result.max, x->max_.load(std::memory_order_relaxed));
  }
  if (result.count == 0)
    return result;
  result.mean = static_cast<double>(sum) / static_cast<double>(result.count);
  auto quantile = [&](double q) {
    auto wanted = static_cast<std::uint64_t>(
      q * static_cast<double>(result.count - 1));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      seen += counts[i];
      if (seen > wanted)
        return std::min(duration_histogram::upper_bound(i), result.max);
    }
    return result.max;
  };
  result.median = quantile(0.5);
  result.p95 = quantile(0.95);
  result.p99 = quantile(0.99);
  return result;
}

std::string to_string(const statistics::snapshot& x) {
  auto text = fmt::format("requests {} fast {} waits {} lost {} restarts {}",
                          x.requests, x.fast_grants, x.waits, x.lost,
                          x.restarts);
  for (std::size_t i = 1; i < x.outcomes.size(); ++i)
    if (x.outcomes[i] != 0)
      text += fmt::format(" {} {}", to_string(static_cast<outcome>(i)),
                          x.outcomes[i]);
  auto line = [&](std::string_view word, const statistics::times& t) {
    if (t.count != 0)
      text += fmt::format("; {}: mean {:.0f} ns, median {}, p95 {}, p99 {}, "
                          "max {}",
                          word, t.mean, t.median, t.p95, t.p99, t.max);
  };
  line("wait", x.wait);
  line("hold", x.hold);
  return text;
}

} // namespace pawl
