// Locks on every node: granting, waiting, ending, and what becomes of them when
// a node goes. The numbers are those of the cases in which others failed.

#include "pawl/test/net/cluster_fixture.hpp"

#include <random>

namespace pawl::testing {
namespace {

using every_node_lock = cluster_test;

/// Notes who is inside; complains about two.
struct inside {
  std::atomic<int> exclusive_holders{0};
  std::atomic<int> shared_holders{0};
  std::atomic<int> faults{0};

  void enter(lock_mode mode) {
    auto wrong = false;
    if (mode == lock_mode::exclusive)
      wrong = exclusive_holders.fetch_add(1) != 0 || shared_holders != 0;
    else
      wrong = (++shared_holders, exclusive_holders != 0);
    if (wrong)
      ++faults;
  }

  void leave(lock_mode mode) {
    if (mode == lock_mode::exclusive)
      --exclusive_holders;
    else
      --shared_holders;
  }
};

/// Runs on, without a yield: a busy machine would make a long sleep of it.
void busy_for(std::chrono::microseconds x) {
  auto end = std::chrono::steady_clock::now() + x;
  while (std::chrono::steady_clock::now() < end) {
    // nop
  }
}

TEST_F(every_node_lock, is_seen_on_every_node_and_excludes_everybody_there) {
  configure_and_start({"a", "b", "c"});
  auto held = new_client("a").everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  for (std::string x : {"a", "b", "c"}) {
    auto there = tags(x).holders("t");
    ASSERT_EQ(there.size(), 1u);
    EXPECT_EQ(there[0].home, "a");
    EXPECT_EQ(there[0].mode, exclusive);
    EXPECT_EQ(there[0].token, held->held.token());
    EXPECT_EQ(new_client(x).try_here("t", shared), outcome::busy);
  }
  EXPECT_TRUE(held->held.still_held());
  EXPECT_EQ(held->held.release(), release_result::released);
  EXPECT_EQ(held->held.release(), release_result::already_released);
  EXPECT_TRUE(becomes_free("t"));
}

// Cases 17, 35.
TEST_F(every_node_lock,
       goes_round_between_rivals_on_all_nodes_with_growing_tokens) {
  configure_and_start({"a", "b", "c"});
  constexpr int rounds = 300;
  inside critical;
  fencing_token last = 0;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (std::string x : {"a", "b", "c", "a"})
    threads.emplace_back([&, x] {
      auto s = tags(x).attach();
      for (int i = 0; i < rounds; ++i) {
        auto held = s.lock("t", exclusive).on(every_node).within(20s).wait();
        if (!held) {
          ++failed;
          continue;
        }
        critical.enter(exclusive);
        if (held->token() <= last)
          ++critical.faults;
        last = held->token();
        critical.leave(exclusive);
      }
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(critical.faults, 0);
  EXPECT_TRUE(becomes_free("t"));
}

TEST_F(every_node_lock, is_shared_by_readers_of_all_nodes_and_local_ones) {
  configure_and_start({"a", "b"});
  auto far = new_client("a").everywhere("t", shared);
  auto near = new_client("b").here("t", shared);
  ASSERT_EQ(far->get(), outcome::granted);
  ASSERT_EQ(near->get(), outcome::granted);
  auto writer = new_client("b").everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  // No new reader while a writer waits, wherever it asks.
  far->held.release();
  EXPECT_TRUE(writer->pending());
  near->held.release();
  ASSERT_EQ(writer->get(), outcome::granted);
  EXPECT_GT(writer->held.token(), near->held.token());
}

// Cases 1, 13.
TEST_F(every_node_lock, passes_over_waiters_that_have_gone) {
  configure_and_start({"a", "b", "c"});
  auto holder = new_client("a").everywhere("t");
  ASSERT_EQ(holder->get(), outcome::granted);
  cancel_source stop;
  auto cancelled = new_client("b").ask([&](const session& s) {
    return s.lock("t", exclusive).on(every_node).cancel_with(stop.token());
  });
  ASSERT_TRUE(somebody_waits("t", 1));
  auto& dies = new_client("c");
  auto dead = dies.everywhere("t");
  ASSERT_TRUE(somebody_waits("t", 2));
  auto next = new_client("b").everywhere("t");
  ASSERT_TRUE(somebody_waits("t", 3));
  stop.cancel();
  EXPECT_EQ(cancelled->get(), outcome::cancelled);
  dies.kill();
  holder->held.release();
  ASSERT_EQ(next->get(), outcome::granted);
  next->held.release();
  EXPECT_TRUE(becomes_free("t"));
  EXPECT_TRUE(dead->pending());
}

// Case 19.
TEST_F(every_node_lock, passes_over_the_waiters_of_a_dead_node_at_once) {
  configure_and_start({"a", "b", "c"});
  auto holder = new_client("a").everywhere("t");
  ASSERT_EQ(holder->get(), outcome::granted);
  std::vector<attempt_ptr> dead;
  for (int i = 0; i < 20; ++i)
    dead.push_back(new_client("b").everywhere("t"));
  ASSERT_TRUE(somebody_waits("t", 20));
  auto next = new_client("c").everywhere("t");
  ASSERT_TRUE(somebody_waits("t", 21));
  crash("b");
  holder->held.release();
  EXPECT_EQ(next->get(5s), outcome::granted);
}

// Case 14: all orders of grant, cancel and release, from three threads.
TEST_F(every_node_lock, is_free_after_any_order_of_grant_cancel_and_release) {
  configure_and_start({"a", "b"});
  auto& first = new_client("a");
  auto& second = new_client("b");
  std::mt19937 random{1};
  int granted = 0;
  for (int i = 0; i < 400; ++i) {
    auto holder = first.everywhere("t");
    ASSERT_EQ(holder->get(), outcome::granted) << i;
    cancel_source stop;
    auto x = second.ask([&](const session& s) {
      return s.lock("t", exclusive).on(every_node).cancel_with(stop.token());
    });
    std::chrono::microseconds early{random() % 500};
    std::chrono::microseconds late{random() % 500};
    std::thread canceller{[&] {
      busy_for(early);
      stop.cancel();
    }};
    busy_for(late);
    holder->held.release();
    canceller.join();
    if (x->get() == outcome::granted) {
      ++granted;
      x->held.release();
    } else {
      EXPECT_EQ(x->get(), outcome::cancelled);
    }
  }
  EXPECT_TRUE(becomes_free("t"));
  RecordProperty("granted", granted);
}

// An abandon races its request and its grant, from another thread, on a free
// term. Case 13.
TEST_F(every_node_lock, that_is_cancelled_while_it_is_asked_leaves_nothing) {
  configure_and_start({"a", "b", "c"});
  std::vector<std::thread> threads;
  std::atomic<int> odd{0};
  for (std::string x : {"a", "b", "c"})
    threads.emplace_back([&, x] {
      auto s = tags(x).attach();
      std::mt19937 random{static_cast<unsigned>(x[0])};
      for (int i = 0; i < 700; ++i) {
        cancel_source stop;
        std::thread canceller{[&, late = random() % 500] {
          busy_for(std::chrono::microseconds{late});
          stop.cancel();
        }};
        auto held = s.lock("t", exclusive)
                      .on(every_node)
                      .cancel_with(stop.token())
                      .within(20s)
                      .wait();
        if (!held && held.error().why != outcome::cancelled)
          ++odd;
        canceller.join();
      }
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(odd, 0);
  EXPECT_TRUE(becomes_free("t"));
  EXPECT_EQ(new_client("b").everywhere("t")->get(), outcome::granted);
}

// Case 18: a waiter outlasts the node-timeout many times over.
TEST_F(every_node_lock, is_waited_for_as_long_as_it_takes) {
  configure_and_start({"a", "b"}, 300ms);
  auto holder = new_client("a").everywhere("t");
  ASSERT_EQ(holder->get(), outcome::granted);
  auto waits = new_client("b").everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  EXPECT_EQ(waits->get(1500ms), outcome::pending);
  EXPECT_TRUE(holder->held.still_held());
  holder->held.release();
  EXPECT_EQ(waits->get(), outcome::granted);
}

// Cases 15, 36, 38: whatever a request fails of, it leaves nothing, on any
// node.
TEST_F(every_node_lock, that_fails_leaves_nothing_behind) {
  configure_and_start({"a", "b", "c"});
  for (std::string blocks : {"a", "b", "c"}) {
    auto holder = new_client(blocks).here("t", shared);
    ASSERT_EQ(holder->get(), outcome::granted);
    for (std::string x : {"a", "b", "c"}) {
      auto& c = new_client(x);
      auto busy = c.ask([](const session& s) {
        return s.lock("t", exclusive).on(every_node).no_wait();
      });
      EXPECT_EQ(busy->get(), outcome::busy);
      EXPECT_FALSE(busy->held);
      EXPECT_EQ(busy->held.release(), release_result::already_released);
      auto late = c.ask([](const session& s) {
        return s.lock("t", exclusive).on(every_node).within(20ms);
      });
      EXPECT_EQ(late->get(), outcome::timeout);
      auto large = c.everywhere(std::string(70'000, 'x'));
      EXPECT_EQ(large->get(), outcome::term_too_large);
      // The readers' row is as it was.
      EXPECT_EQ(c.ask([](const session& s) {
                   return s.lock("t", shared).on(every_node).within(20s);
                 })
                  ->get(),
                outcome::granted);
      c.kill();
    }
    holder->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

TEST_F(every_node_lock, shrinks_when_a_node_dies_and_says_so) {
  configure_and_start({"a", "b", "c"});
  auto& c = new_client("a");
  auto held = c.everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  crash("c");
  EXPECT_TRUE(c.hears("node_left c"));
  auto told = c.events();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].term, make_term("t"));
  EXPECT_EQ(told[0].token, held->held.token());
  EXPECT_TRUE(held->held.still_held());
  EXPECT_EQ(new_client("b").try_here("t", shared), outcome::busy);
  EXPECT_EQ(held->held.release(), release_result::released);
  EXPECT_TRUE(becomes_free("t"));
}

// Cases 1, 16: a request that waits at the dead node, or for a hold of it.
TEST_F(every_node_lock, goes_on_without_a_node_that_dies) {
  configure_and_start({"a", "b", "c"});
  for (const auto& dies : order()) {
    auto there = new_client(dies).here("t");
    ASSERT_EQ(there->get(), outcome::granted);
    std::string asks = dies == "a" ? "b" : "a";
    auto waits = new_client(asks).everywhere("t");
    ASSERT_TRUE(somebody_waits("t"));
    crash(dies);
    EXPECT_EQ(waits->get(), outcome::granted) << dies;
    waits->held.release();
    EXPECT_TRUE(becomes_free("t"));
    start(dies);
    ASSERT_TRUE(all_joined());
  }
}

TEST_F(every_node_lock, of_a_dead_node_is_free_on_the_others) {
  configure_and_start({"a", "b", "c"});
  auto held = new_client("c").everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto waits = new_client("b").everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  auto old = held->held.token();
  crash("c");
  ASSERT_EQ(waits->get(), outcome::granted);
  EXPECT_GT(waits->held.token(), old);
  // The handle has outlived its node, which is harmless.
  EXPECT_FALSE(held->held.still_held());
  EXPECT_NE(held->held.release(), release_result::released);
}

// Case 37.
TEST_F(every_node_lock, of_an_actor_that_ends_is_free_though_handles_exist) {
  configure_and_start({"a", "b"});
  auto& c = new_client("a");
  auto held = c.everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  c.kill();
  EXPECT_TRUE(becomes_free("t"));
  EXPECT_FALSE(held->held.still_held());
  EXPECT_EQ(held->held.release(), release_result::already_released);
}

// Cases 39, 40: the session is the holder, and each grant is a handle.
TEST_F(every_node_lock, that_is_held_already_gives_another_handle) {
  configure_and_start({"a", "b"});
  auto& c = new_client("a");
  auto one = c.everywhere("t");
  ASSERT_EQ(one->get(), outcome::granted);
  auto two = c.everywhere("t", shared);
  ASSERT_EQ(two->get(), outcome::granted);
  auto three = c.here("t");
  ASSERT_EQ(three->get(), outcome::granted);
  EXPECT_EQ(one->held.token(), three->held.token());
  one->held.release();
  three->held.release();
  EXPECT_EQ(new_client("b").try_here("t", shared), outcome::busy);
  EXPECT_EQ(new_client("a").try_here("t", shared), outcome::busy);
  two->held.release();
  EXPECT_TRUE(becomes_free("t"));
}

TEST_F(every_node_lock, widens_a_hold_of_this_node) {
  configure_and_start({"a", "b", "c"});
  for (std::string x : {"a", "b", "c"}) {
    auto& c = new_client(x);
    auto narrow = c.here("t");
    ASSERT_EQ(narrow->get(), outcome::granted);
    auto wide = c.everywhere("t");
    ASSERT_EQ(wide->get(), outcome::granted) << x;
    EXPECT_GE(wide->held.token(), narrow->held.token());
    narrow->held.release();
    for (std::string y : {"a", "b", "c"})
      EXPECT_EQ(new_client(y).try_here("t", shared), outcome::busy) << x << y;
    wide->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

// Case 31.
TEST_F(every_node_lock, is_upgraded_alone_without_a_deadlock_with_itself) {
  configure_and_start({"a", "b", "c"});
  for (std::string x : {"a", "b", "c"}) {
    auto& c = new_client(x);
    auto reads = c.everywhere("t", shared);
    ASSERT_EQ(reads->get(), outcome::granted);
    auto writes = c.everywhere("t");
    ASSERT_EQ(writes->get(), outcome::granted);
    EXPECT_GT(writes->held.token(), reads->held.token());
    // It stays exclusive until its last handle goes.
    writes->held.release();
    EXPECT_EQ(new_client("b").try_here("t", shared), outcome::busy);
    reads->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

TEST_F(every_node_lock,
       keeps_its_shared_hold_when_a_half_done_upgrade_is_given_up) {
  configure_and_start({"a", "b"});
  // The reader is in the way at one node only, the last one asked and then the
  // first one.
  for (const auto& blocks : order()) {
    auto& c = new_client("a");
    auto reads = c.everywhere("t", shared);
    ASSERT_EQ(reads->get(), outcome::granted);
    auto reader = new_client(blocks).here("t", shared);
    ASSERT_EQ(reader->get(), outcome::granted);
    cancel_source stop;
    auto writes = c.ask([&](const session& s) {
      return s.lock("t", exclusive).on(every_node).cancel_with(stop.token());
    });
    ASSERT_TRUE(somebody_waits("t"));
    stop.cancel();
    EXPECT_EQ(writes->get(), outcome::cancelled);
    // Shared again everywhere: a reader gets in, a writer does not.
    for (std::string x : {"a", "b"}) {
      auto another = new_client(x).here("t", shared);
      EXPECT_EQ(another->get(), outcome::granted) << blocks << x;
      another->held.release();
      EXPECT_EQ(new_client(x).try_here("t"), outcome::busy);
    }
    reader->held.release();
    for (std::string x : {"a", "b"})
      EXPECT_EQ(new_client(x).try_here("t"), outcome::busy);
    EXPECT_TRUE(reads->held.still_held());
    EXPECT_EQ(reads->held.mode(), shared);
    reads->held.release();
    EXPECT_TRUE(becomes_free("t"));
  }
}

// Cases 32, 33.
TEST_F(every_node_lock,
       of_two_upgraders_of_one_node_the_younger_is_told_deadlock) {
  configure_and_start({"a", "b"});
  // Both live on the node at which they meet first: the search needs no message.
  auto home = order().front();
  auto& older = new_client(home);
  auto& younger = new_client(home);
  auto first = older.everywhere("t", shared);
  ASSERT_EQ(first->get(), outcome::granted);
  auto second = younger.everywhere("t", shared);
  ASSERT_EQ(second->get(), outcome::granted);
  auto up = older.everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  auto victim = younger.everywhere("t");
  EXPECT_EQ(victim->get(), outcome::deadlock);
  ASSERT_EQ(victim->why.cycle.size(), 2u);
  EXPECT_EQ(victim->why.cycle[0].node, home);
  EXPECT_NE(victim->why.cycle[0].session, victim->why.cycle[1].session);
  EXPECT_EQ(tags(home).deadlocks().back().cycle, victim->why.cycle);
  // It keeps what it holds.
  EXPECT_TRUE(second->held.still_held());
  EXPECT_TRUE(up->pending());
  second->held.release();
  EXPECT_EQ(up->get(), outcome::granted);
}

TEST_F(every_node_lock, that_is_downgraded_lets_readers_in_on_all_nodes) {
  configure_and_start({"a", "b", "c"});
  auto held = new_client("a").everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  std::vector<attempt_ptr> readers;
  for (std::string x : {"a", "b", "c"})
    readers.push_back(new_client(x).here("t", shared));
  readers.push_back(new_client("c").everywhere("t", shared));
  ASSERT_TRUE(somebody_waits("t", 4));
  auto token = held->held.token();
  EXPECT_TRUE(held->held.downgrade());
  for (auto& x : readers) {
    EXPECT_EQ(x->get(), outcome::granted);
    EXPECT_GE(x->held.token(), token);
  }
  EXPECT_EQ(held->held.mode(), shared);
  EXPECT_EQ(held->held.token(), token);
}

TEST_F(every_node_lock, is_shared_for_all_handles_when_one_is_downgraded) {
  configure_and_start({"a", "b"});
  auto& client = new_client("a");
  auto first = client.everywhere("t");
  auto second = client.everywhere("t");
  auto reads = client.everywhere("t", shared);
  auto here = client.here("t");
  auto all = {first, second, reads, here};
  for (auto& x : all)
    ASSERT_EQ(x->get(), outcome::granted);
  auto other = new_client("b").here("t", shared);
  ASSERT_TRUE(somebody_waits("t"));
  EXPECT_TRUE(second->held.downgrade());
  EXPECT_EQ(second->held.mode(), shared) << "at once";
  EXPECT_EQ(other->get(), outcome::granted);
  for (auto& x : all)
    EXPECT_TRUE(eventually([&] { return x->held.mode() == shared; }));
}

TEST_F(every_node_lock, is_shared_when_its_lock_for_one_node_is_downgraded) {
  configure_and_start({"a", "b"});
  auto& client = new_client("a");
  auto wide = client.everywhere("t");
  auto here = client.here("t");
  for (auto& x : {wide, here})
    ASSERT_EQ(x->get(), outcome::granted);
  EXPECT_TRUE(here->held.downgrade());
  EXPECT_TRUE(eventually([&] { return wide->held.mode() == shared; }));
  EXPECT_EQ(new_client("b").everywhere("t", shared)->get(), outcome::granted);
}

// Case 35: many terms in one request never deadlock with each other.
TEST_F(every_node_lock, of_many_terms_is_all_or_nothing_and_never_crosses) {
  configure_and_start({"a", "b", "c"});
  inside critical[6];
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (std::string x : {"a", "b", "c"})
    threads.emplace_back([&, x] {
      auto s = tags(x).attach();
      std::mt19937 random{static_cast<unsigned>(x[0])};
      for (int i = 0; i < 200; ++i) {
        std::set<int> chosen;
        while (chosen.size() < 3)
          chosen.insert(static_cast<int>(random() % 6));
        std::vector<term> what;
        for (auto k : chosen)
          what.push_back(make_term(k));
        std::shuffle(what.begin(), what.end(), random);
        auto mode = random() % 2 == 0 ? exclusive : shared;
        auto held = s.lock_all(what, mode).on(every_node).within(20s).wait();
        if (!held) {
          ++failed;
          continue;
        }
        for (auto k : chosen)
          critical[k].enter(mode);
        for (auto k : chosen)
          critical[k].leave(mode);
      }
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(failed, 0);
  for (auto& x : critical)
    EXPECT_EQ(x.faults, 0);
}

TEST_F(every_node_lock, of_a_node_by_itself_is_a_lock_of_that_node) {
  configure_and_start({"a"});
  auto held = new_client("a").everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  EXPECT_TRUE(held->held.still_held());
  EXPECT_EQ(new_client("a").try_here("t"), outcome::busy);
}

} // namespace
} // namespace pawl::testing
