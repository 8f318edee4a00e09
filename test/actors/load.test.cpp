// Much of everything, on one node: that it comes to an end, and that nothing of
// it stays.

#include "pawl/test/actors/fixture.hpp"
#include "pawl/test/support/memory.hpp"
#include "pawl/test/support/sanitized.hpp"

#include <fmt/format.h>

#include <random>

namespace pawl::testing {
namespace {

/// What a run under a sanitizer does a tenth of.
constexpr std::size_t scaled(std::size_t x) {
  return sanitized ? x / 10 : x;
}

/// What is in use.
std::size_t resident() {
  trim_memory();
  return memory();
}

constexpr std::size_t mebibyte = 1024 * 1024;

class load : public actors_test {};

TEST_F(load, ten_million_terms_once_each_leave_memory_as_it_was) {
  auto s = tags_->attach();
  auto count = scaled(10'000'000);
  auto lock_each = [&](std::size_t from, std::size_t until) {
    for (auto i = from; i < until; ++i) {
      auto held = s.lock(fmt::format("area/unit/tag-{}", i), exclusive).wait();
      ASSERT_TRUE(held);
    }
  };
  lock_each(0, count / 100); // what the first ones bring along
  auto before = resident();
  lock_each(count / 100, count);
  auto after = resident();
  EXPECT_EQ(tags_->residue().rows, 0u);
  if (!sanitized) {
    EXPECT_LT(after, before + 2 * mebibyte);
  }
}

TEST_F(load, a_million_terms_at_once_leave_no_more_the_third_time_than_the_first) {
  auto count = scaled(1'000'000);
  std::size_t first = 0;
  std::size_t last = 0;
  for (std::size_t round = 0; round < 3; ++round) {
    auto s = tags_->attach();
    std::vector<lock> all;
    all.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      auto held = s.lock(fmt::format("tag-{}-{}", round, i), exclusive).wait();
      ASSERT_TRUE(held);
      all.push_back(std::move(*held));
    }
    EXPECT_EQ(tags_->residue().rows, count);
    all.clear();
    EXPECT_EQ(tags_->residue().rows, 0u);
    last = resident();
    if (round == 0)
      first = last;
  }
  if (!sanitized) {
    EXPECT_LT(last, first + 2 * mebibyte);
  }
}

TEST_F(load, fifty_thousand_waiters_run_out_of_time_at_once_and_are_gone) {
  auto count = scaled(50'000);
  auto holder = tags_->attach();
  auto held = holder.lock("t", exclusive).wait();
  ASSERT_TRUE(held);
  auto out_of_time = std::make_shared<std::atomic<std::size_t>>(0);
  auto other = std::make_shared<std::atomic<std::size_t>>(0);
  tell_puppet(make_puppet(), [=, where = *tags_](puppet* self) {
    for (std::size_t i = 0; i < count; ++i)
      where.activity(self).lock("t", exclusive).within(1ms).then(
        [other](const lock&) { ++*other; },
        [=](const failure& why) {
          ++*(why.why == outcome::timeout ? out_of_time : other);
        });
  });
  EXPECT_TRUE(eventually([&] { return *out_of_time + *other == count; }, 60s));
  EXPECT_EQ(*out_of_time, count);
  EXPECT_TRUE(eventually([&] { return waiting_for("t") == 0; }));
  EXPECT_EQ(tags_->holders("t").size(), 1u);
  held->release();
  auto next = holder.lock("t", exclusive).no_wait().wait();
  EXPECT_TRUE(next);
}

TEST_F(load, ten_thousand_actors_killed_while_they_acquire_leave_nothing) {
  auto count = scaled(10'000);
  std::mt19937 random{4711};
  std::vector<caf::actor> all;
  auto granted = std::make_shared<std::atomic<std::size_t>>(0);
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(system_->spawn<puppet>());
    for (int k = 0; k < 4; ++k) {
      // A few that all want, and many that few want.
      auto what = k < 2 ? random() % 16 : 16 + random() % count;
      auto mode = random() % 3 == 0 ? shared : exclusive;
      tell_puppet(all.back(), [=, where = *tags_](puppet* self) {
        where.activity(self).lock(what, mode).then(
          [=](lock x) {
            self->held.push_back(std::move(x));
            ++*granted;
          },
          [](const failure&) {});
      });
    }
    // Some that have just asked, some that wait, some that hold.
    if (i >= 100)
      compat::anon_send_exit(all[i - 1 - random() % 100],
                             caf::exit_reason::kill);
  }
  EXPECT_GT(*granted, 0u);
  for (const auto& x : all)
    compat::anon_send_exit(x, caf::exit_reason::kill);
  all.clear();
  EXPECT_TRUE(
    eventually([&] { return tags_->residue() == residue{}; }, 60s));
}

} // namespace
} // namespace pawl::testing
