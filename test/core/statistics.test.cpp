// The counters of a scope: exact where they say so, within 1/16 where not, from
// many threads, also from more than there are shards.

#include "pawl/core/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using pawl::duration_histogram;
using pawl::outcome;
using pawl::statistics;
using pawl::term;

template <class F>
void in_threads(int n, F f) {
  std::vector<std::thread> all;
  for (int i = 0; i < n; ++i)
    all.emplace_back(f, i);
  for (auto& x : all)
    x.join();
}

TEST(statistics, a_fresh_one_is_all_zero) {
  statistics x;
  auto now = x.read();
  EXPECT_EQ(now.requests, 0u);
  EXPECT_EQ(now.wait.count, 0u);
  EXPECT_EQ(now.hold.max, 0u);
  EXPECT_TRUE(now.hottest.empty());
}

TEST(statistics, every_request_is_counted_once_with_its_outcome) {
  statistics x;
  x.count_fast_grant();
  x.count_fast_grant();
  x.count_refused(outcome::busy);
  x.count_wait(term{"a"}, 5ms, outcome::granted);
  x.count_wait(term{"a"}, 7ms, outcome::timeout);
  x.count_wait(term{"b"}, 1ms, outcome::deadlock);
  x.count_lost();
  x.count_restart();
  auto now = x.read();
  EXPECT_EQ(now.requests, 6u);
  EXPECT_EQ(now.fast_grants, 2u);
  EXPECT_EQ(now.waits, 3u);
  EXPECT_EQ(now.ended(outcome::granted), 3u);
  EXPECT_EQ(now.ended(outcome::busy), 1u);
  EXPECT_EQ(now.ended(outcome::timeout), 1u);
  EXPECT_EQ(now.ended(outcome::deadlock), 1u);
  EXPECT_EQ(now.lost, 1u);
  EXPECT_EQ(now.restarts, 1u);
  auto sum = std::uint64_t{0};
  for (auto n : now.outcomes)
    sum += n;
  EXPECT_EQ(sum, now.requests) << "nothing is counted twice, nothing is not";
}

TEST(statistics, two_scopes_do_not_see_each_other) {
  statistics a;
  statistics b;
  a.count_fast_grant();
  EXPECT_EQ(a.read().fast_grants, 1u);
  EXPECT_EQ(b.read().fast_grants, 0u);
}

TEST(statistics, a_bucket_is_at_most_a_sixteenth_wide) {
  std::uint64_t last = 0;
  std::size_t expected = 0;
  for (std::uint64_t ns = 0; ns < 100'000; ++ns) {
    auto bucket = duration_histogram::bucket_of(ns);
    EXPECT_TRUE(bucket == expected || bucket == expected + 1);
    expected = bucket;
    auto upper = duration_histogram::upper_bound(bucket);
    ASSERT_GE(upper, ns);
    ASSERT_LE(upper - ns, ns / 16);
    ASSERT_GE(upper, last);
    last = upper;
  }
  for (unsigned power = 17; power < duration_histogram::powers; ++power) {
    for (auto ns : {(std::uint64_t{1} << power) - 1, std::uint64_t{1} << power,
                    (std::uint64_t{1} << power) + 1}) {
      auto upper
        = duration_histogram::upper_bound(duration_histogram::bucket_of(ns));
      EXPECT_GE(upper, ns);
      EXPECT_LE(upper - ns, ns / 16);
    }
  }
  EXPECT_EQ(duration_histogram::bucket_of(~std::uint64_t{0}),
            duration_histogram::buckets - 1);
}

TEST(statistics, quantiles_are_those_of_the_sorted_list_within_a_sixteenth) {
  std::mt19937_64 random{3};
  std::lognormal_distribution<double> spread{11, 2};
  statistics x;
  std::vector<std::uint64_t> all;
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto ns = static_cast<std::uint64_t>(spread(random));
    all.push_back(ns);
    sum += static_cast<double>(ns);
    x.hold_time(static_cast<std::int64_t>(ns));
  }
  std::sort(all.begin(), all.end());
  auto hold = x.read().hold;
  auto near = [&](std::uint64_t measured, double q) {
    auto exact = all[static_cast<std::size_t>(
      q * static_cast<double>(all.size() - 1))];
    EXPECT_GE(measured, exact);
    EXPECT_LE(measured - exact, exact / 16 + 1);
  };
  EXPECT_EQ(hold.count, all.size());
  EXPECT_NEAR(hold.mean, sum / static_cast<double>(all.size()), 1);
  EXPECT_EQ(hold.max, all.back());
  near(hold.median, 0.5);
  near(hold.p95, 0.95);
  near(hold.p99, 0.99);
}

