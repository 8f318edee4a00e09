// Locks on a list of nodes: all or nothing, also when one of them goes.

#include "pawl/test/net/cluster_fixture.hpp"

#include <fmt/ranges.h>

#include <random>

namespace pawl::testing {
namespace {

using explicit_nodes = cluster_test;

std::vector<std::string> both() {
  return {"a", "b"};
}

TEST_F(explicit_nodes, hold_a_lock_there_and_nowhere_else) {
  configure_and_start({"a", "b", "c"});
  auto held = new_client("c").on(both(), "t");
  ASSERT_EQ(held->get(), outcome::granted);
  EXPECT_EQ(holders("a", "t"), 1u);
  EXPECT_EQ(holders("b", "t"), 1u);
  EXPECT_EQ(holders("c", "t"), 0u);
  EXPECT_EQ(new_client("a").try_here("t", shared), outcome::busy);
  EXPECT_EQ(new_client("c").try_here("t"), outcome::granted);
  EXPECT_EQ(held->held.release(), release_result::released);
  EXPECT_TRUE(becomes_free("t") || holders("c", "t") == 1);
}

TEST_F(explicit_nodes, that_are_none_grant_and_hold_nothing) {
  configure_and_start(both());
  auto held = new_client("a").on({}, "t");
  ASSERT_EQ(held->get(), outcome::granted);
  EXPECT_EQ(held->held.token(), 0u);
  EXPECT_FALSE(held->held);
  EXPECT_EQ(held->held.release(), release_result::already_released);
  EXPECT_EQ(holders("a", "t"), 0u);
}

TEST_F(explicit_nodes, that_nobody_has_configured_are_down) {
  configure_and_start(both());
  auto x = new_client("a").on({"a", "nobody"}, "t");
  ASSERT_EQ(x->get(), outcome::node_down);
  EXPECT_EQ(x->why.node, "nobody");
  EXPECT_EQ(x->why.message,
            "no node of this cluster is configured under the name nobody");
}

TEST_F(explicit_nodes, that_never_ran_are_down_and_named) {
  configure({"a", "b", "c"}, 500ms);
  start("a");
  start("b");
  ASSERT_TRUE(sees("a", both()));
  auto x = new_client("a").on({"b", "c"}, "t");
  ASSERT_EQ(x->get(), outcome::node_down);
  EXPECT_EQ(x->why.node, "c");
  EXPECT_TRUE(becomes_free("t"));
}

// Case 16: not at its deadline, and what it had is given back.
TEST_F(explicit_nodes, end_a_request_at_once_when_one_of_them_dies) {
  configure_and_start({"a", "b", "c"});
  // At the first of the two it is granted, at the second it waits; and then it
  // waits at the first.
  for (std::string dies : {"b", "c"})
    for (std::string blocks : {"b", "c"}) {
      auto blocker = new_client(blocks).here("t");
      ASSERT_EQ(blocker->get(), outcome::granted);
      auto waits = new_client("a").on({"b", "c"}, "t");
      ASSERT_TRUE(somebody_waits("t"));
      auto begin = std::chrono::steady_clock::now();
      crash(dies);
      EXPECT_EQ(waits->get(), outcome::node_down) << dies << blocks;
      EXPECT_EQ(waits->why.node, dies);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
      if (dies != blocks)
        blocker->held.release();
      EXPECT_TRUE(becomes_free("t"));
      start(dies);
      ASSERT_TRUE(all_joined());
    }
}

// Cases 2, 44.
TEST_F(explicit_nodes, lose_a_hold_as_a_whole_when_one_of_them_dies) {
  configure_and_start({"a", "b", "c"});
  std::mutex lines_lock;
  std::vector<std::string> lines;
  set_log_sink([&](log_level, const std::string& x) {
    std::lock_guard guard{lines_lock};
    lines.push_back(x);
  });
  auto& c = new_client("a");
  auto held = c.on({"a", "b", "c"}, "t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto token = held->held.token();
  auto before = tags("a").statistics().lost;
  crash("c");
  EXPECT_TRUE(c.hears("lost c"));
  auto told = c.events();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].term, make_term("t"));
  EXPECT_EQ(told[0].token, token);
  EXPECT_FALSE(held->held.still_held());
  EXPECT_EQ(held->held.mode(), lock_mode::none);
  EXPECT_EQ(held->held.release(), release_result::lost);
  EXPECT_EQ(held->held.release(), release_result::already_released);
  EXPECT_EQ(tags("a").statistics().lost, before + 1);
  EXPECT_TRUE(becomes_free("t"));
  set_log_sink({});
  std::lock_guard guard{lines_lock};
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const auto& x) {
    return x.find("a hold on t is lost: its node is gone (c)")
           != std::string::npos;
  })) << fmt::format("{}", fmt::join(lines, "\n"));
  // Case 24: the same session can lock it again.
  auto again = c.on(both(), "t");
  ASSERT_EQ(again->get(), outcome::granted);
  EXPECT_GT(again->held.token(), token);
}

