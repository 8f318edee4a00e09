// Cuts with both sides alive, and what is found when the link comes back.

#include "pawl/test/net/cluster_fixture.hpp"

#include <random>

namespace pawl::testing {
namespace {

class heal : public cluster_test {
protected:
  static constexpr auto node_timeout = 500ms;

  /// Cuts `x` off and waits until all have found out.
  void isolate(const std::string& x) {
    std::vector<std::string> others;
    for (const auto& [name, m] : members_)
      if (name != x) {
        cut(name, x);
        others.push_back(name);
      }
    ASSERT_TRUE(sees(x, {x}));
    for (const auto& name : others)
      ASSERT_TRUE(sees(name, others));
  }

  /// Brings the counters of a term to the same value on all nodes: they start
  /// from the clock, and a test would not know who is ahead.
  void level(const std::string& what) {
    auto held = new_client(members_.begin()->first).everywhere(what);
    ASSERT_EQ(held->get(), outcome::granted);
    held->held.release();
    ASSERT_TRUE(becomes_free(what));
  }

  void mend_all() {
    for (const auto& [a, x] : members_)
      for (const auto& [b, y] : members_)
        if (a < b)
          mend(a, b);
    ASSERT_TRUE(all_joined());
  }
};

// Cases 2, 21: each side went on alone; the later grant stays.
TEST_F(heal, of_a_cut_keeps_the_larger_token_and_tells_the_other_that_it_lost) {
  configure_and_start({"a", "b"}, node_timeout);
  for (std::string older : {"a", "b"}) {
    std::string newer = older == "a" ? "b" : "a";
    auto& first = new_client(older);
    auto held = first.everywhere("t");
    ASSERT_EQ(held->get(), outcome::granted);
    auto& second = new_client(newer);
    auto waits = second.everywhere("t");
    ASSERT_TRUE(somebody_waits("t"));
    // Who falls silent does not count, not even before it is found out.
    std::atomic<bool> found_out{false};
    std::atomic<int> doubts{0};
    std::thread asks{[&] {
      while (!found_out) {
        doubts += held->held.still_held() ? 0 : 1;
        std::this_thread::sleep_for(100us);
      }
    }};
    isolate(newer);
    EXPECT_TRUE(first.hears("node_left " + newer));
    EXPECT_TRUE(held->held.still_held());
    found_out = true;
    asks.join();
    EXPECT_EQ(doubts, 0);
    // The other side has dropped what came from here.
    ASSERT_EQ(waits->get(), outcome::granted);
    EXPECT_GT(waits->held.token(), held->held.token());
    auto lost = tags(older).statistics().lost;
    mend_all();
    // By the node that has found the other one first.
    EXPECT_TRUE(eventually([&] {
      auto told = first.told();
      return !told.empty() && told.back().starts_with("lost ");
    }));
    EXPECT_TRUE(eventually([&] { return !held->held.still_held(); }));
    EXPECT_EQ(held->held.release(), release_result::lost);
    EXPECT_EQ(tags(older).statistics().lost, lost + 1);
    EXPECT_TRUE(second.told().empty()
                || second.told() == std::vector{"node_left " + older});
    EXPECT_TRUE(waits->held.still_held());
    for (std::string x : {"a", "b"}) {
      EXPECT_TRUE(eventually([&] { return holders(x, "t") == 1; }));
      EXPECT_EQ(tags(x).holders("t")[0].token, waits->held.token());
    }
    // Case 24.
    auto again = first.everywhere("t");
    ASSERT_TRUE(somebody_waits("t"));
    EXPECT_EQ(waits->held.release(), release_result::released);
    ASSERT_EQ(again->get(), outcome::granted);
    first.kill();
    second.kill();
    EXPECT_TRUE(becomes_free("t"));
  }
}

// Cases 2, 5: no cached yes, and told within the bound.
TEST_F(heal, is_not_needed_to_know_that_a_hold_on_a_list_is_gone) {
  configure_and_start({"a", "b", "c"}, node_timeout);
  auto& c = new_client("a");
  auto held = c.on({"a", "b"}, "t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto& d = new_client("a");
  auto apart = d.on({"a", "c"}, "u");
  ASSERT_EQ(apart->get(), outcome::granted);
  EXPECT_TRUE(held->held.still_held());
  auto begin = std::chrono::steady_clock::now();
  cut("a", "b");
  EXPECT_TRUE(eventually([&] { return !held->held.still_held(); }));
  // b may grant it to others only after that.
  EXPECT_TRUE(holders("b", "t") == 1 || !held->held.still_held());
  EXPECT_TRUE(c.hears("lost b"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10 * node_timeout);
  EXPECT_EQ(held->held.release(), release_result::lost);
  // Case 46.
  EXPECT_TRUE(apart->held.still_held());
  EXPECT_TRUE(d.told().empty());
  // b does by its own clock.
  EXPECT_TRUE(becomes_free("t"));
}

TEST_F(heal, finds_a_local_shared_hold) {
  configure_and_start({"a", "b"}, node_timeout);
  level("t");
  auto& near = new_client("a");
  auto reads = near.here("t", shared);
  ASSERT_EQ(reads->get(), outcome::granted);
  isolate("b");
  auto& far = new_client("b");
  auto writes = far.everywhere("t");
  while (writes->token() != 0 && writes->token() <= reads->held.token()) {
    writes->held.release();
    writes = far.everywhere("t");
  }
  ASSERT_EQ(writes->get(), outcome::granted);
  mend_all();
  EXPECT_TRUE(eventually([&] { return near.events().size() == 1; }));
  ASSERT_EQ(near.events().size(), 1u);
  EXPECT_EQ(near.events()[0].what, hold_event::kind::lost);
  EXPECT_EQ(near.events()[0].term, make_term("t"));
  EXPECT_FALSE(reads->held.still_held());
  EXPECT_EQ(reads->held.release(), release_result::lost);
  EXPECT_TRUE(writes->held.still_held());
  EXPECT_EQ(holders("a", "t"), 1u);
  EXPECT_EQ(tags("a").statistics().lost, 1u);
}

TEST_F(heal, finds_a_local_exclusive_hold_that_is_newer) {
  configure_and_start({"a", "b"}, node_timeout);
  level("t");
  isolate("b");
  auto& far = new_client("b");
  auto older = far.everywhere("t");
  ASSERT_EQ(older->get(), outcome::granted);
  auto& near = new_client("a");
  auto newer = near.here("t");
  while (newer->token() != 0 && newer->token() <= older->held.token()) {
    newer->held.release();
    newer = near.here("t");
  }
  ASSERT_EQ(newer->get(), outcome::granted);
  mend_all();
  EXPECT_TRUE(eventually([&] { return !far.events().empty(); }));
  EXPECT_TRUE(eventually([&] { return !older->held.still_held(); }));
  EXPECT_EQ(older->held.release(), release_result::lost);
  EXPECT_TRUE(newer->held.still_held());
  EXPECT_EQ(newer->held.release(), release_result::released);
  EXPECT_TRUE(becomes_free("t"));
}

TEST_F(heal, leaves_shared_holds_of_both_sides_alone) {
  configure_and_start({"a", "b"}, node_timeout);
  auto before = new_client("a").everywhere("t", shared);
  ASSERT_EQ(before->get(), outcome::granted);
  isolate("b");
  auto during = new_client("b").everywhere("t", shared);
  ASSERT_EQ(during->get(), outcome::granted);
  mend_all();
  for (std::string x : {"a", "b"})
    EXPECT_TRUE(eventually([&] { return holders(x, "t") == 2; })) << x;
  EXPECT_TRUE(before->held.still_held());
  EXPECT_TRUE(during->held.still_held());
  EXPECT_EQ(before->held.release(), release_result::released);
  EXPECT_EQ(during->held.release(), release_result::released);
  EXPECT_TRUE(becomes_free("t"));
}

// A partial grant gives way, whatever its token, and asks anew.
TEST_F(heal, finds_a_partial_grant_that_gives_way) {
  configure_and_start({"a", "b", "c"}, node_timeout);
  auto nodes = order();
  for (const auto& away : nodes) {
    // The two that stay together: at the first of them the request is granted,
    // at the second it waits for a holder.
    std::vector<std::string> two;
    for (const auto& x : nodes)
      if (x != away)
        two.push_back(x);
    isolate(away);
    auto& far = new_client(away);
    auto whole = far.everywhere("t");
    ASSERT_EQ(whole->get(), outcome::granted);
    auto blocker = new_client(two[1]).here("t", shared);
    ASSERT_EQ(blocker->get(), outcome::granted);
    auto partial = new_client(two[1]).everywhere("t");
    ASSERT_TRUE(eventually([&] {
      return holders(two[0], "t") == 1 && waiters(two[1], "t") == 1;
    }));
    mend_all();
    // The partial grant has made way, and the reader has lost, unless its token
    // is the larger one; the whole one stays or has lost to the reader.
    auto whole_stays = eventually(
      [&] { return !blocker->held.still_held() || !whole->held.still_held(); });
    EXPECT_TRUE(whole_stays);
    EXPECT_TRUE(partial->pending());
    whole->held.release();
    blocker->held.release();
    EXPECT_EQ(partial->get(), outcome::granted) << away;
    partial->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

// Case 21: what was held by an actor that ended during the cut.
TEST_F(heal, leaves_nothing_of_owners_that_have_gone_meanwhile) {
  configure_and_start({"a", "b"}, node_timeout);
  auto& c = new_client("a");
  auto held = c.everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto& d = new_client("b");
  auto waits = d.everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  cut("a", "b");
  c.kill();
  d.kill();
  ASSERT_TRUE(sees("a", {"a"}));
  ASSERT_TRUE(sees("b", {"b"}));
  mend_all();
  EXPECT_TRUE(becomes_free("t"));
}

// A cut that is shorter than anybody notices costs nothing.
TEST_F(heal, of_a_hiccup_changes_nothing) {
  configure_and_start({"a", "b"}, 3s);
  auto& c = new_client("a");
  auto held = c.everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto waits = new_client("b").everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  for (int i = 0; i < 5; ++i) {
    cut("a", "b");
    std::this_thread::yield();
    mend("a", "b");
  }
  held->held.release();
  EXPECT_EQ(waits->get(), outcome::granted);
}

// Case 11: a–b and b–c are linked, a–c is not.
TEST_F(heal, of_a_cut_between_two_of_three_never_sees_two_grants_at_the_third) {
  configure_and_start({"a", "b", "c"}, node_timeout);
  cut("a", "c");
  ASSERT_TRUE(sees("a", {"a", "b"}));
  ASSERT_TRUE(sees("c", {"b", "c"}));
  ASSERT_TRUE(sees("b", {"a", "b", "c"}));
  std::atomic<int> inside{0};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (std::string x : {"a", "c"})
    threads.emplace_back([&, x] {
      auto s = tags(x).attach();
      for (int i = 0; i < 200; ++i) {
        auto held = s.lock("t", exclusive).on(every_node).within(20s).wait();
        if (!held || inside.fetch_add(1) != 0) {
          ++faults;
          continue;
        }
        --inside;
      }
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(faults, 0);
  // All three by name cannot be had, and nothing of the try is left.
  EXPECT_EQ(new_client("a").on({"a", "b", "c"}, "u")->get(),
            outcome::node_down);
  EXPECT_EQ(new_client("c").on({"a", "b", "c"}, "u")->get(),
            outcome::node_down);
  mend_all();
  EXPECT_TRUE(becomes_free("t"));
  EXPECT_TRUE(becomes_free("u"));
}

// Case 27: failures during the recovery from others. Cuts, crashes and restarts
// come at any moment; afterwards every lock can be had and nothing is left.
TEST_F(heal, comes_through_failures_at_any_moment) {
  configure_and_start({"a", "b", "c"}, node_timeout);
  const std::vector<std::string> names{"a", "b", "c"};
  std::mt19937 random{11};
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 12; ++i) {
      const auto& who = names[random() % 3];
      if (!members_.contains(who))
        continue;
      auto& m = (*this)[who];
      while (m.clients.size() > 6)
        m.clients.erase(m.clients.begin());
      auto& c = m.new_client();
      auto mode = random() % 3 == 0 ? shared : exclusive;
      auto what = std::string(1, static_cast<char>('t' + random() % 2));
      if (random() % 3 == 0)
        (void) c.on({names[random() % 3], names[random() % 3]}, what, mode);
      else
        (void) c.everywhere(what, mode);
    }
    const auto& x = names[random() % 3];
    const auto& y = names[random() % 3];
    switch (random() % 4) {
      case 0:
        if (members_.contains(x))
          crash(x);
        break;
      case 1:
        if (!members_.contains(x))
          start(x);
        break;
      case 2:
        if (x != y && members_.contains(x) && members_.contains(y))
          cut(x, y);
        break;
      default:
        if (x != y && members_.contains(x) && members_.contains(y))
          mend(x, y);
    }
    // Now and then they have the time to find out.
    if (round % 4 == 3)
      std::this_thread::sleep_for(node_timeout + node_timeout / 2);
  }
  for (const auto& x : names)
    if (!members_.contains(x))
      start(x);
  mend_all();
  for (auto& [name, x] : members_)
    x->clients.clear();
  for (std::string what : {"t", "u"}) {
    EXPECT_TRUE(becomes_free(what));
    for (const auto& x : names) {
      auto held = new_client(x).everywhere(what);
      EXPECT_EQ(held->get(), outcome::granted) << what << x;
      held->held.release();
    }
  }
}

} // namespace
} // namespace pawl::testing
