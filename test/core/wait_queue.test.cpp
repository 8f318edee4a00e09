#include "pawl/core/wait_queue.hpp"

#include "lock_fixture.hpp"

#include <gtest/gtest.h>

#include <random>

using namespace pawl;
using namespace pawl::test;

namespace {

struct queue_world : lock_world {
  queue_world() : who(session()) {
    // nop
  }

  waiter_ptr make(lock_mode mode, bool upgrade = false, bool company = false) {
    auto w = waiter(who, term{"t"}, mode);
    w->upgrade = upgrade;
    w->company = company;
    return w;
  }

  std::vector<pawl::waiter*> order() const {
    std::vector<pawl::waiter*> result;
    for (auto* x = q.front(); x != nullptr; x = x->queue_next)
      result.push_back(x);
    return result;
  }

  void take_out(pawl::waiter& w) {
    q.take_out(w);
    w.unref();
  }

  session_ptr who;
  wait_queue q;
};

using order_of = std::vector<pawl::waiter*>;

} // namespace

TEST(wait_queue, a_place_in_the_list_is_a_ticket) {
  queue_world t;
  auto a = t.make(exclusive);
  auto b = t.make(shared);
  auto c = t.make(exclusive);
  for (auto* w : {a.get(), b.get(), c.get()})
    t.q.hang(*w);
  EXPECT_EQ(t.order(), (order_of{a.get(), b.get(), c.get()}));
  t.take_out(*b);
  EXPECT_EQ(t.order(), (order_of{a.get(), c.get()}));
  EXPECT_EQ(b->queue, nullptr);
  t.q.check_invariants();
  t.take_out(*a);
  t.take_out(*c);
  EXPECT_TRUE(t.q.empty());
}

TEST(wait_queue, an_upgrade_hangs_in_front_but_behind_other_upgrades) {
  queue_world t;
  auto a = t.make(shared);
  auto u = t.make(exclusive, true);
  auto v = t.make(exclusive, true);
  t.q.hang(*a);
  EXPECT_EQ(t.q.upgrader(), nullptr);
  t.q.hang(*u);
  t.q.hang(*v);
  EXPECT_EQ(t.order(), (order_of{u.get(), v.get(), a.get()}));
  EXPECT_EQ(t.q.upgrader(), u.get());
  t.q.check_invariants();
  for (auto* w : t.order())
    t.take_out(*w);
}

TEST(wait_queue, a_demoted_upgrade_stays_ahead_of_those_that_are_none) {
  queue_world t;
  auto a = t.make(shared);
  auto u = t.make(exclusive, true);
  auto v = t.make(exclusive, true);
  for (auto* w : {a.get(), u.get(), v.get()})
    t.q.hang(*w);
  t.q.demote(*u);
  EXPECT_EQ(t.order(), (order_of{v.get(), u.get(), a.get()}));
  EXPECT_FALSE(u->upgrade);
  t.q.check_invariants();
  for (auto* w : t.order())
    t.take_out(*w);
}

TEST(wait_queue, a_manager_is_told_once_until_it_has_looked) {
  wait_queue q;
  EXPECT_EQ(q.want_look(), 0u) << "an orphan's manager looks first anyway";
  EXPECT_FALSE(q.look_pending);
  q.manager = 7;
  EXPECT_EQ(q.want_look(), 7u);
  EXPECT_EQ(q.want_look(), 0u);
  q.look_pending = false;
  EXPECT_EQ(q.want_look(), 7u);
}

TEST(wait_queue, it_keeps_its_waiters_alive) {
  queue_world t;
  auto a = t.make(shared);
  auto* raw = a.get();
  t.q.hang(*a);
  a.reset();
  EXPECT_EQ(t.q.front(), raw);
  EXPECT_EQ(test_waiter::live, 1);
  t.take_out(*raw);
  EXPECT_EQ(test_waiter::live, 0);
}

TEST(wait_queue, it_does_what_a_list_of_two_parts_does) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random{seed};
    queue_world t;
    order_of upgrades;
    order_of others;
    std::vector<waiter_ptr> owned;
    for (int step = 0; step < 2000; ++step) {
      auto count = upgrades.size() + others.size();
      auto what = random() % 5;
      if (count == 0 || what < 2) {
        owned.push_back(t.make(shared, random() % 3 == 0, random() % 2 == 0));
        auto* w = owned.back().get();
        t.q.hang(*w);
        (w->upgrade ? upgrades : others).push_back(w);
      } else if (what == 2 && !upgrades.empty()) {
        auto at = upgrades.begin()
                  + static_cast<std::ptrdiff_t>(random() % upgrades.size());
        t.q.demote(**at);
        others.insert(others.begin(), *at);
        upgrades.erase(at);
      } else {
        auto at = random() % count;
        auto& part = at < upgrades.size() ? upgrades : others;
        auto place = part.begin()
                     + static_cast<std::ptrdiff_t>(
                       at < upgrades.size() ? at : at - upgrades.size());
        t.take_out(**place);
        part.erase(place);
      }
      t.q.check_invariants();
      auto all = upgrades;
      all.insert(all.end(), others.begin(), others.end());
      ASSERT_EQ(t.order(), all) << "seed " << seed << ", step " << step;
      ASSERT_EQ(t.q.size(), all.size());
    }
    for (auto* w : t.order())
      t.take_out(*w);
  }
}
