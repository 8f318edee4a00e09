// The deadlines of a scope against a naive twin: a sorted map.

#include "pawl/core/deadlines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace {

using pawl::deadline_entry;
using pawl::deadlines;
using time_point = deadlines::time_point;

struct request : deadline_entry {};

time_point at(int ms) {
  return time_point{} + std::chrono::milliseconds{ms};
}

TEST(deadlines, an_empty_one_has_no_next_and_nothing_due) {
  deadlines x;
  EXPECT_TRUE(x.empty());
  EXPECT_EQ(x.next(), std::nullopt);
  EXPECT_EQ(x.pop_due(time_point::max()), nullptr);
}

TEST(deadlines, the_earliest_comes_out_first_and_not_before_its_time) {
  deadlines x;
  request a, b, c;
  EXPECT_TRUE(x.insert(b, at(20))) << "the first one sets the timer";
  EXPECT_FALSE(x.insert(c, at(30))) << "a later one does not";
  EXPECT_TRUE(x.insert(a, at(10))) << "an earlier one does";
  EXPECT_EQ(x.next(), at(10));
  EXPECT_EQ(x.pop_due(at(9)), nullptr);
  EXPECT_EQ(x.pop_due(at(20)), &a);
  EXPECT_EQ(x.pop_due(at(20)), &b) << "due at the very moment";
  EXPECT_EQ(x.pop_due(at(20)), nullptr);
  EXPECT_EQ(x.next(), at(30));
  EXPECT_TRUE(x.remove(c));
}

TEST(deadlines, what_has_left_is_not_due_and_may_leave_again) {
  deadlines x;
  request a;
  x.insert(a, at(1));
  EXPECT_TRUE(a.pending());
  EXPECT_TRUE(x.remove(a));
  EXPECT_FALSE(a.pending());
  EXPECT_FALSE(x.remove(a));
  EXPECT_EQ(x.pop_due(at(2)), nullptr);
  EXPECT_EQ(a.due(), at(1));
}

TEST(deadlines, an_entry_that_came_out_can_be_listed_again) {
  deadlines x;
  request a;
  x.insert(a, at(1));
  ASSERT_EQ(x.pop_due(at(1)), &a);
  x.insert(a, at(5));
  EXPECT_EQ(x.next(), at(5));
  x.remove(a);
}

TEST(deadlines, forgets_its_entries_when_it_ends) {
  request a;
  {
    deadlines x;
    x.insert(a, at(1));
  }
  EXPECT_FALSE(a.pending());
}

TEST(deadlines_death, an_entry_may_not_end_while_listed) {
  EXPECT_DEATH(
    {
      deadlines x;
      request a;
      x.insert(a, at(1));
    },
    "leaves the deadlines before it ends");
}

TEST(deadlines_death, an_entry_is_listed_once) {
  deadlines x;
  request a;
  x.insert(a, at(1));
  EXPECT_DEATH(x.insert(a, at(2)), "listed once");
  x.remove(a);
}

/// Random operations; after each the heap is checked and asked what the twin
/// is asked. Few different moments, so that many are equal.
void compare_with_twin(unsigned seed, int moments, std::size_t entries) {
  std::mt19937 random{seed};
  auto pick = [&](int n) {
    return std::uniform_int_distribution<int>{0, n - 1}(random);
  };
  std::vector<std::unique_ptr<request>> all;
  for (std::size_t i = 0; i < entries; ++i)
    all.push_back(std::make_unique<request>());
  deadlines heap;
  std::multimap<time_point, deadline_entry*> twin;
  auto forget = [&](deadline_entry* x) {
    auto [first, last] = twin.equal_range(x->due());
    auto found = std::find_if(first, last,
                              [&](auto& y) { return y.second == x; });
    ASSERT_NE(found, last);
    twin.erase(found);
  };
  auto now = 0;
  for (int step = 0; step < 4000; ++step) {
    auto& x = *all[static_cast<std::size_t>(pick(static_cast<int>(entries)))];
    // Phases of growing and of shrinking.
    auto growing = (step / 500) % 2 == 0;
    auto what = pick(10);
    if (what < (growing ? 7 : 3)) {
      if (!x.pending()) {
        auto due = at(now + pick(moments));
        auto first = heap.insert(x, due);
        EXPECT_EQ(first, twin.empty() || due < twin.begin()->first);
        twin.emplace(due, &x);
      }
    } else if (what < 9) {
      auto listed = x.pending();
      if (listed)
        forget(&x);
      EXPECT_EQ(heap.remove(x), listed);
    } else {
      now += pick(3);
      for (;;) {
        auto* due = heap.pop_due(at(now));
        auto expected = !twin.empty() && twin.begin()->first <= at(now);
        ASSERT_EQ(due != nullptr, expected);
        if (due == nullptr)
          break;
        ASSERT_EQ(due->due(), twin.begin()->first);
        forget(due);
      }
    }
    heap.check_invariants();
    ASSERT_EQ(heap.size(), twin.size());
    ASSERT_EQ(heap.next(), twin.empty()
                             ? std::nullopt
                             : std::optional{twin.begin()->first});
  }
  for (auto& x : all)
    heap.remove(*x);
  EXPECT_TRUE(heap.empty());
}

TEST(deadlines, do_what_a_sorted_map_does) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    compare_with_twin(seed, 5, 8);
    compare_with_twin(seed, 40, 60);
  }
}

TEST(deadlines, do_what_a_sorted_map_does_with_many_entries) {
  compare_with_twin(11, 1000, 2000);
}

TEST(deadlines, ten_thousand_come_out_in_order) {
  deadlines x;
  std::vector<std::unique_ptr<request>> all;
  std::mt19937 random{7};
  for (int i = 0; i < 10'000; ++i) {
    all.push_back(std::make_unique<request>());
    x.insert(*all.back(), at(static_cast<int>(random() % 100'000)));
  }
  x.check_invariants();
  auto last = time_point::min();
  for (auto* due = x.pop_due(time_point::max()); due != nullptr;
       due = x.pop_due(time_point::max())) {
    EXPECT_LE(last, due->due());
    last = due->due();
  }
  EXPECT_TRUE(x.empty());
}

} // namespace