// Case 46.
TEST_F(explicit_nodes, are_not_touched_by_the_loss_of_another) {
  configure_and_start({"a", "b", "c"});
  auto& c = new_client("a");
  auto held = c.on(both(), "t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto waits = new_client("b").on(both(), "t");
  ASSERT_TRUE(somebody_waits("t"));
  crash("c");
  ASSERT_TRUE(all_joined());
  EXPECT_TRUE(held->held.still_held());
  EXPECT_TRUE(waits->pending());
  EXPECT_EQ(held->held.release(), release_result::released);
  EXPECT_EQ(waits->get(), outcome::granted);
  EXPECT_TRUE(c.told().empty());
}

TEST_F(explicit_nodes, lose_only_the_terms_that_are_still_held) {
  configure_and_start({"a", "b"});
  auto& c = new_client("a");
  auto held = c.ask_all([](const session& s) {
    return s.lock_all({make_term("x"), make_term("y"), make_term("z")},
                      exclusive)
      .on(both());
  });
  ASSERT_EQ(held->get(), outcome::granted);
  ASSERT_EQ(held->all.size(), 3u);
  EXPECT_EQ(held->all[1].release(), release_result::released);
  crash("b");
  EXPECT_TRUE(eventually([&] { return c.events().size() == 2; }));
  EXPECT_EQ(held->all[0].release(), release_result::lost);
  EXPECT_EQ(held->all[1].release(), release_result::already_released);
  EXPECT_EQ(held->all[2].release(), release_result::lost);
  for (std::string x : {"x", "y", "z"})
    EXPECT_TRUE(becomes_free(x));
}

TEST_F(explicit_nodes, without_the_scope_are_named_and_hold_nothing) {
  configure({"a", "b", "c"});
  start("a");
  start("b");
  start("c", false);
  ASSERT_TRUE(sees("a", both()));
  ASSERT_TRUE(sees("b", both()));
  auto x = new_client("a").on({"a", "b", "c"}, "t");
  ASSERT_EQ(x->get(), outcome::scope_closed);
  EXPECT_EQ(x->why.node, "c");
  // It opens the scope later.
  (*this)["c"].open();
  ASSERT_TRUE(all_joined());
  auto held = new_client("a").on({"a", "b", "c"}, "t");
  EXPECT_EQ(held->get(), outcome::granted);
}

TEST_F(explicit_nodes, that_close_the_scope_end_what_is_held_and_asked_there) {
  configure_and_start({"a", "b"});
  auto& c = new_client("a");
  auto held = c.on(both(), "t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto& d = new_client("a");
  auto waits = d.on(both(), "t");
  ASSERT_TRUE(somebody_waits("t"));
  tags("b").close();
  EXPECT_TRUE(c.hears("lost b"));
  EXPECT_EQ(waits->get(), outcome::scope_closed);
  EXPECT_EQ(waits->why.node, "b");
  EXPECT_EQ(held->held.release(), release_result::lost);
  EXPECT_EQ(d.here("t")->get(), outcome::granted);
  EXPECT_EQ(new_client("a").on(both(), "u")->get(), outcome::scope_closed);
  (*this)["b"].clients.clear();
  (*this)["b"].open();
  ASSERT_TRUE(all_joined());
  EXPECT_EQ(new_client("a").on(both(), "u")->get(), outcome::granted);
}

TEST_F(explicit_nodes, are_widened_by_a_session_that_holds_some_of_them) {
  configure_and_start({"a", "b", "c"});
  std::vector<std::vector<std::string>> sets{
    {"a"}, {"b"}, {"c"}, {"a", "b"}, {"b", "c"}};
  for (const auto& first : sets) {
    auto& c = new_client("b");
    auto narrow = c.on(first, "t");
    ASSERT_EQ(narrow->get(), outcome::granted);
    auto wide = c.on({"a", "b", "c"}, "t");
    ASSERT_EQ(wide->get(), outcome::granted) << fmt::format("{}", first);
    EXPECT_GE(wide->held.token(), narrow->held.token());
    wide->held.release();
    // What it had before, it still has, and no more.
    for (std::string x : {"a", "b", "c"}) {
      auto kept = std::find(first.begin(), first.end(), x) != first.end();
      auto free = [&] { return holders(x, "t") == 0; };
      EXPECT_TRUE(kept ? !free() : eventually(free)) << x;
    }
    narrow->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

TEST_F(explicit_nodes, keep_a_shared_hold_when_a_half_done_upgrade_is_given_up) {
  configure_and_start({"a", "b", "c"});
  for (std::string blocks : {"a", "b"}) {
    auto& c = new_client("c");
    auto reads = c.on(both(), "t", shared);
    ASSERT_EQ(reads->get(), outcome::granted);
    auto reader = new_client(blocks).here("t", shared);
    ASSERT_EQ(reader->get(), outcome::granted);
    auto writes = c.ask([](const session& s) {
      return s.lock("t", exclusive).on(both()).within(100ms);
    });
    EXPECT_EQ(writes->get(), outcome::timeout);
    for (const auto& x : both()) {
      EXPECT_TRUE(eventually([&] {
        return new_client(x).try_here("t", shared) == outcome::granted;
      })) << blocks
          << x;
      (*this)[x].clients.back()->kill();
    }
    reader->held.release();
    EXPECT_TRUE(eventually([&] {
      return holders("a", "t") == 1 && holders("b", "t") == 1;
    }));
    for (const auto& x : both())
      EXPECT_EQ(new_client(x).try_here("t"), outcome::busy);
    reads->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

// Tokens of exclusive grants whose node sets overlap grow strictly, whoever asks
// and whichever nodes; restarts included.
TEST_F(explicit_nodes, that_overlap_see_growing_tokens_over_restarts) {
  configure_and_start({"a", "b", "c"});
  std::map<std::string, fencing_token> last;
  std::set<fencing_token> seen;
  std::mt19937 random{7};
  const std::vector<std::string> names{"a", "b", "c"};
  for (int i = 0; i < 240; ++i) {
    if (i % 60 == 59) {
      auto who = names[random() % 3];
      crash(who);
      start(who);
      ASSERT_TRUE(all_joined());
    }
    std::vector<std::string> on;
    while (on.empty())
      for (const auto& x : names)
        if (random() % 2 == 0)
          on.push_back(x);
    auto& c = new_client(names[random() % 3]);
    auto held = random() % 4 == 0 ? c.everywhere("t") : c.on(on, "t");
    ASSERT_EQ(held->get(), outcome::granted) << i << to_string(held->why);
    auto token = held->held.token();
    EXPECT_TRUE(seen.insert(token).second) << "issued twice";
    for (const auto& x : names) {
      if (holders(x, "t") == 0)
        continue;
      EXPECT_GT(token, last[x]) << i << x;
      last[x] = token;
    }
    c.kill();
    ASSERT_TRUE(becomes_free("t"));
  }
}

TEST_F(explicit_nodes, are_busy_or_late_like_any_other_and_keep_nothing) {
  configure_and_start({"a", "b", "c"});
  for (std::string blocks : {"b", "c"}) {
    auto blocker = new_client(blocks).here("t");
    ASSERT_EQ(blocker->get(), outcome::granted);
    auto& c = new_client("a");
    auto busy = c.ask([](const session& s) {
      return s.lock("t", exclusive).on({"b", "c"}).no_wait();
    });
    EXPECT_EQ(busy->get(), outcome::busy);
    auto late = c.ask([](const session& s) {
      return s.lock("t", exclusive).on({"b", "c"}).within(30ms);
    });
    EXPECT_EQ(late->get(), outcome::timeout);
    blocker->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

// Case 11 in small: node sets that overlap without being the same, from nodes
// inside and outside of them, without deadlines: they cross only where the lead
// is another one, and then wait in line.
TEST_F(explicit_nodes, that_are_asked_from_everywhere_take_turns) {
  configure_and_start({"a", "b", "c"});
  std::atomic<int> holders{0};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (std::string x : {"a", "b", "c"})
    threads.emplace_back([&, x] {
      auto s = tags(x).attach();
      for (int i = 0; i < 200; ++i) {
        auto held = s.lock("t", exclusive).on(both()).within(20s).wait();
        if (!held || holders.fetch_add(1) != 0) {
          ++faults;
          continue;
        }
        --holders;
      }
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(faults, 0);
}

} // namespace
} // namespace pawl::testing
