// Tokens: they grow, they are nobody else's, and a start lies above the past.

#include "pawl/core/fencing.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>

namespace {

using namespace std::chrono_literals;
using pawl::fencing_token;
using pawl::node_slot;

constexpr auto slot(unsigned x) {
  return static_cast<node_slot>(x);
}

TEST(fencing, the_next_token_is_larger_than_all_seen) {
  std::mt19937_64 random{1};
  for (int i = 0; i < 10'000; ++i) {
    auto seen = random() >> 1;
    auto next = pawl::fencing::next(seen, slot(i % pawl::max_nodes));
    EXPECT_GT(next, seen);
    EXPECT_EQ(pawl::fencing::issuer(next), slot(i % pawl::max_nodes));
    EXPECT_LE(next - seen, 2 * pawl::fencing::slot_mask + 1)
      << "by one step of the counter";
  }
}

TEST(fencing, two_sides_of_a_cut_never_issue_the_same_token) {
  std::set<fencing_token> issued;
  for (unsigned node = 0; node < pawl::max_nodes; ++node) {
    fencing_token last = 1'000'000;
    for (int i = 0; i < 100; ++i) {
      last = pawl::fencing::next(last, slot(node));
      EXPECT_TRUE(issued.insert(last).second);
    }
  }
}

TEST(fencing, zero_is_never_issued) {
  EXPECT_GT(pawl::fencing::next(0, slot(0)), 0u);
  EXPECT_GT(pawl::fencing::floor_at(0), 0u);
}

TEST(fencing, a_floor_carries_no_slot_and_follows_the_clock) {
  auto start = pawl::fencing::origin_ns;
  EXPECT_EQ(pawl::fencing::floor_at(start - 1),
            pawl::fencing::floor_at(start)) << "before the origin is the origin";
  auto last = pawl::fencing::floor_at(start);
  for (auto ns = start + 16; ns < start + 16'000; ns += 16) {
    auto floor = pawl::fencing::floor_at(ns);
    EXPECT_GT(floor, last);
    EXPECT_EQ(floor & pawl::fencing::slot_mask, 0u);
    last = floor;
  }
}

TEST(fencing, a_restarted_node_starts_above_what_it_can_have_issued) {
  auto start = pawl::fencing::origin_ns + 123'456'789'012'345ull;
  // One grant per tick for a millisecond, which is faster than a node can.
  auto last = pawl::fencing::floor_at(start);
  for (auto run = 0ns; run < 1ms; run += pawl::fencing::tick)
    last = pawl::fencing::next(last, slot(127));
  EXPECT_GT(pawl::fencing::next(pawl::fencing::floor_at(start + 1'000'016),
                                slot(0)),
            last);
}

TEST(fencing, reach_covers_what_is_issued_within_a_span) {
  auto floor = pawl::fencing::floor_at(pawl::fencing::origin_ns + 1'000'000);
  auto last = floor;
  for (int i = 0; i < 1000; ++i)
    last = pawl::fencing::next(last, slot(127));
  EXPECT_GE(floor + pawl::fencing::reach(1000 * pawl::fencing::tick), last);
  EXPECT_GT(pawl::fencing::reach(0ns), 0u);
}

TEST(fencing, counters_last_for_decades) {
  auto in_2090 = 3'786'912'000'000'000'000ull;
  auto floor = pawl::fencing::floor_at(in_2090);
  EXPECT_GT(floor, pawl::fencing::floor_at(in_2090 - 1'000'000'000));
  EXPECT_GT(pawl::fencing::next(floor, slot(1)), floor);
}

} // namespace

TEST(fencing, a_running_floor_stays_above_counters_that_run_with_the_time) {
  // A node that has run for long has issued more than it had when its peer
  // heard of it; what the peer knows has grown as much.
  using namespace std::chrono_literals;
  pawl::fencing::running_floor known;
  auto start
    = pawl::fencing::floor_at(pawl::fencing::origin_ns + 3'600'000'000'000);
  known.raise(start, 5s);
  EXPECT_EQ(known.at(5s), start);
  EXPECT_EQ(known.at(5s + 160ns),
            start + pawl::fencing::reach(160ns) - pawl::fencing::reach(0ns));
  known.raise(start, 6s); // what has been heard before
  EXPECT_GT(known.at(6s), start + (500ms / 16ns));
  auto higher = known.at(6s) + 1'000'000;
  known.raise(higher, 6s);
  EXPECT_EQ(known.at(6s), higher);
}