TEST(statistics, a_clock_that_seems_to_go_back_counts_as_zero) {
  statistics x;
  x.hold_time(-5);
  x.count_wait(term{1}, -5ns, outcome::granted);
  EXPECT_EQ(x.read().hold.max, 0u);
  EXPECT_EQ(x.read().wait.max, 0u);
  EXPECT_EQ(x.read().wait.count, 1u);
}

TEST(statistics, one_of_64_is_sampled_in_each_thread) {
  statistics x;
  in_threads(2, [&](int) {
    auto sampled = 0;
    for (int i = 0; i < 6400; ++i)
      sampled += x.sample();
    EXPECT_EQ(sampled, 100);
  });
}

TEST(statistics, no_count_is_lost_between_threads_that_come_and_go) {
  statistics x;
  for (int round = 0; round < 20; ++round)
    in_threads(4, [&](int) {
      for (int i = 0; i < 500; ++i)
        x.count_fast_grant();
      x.count_wait(term{"t"}, 1us, outcome::granted);
    });
  auto now = x.read();
  EXPECT_EQ(now.fast_grants, 20u * 4 * 500);
  EXPECT_EQ(now.waits, 20u * 4);
  EXPECT_EQ(now.wait.count, 20u * 4);
}

TEST(statistics, no_count_is_lost_when_there_are_more_threads_than_shards) {
  constexpr int threads = 100;
  statistics x;
  std::barrier together{threads};
  in_threads(threads, [&](int) {
    x.count_fast_grant(); // takes its number
    together.arrive_and_wait();
    for (int i = 0; i < 200; ++i) {
      x.count_fast_grant();
      x.hold_time(100);
      (void)x.sample();
    }
  });
  EXPECT_EQ(x.read().fast_grants, threads * 201u);
  EXPECT_EQ(x.read().hold.count, threads * 200u);
}

TEST(statistics, may_be_read_while_others_count) {
  statistics x;
  std::atomic<bool> stop{false};
  std::thread reader{[&] {
    std::uint64_t last = 0;
    while (!stop) {
      auto now = x.read().fast_grants;
      EXPECT_GE(now, last) << "a counter never goes back";
      last = now;
    }
  }};
  in_threads(2, [&](int) {
    for (int i = 0; i < 20'000; ++i)
      x.count_fast_grant();
  });
  stop = true;
  reader.join();
  EXPECT_EQ(x.read().fast_grants, 40'000u);
}

TEST(statistics, the_hottest_terms_are_those_that_were_waited_for_longest) {
  std::mt19937 random{5};
  statistics x;
  // Three hot terms among a thousand that are hardly waited for.
  for (int i = 0; i < 3000; ++i) {
    x.count_wait(term{static_cast<int>(random() % 1000)}, 10us,
                 outcome::granted);
    if (i % 3 == 0)
      x.count_wait(term{"hottest"}, 3ms, outcome::granted);
    if (i % 6 == 0)
      x.count_wait(term{"hot"}, 3ms, outcome::timeout);
    if (i % 12 == 0)
      x.count_wait(term{"warm"}, 3ms, outcome::granted);
  }
  auto hottest = x.read().hottest;
  ASSERT_LE(hottest.size(), 16u);
  ASSERT_GE(hottest.size(), 3u);
  EXPECT_EQ(hottest[0].what, term{"hottest"});
  EXPECT_EQ(hottest[1].what, term{"hot"});
  EXPECT_EQ(hottest[2].what, term{"warm"});
  auto exact = std::uint64_t{3'000'000'000};
  EXPECT_GE(hottest[0].waited_ns, exact);
  EXPECT_LE(hottest[0].waited_ns, exact + exact / 16);
}

TEST(statistics, read_like_a_line_of_a_log) {
  statistics x;
  x.count_fast_grant();
  x.count_wait(term{"t"}, 8ns, outcome::timeout);
  EXPECT_EQ(to_string(x.read()),
            "requests 2 fast 1 waits 1 lost 0 restarts 0 granted 1 timeout 1; "
            "wait: mean 8 ns, median 8, p95 8, p99 8, max 8");
}

} // namespace
