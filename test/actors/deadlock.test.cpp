// Deadlocks on one node: found, one of each is told, the youngest, and never one
// that was in none.

#include "pawl/test/actors/fixture.hpp"
#include "pawl/test/support/memory.hpp"
#include "pawl/test/support/sanitized.hpp"

#include <fmt/format.h>

#include <mutex>

namespace pawl::testing {
namespace {

/// An ask of a puppet's own session: the puppet keeps the lock.
struct asked {
  std::atomic<outcome> how{outcome::pending};
  failure why; // once it has failed

  outcome get(std::chrono::milliseconds limit = 20s) {
    eventually([this] { return how.load() != outcome::pending; }, limit);
    return how;
  }
};

using asked_ptr = std::shared_ptr<asked>;

class deadlock : public actors_test {
protected:
  /// A new actor with one session.
  caf::actor party() {
    auto result = make_puppet();
    tell_puppet(result, [where = *tags_](puppet* self) {
      self->own.emplace(where.attach(self));
    });
    return result;
  }

  asked_ptr lock(const caf::actor& who, const std::string& what,
                 lock_mode mode = exclusive,
                 std::chrono::nanoseconds within = 0ns,
                 cancel_token cancel = {}) {
    auto out = std::make_shared<asked>();
    tell_puppet(who, [=](puppet* self) {
      auto r = self->own->lock(what, mode).cancel_with(cancel);
      if (within != 0ns)
        r = std::move(r).within(within);
      std::move(r).then(
        [self, out](pawl::lock held) {
          self->held.push_back(std::move(held));
          out->how = outcome::granted;
        },
        [out](const failure& why) {
          out->why = why;
          out->how = why.why;
        });
    });
    return out;
  }

  /// The one of the two that has been told; the statistics know it earlier.
  asked_ptr loser(const asked_ptr& a, const asked_ptr& b) {
    auto lost = [](const asked_ptr& x) { return x->how == outcome::deadlock; };
    EXPECT_TRUE(eventually([&] { return lost(a) || lost(b); }));
    EXPECT_EQ(told(), 1u);
    return lost(a) ? a : b;
  }

  void give_up_all(const caf::actor& who) {
    tell_puppet(who, [](puppet* self) { self->held.clear(); });
  }

  void end(const caf::actor& who) {
    compat::anon_send_exit(who, caf::exit_reason::kill);
  }

  std::uint64_t told() {
    return tags_->statistics().ended(outcome::deadlock);
  }

  /// All walks that have begun are over: nothing was told, and nothing will be.
  bool walks_are_over(std::uint64_t at_least) {
    return eventually(
      [&] { return tags_->statistics().walks >= at_least; });
  }
};

std::string name(std::size_t i) {
  return fmt::format("t{}", i);
}

TEST_F(deadlock, of_a_ring_tells_exactly_the_youngest_and_the_others_finish) {
  for (std::size_t n : {2u, 3u, 8u, 64u}) {
    auto before = told();
    std::vector<caf::actor> all;
    for (std::size_t i = 0; i < n; ++i) {
      all.push_back(party());
      // One after another, so that they have an order; all of one node's
      // sessions may be of one age, and then their ids tell.
      ASSERT_EQ(lock(all[i], name(i))->get(), outcome::granted);
    }
    std::vector<asked_ptr> asks;
    for (std::size_t i = 0; i < n; ++i)
      asks.push_back(lock(all[i], name((i + 1) % n)));
    ASSERT_TRUE(eventually([&] { return told() == before + 1; })) << n;
    auto victim = n;
    for (std::size_t i = 0; i < n; ++i)
      if (asks[i]->how == outcome::deadlock)
        victim = i;
    ASSERT_TRUE(eventually([&] {
      for (std::size_t i = 0; i < n; ++i)
        if (asks[i]->how == outcome::deadlock)
          victim = i;
      return victim < n;
    }));
    const auto& cycle = asks[victim]->why.cycle;
    ASSERT_EQ(cycle.size(), n);
    auto youngest = *std::max_element(
      cycle.begin(), cycle.end(),
      [](const auto& a, const auto& b) { return a.session < b.session; });
    EXPECT_EQ(tags_->deadlocks().back().victim, youngest.session);
    EXPECT_EQ(youngest.term, to_string(term{name((victim + 1) % n)}));
    EXPECT_EQ(youngest.node, tags_->node());
    EXPECT_EQ(youngest.mode, exclusive);
    EXPECT_NE(to_string(asks[victim]->why).find("waits for"),
              std::string::npos);
    // The victim decides: it gives up what it has, and the others get on, one
    // after another as each has what it wants.
    give_up_all(all[victim]);
    for (std::size_t k = 1; k < n; ++k) {
      auto i = (victim + n - k) % n;
      EXPECT_EQ(asks[i]->get(), outcome::granted) << n << " " << i;
      give_up_all(all[i]);
    }
    EXPECT_EQ(told(), before + 1);
    for (const auto& x : all)
      end(x);
  }
}

TEST_F(deadlock, leaves_the_victim_what_it_holds) {
  auto a = party();
  auto b = party();
  ASSERT_EQ(lock(a, "x")->get(), outcome::granted);
  ASSERT_EQ(lock(b, "y")->get(), outcome::granted);
  auto first = lock(a, "y");
  ASSERT_TRUE(eventually([&] { return waiting_for("y") == 1; }));
  auto second = lock(b, "x");
  ASSERT_TRUE(eventually([&] { return told() == 1; }));
  // Who sees it counted can read it.
  EXPECT_EQ(tags_->deadlocks().size(), 1u);
  EXPECT_EQ(tags_->holders("x").size() + tags_->holders("y").size(), 2u);
  give_up_all(loser(first, second) == first ? a : b);
}

// Case 32; the two are upgraders.
TEST_F(deadlock, of_two_upgraders_tells_one_and_the_other_gets_it) {
  auto a = party();
  auto b = party();
  ASSERT_EQ(lock(a, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(b, "x", shared)->get(), outcome::granted);
  auto first = lock(a, "x");
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
  auto second = lock(b, "x");
  auto victim = loser(first, second);
  auto other = victim == first ? second : first;
  ASSERT_EQ(victim->why.cycle.size(), 2u);
  EXPECT_EQ(victim->why.cycle[0].term, "x");
  EXPECT_NE(victim->why.cycle[0].session, victim->why.cycle[1].session);
  EXPECT_EQ(tags_->deadlocks().back().cycle, victim->why.cycle);
  give_up_all(other == first ? b : a);
  EXPECT_EQ(other->get(), outcome::granted);
}

TEST_F(deadlock, between_an_upgrader_and_a_writer_is_found) {
  auto a = party();
  auto b = party();
  auto reader = party();
  ASSERT_EQ(lock(a, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(reader, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(reader, "y")->get(), outcome::granted);
  auto up = lock(a, "x"); // waits for the reader
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
  ASSERT_EQ(lock(a, "z")->get(), outcome::granted);
  auto closes = lock(reader, "z"); // waits for the upgrader
  give_up_all(loser(up, closes) == up ? a : reader);
}

TEST_F(deadlock, through_shared_holders_is_found) {
  auto a = party();
  auto b = party();
  auto c = party();
  ASSERT_EQ(lock(a, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(b, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(c, "y")->get(), outcome::granted);
  auto writer = lock(c, "x");
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
  auto closes = lock(b, "y");
  give_up_all(loser(writer, closes) == writer ? c : b);
  give_up_all(a);
}

// A reader waits behind a writer, which waits for another reader: nobody holds
// what it wants in a mode that conflicts.
TEST_F(deadlock, through_the_order_of_a_queue_is_found) {
  auto holder = party();
  auto writer = party();
  auto reader = party();
  ASSERT_EQ(lock(holder, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(reader, "y")->get(), outcome::granted);
  auto writes = lock(writer, "x");
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
  auto reads = lock(reader, "x", shared);
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 2; }));
  auto closes = lock(holder, "y");
  ASSERT_TRUE(eventually([&] { return told() == 1; }));
  EXPECT_EQ(writes->get(), outcome::deadlock); // holds nothing: the youngest
  EXPECT_EQ(reads->get(), outcome::granted);
  give_up_all(reader);
  EXPECT_EQ(closes->get(), outcome::granted);
}

// Two sessions with two requests each, and no holds at all.
TEST_F(deadlock, through_queues_only_is_found) {
  auto holder = party();
  auto a = party();
  auto b = party();
  ASSERT_EQ(lock(holder, "x")->get(), outcome::granted);
  ASSERT_EQ(lock(holder, "y")->get(), outcome::granted);
  std::vector<asked_ptr> asks;
  asks.push_back(lock(a, "x"));
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
  asks.push_back(lock(b, "y"));
  ASSERT_TRUE(eventually([&] { return waiting_for("y") == 1; }));
  asks.push_back(lock(b, "x"));
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 2; }));
  EXPECT_EQ(told(), 0u);
  asks.push_back(lock(a, "y"));
  ASSERT_TRUE(eventually([&] { return told() == 1; }));
  give_up_all(holder);
}

// The second ring closes with the same request.
TEST_F(deadlock, that_arises_when_a_request_of_its_own_is_cancelled_is_found) {
  // The first request of `b` for t would let its second one in, past `c`. When
  // it is gone `b` waits for `c`, who waits for `b`.
  auto a = party();
  auto b = party();
  auto c = party();
  cancel_source stop;
  ASSERT_EQ(lock(a, "t")->get(), outcome::granted);
  ASSERT_EQ(lock(b, "u")->get(), outcome::granted);
  auto first = lock(b, "t", exclusive, 0ns, stop.token());
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  auto ahead = lock(c, "t");
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 2; }));
  auto second = lock(b, "t");
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 3; }));
  auto walks = tags_->statistics().walks;
  auto closing = lock(c, "u");
  ASSERT_TRUE(walks_are_over(walks + 1));
  EXPECT_EQ(told(), 0u);
  stop.cancel();
  EXPECT_EQ(first->get(), outcome::cancelled);
  EXPECT_EQ(loser(ahead, closing), closing) << "who holds nothing is youngest";
  give_up_all(a);
  EXPECT_EQ(ahead->get(), outcome::granted);
  give_up_all(c);
  EXPECT_EQ(second->get(), outcome::granted);
}

TEST_F(deadlock, of_two_rings_that_share_a_session_is_resolved_for_both) {
  auto a = party();
  auto b = party();
  auto c = party();
  ASSERT_EQ(lock(b, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(c, "x", shared)->get(), outcome::granted);
  ASSERT_EQ(lock(a, "y")->get(), outcome::granted);
  auto from_b = lock(b, "y");
  ASSERT_TRUE(eventually([&] { return waiting_for("y") == 1; }));
  auto from_c = lock(c, "y");
  ASSERT_TRUE(eventually([&] { return waiting_for("y") == 2; }));
  auto closes = lock(a, "x");
  auto settled = [&] {
    return closes->how == outcome::deadlock
           || (from_b->how == outcome::deadlock
               && from_c->how == outcome::deadlock);
  };
  ASSERT_TRUE(eventually(settled));
  for (const auto& x : {a, b, c})
    give_up_all(x);
  EXPECT_NE(closes->get(), outcome::pending);
  give_up_all(a);
  EXPECT_NE(from_b->get(), outcome::pending);
  give_up_all(b);
  EXPECT_NE(from_c->get(), outcome::pending);
}

TEST_F(deadlock, is_not_told_if_the_cycle_was_broken_before) {
  for (auto how : {outcome::timeout, outcome::cancelled,
                   outcome::session_ended}) {
    auto a = party();
    auto b = party();
    ASSERT_EQ(lock(a, "x")->get(), outcome::granted);
    ASSERT_EQ(lock(b, "y")->get(), outcome::granted);
    cancel_source source;
    auto first = lock(a, "y", exclusive,
                      how == outcome::timeout ? 20ms : 0ns, source.token());
    ASSERT_TRUE(eventually(
      [&] { return waiting_for("y") == 1 || first->how != outcome::pending; }));
    if (how == outcome::cancelled)
      source.cancel();
    if (how == outcome::session_ended) {
      end(a);
      ASSERT_TRUE(eventually([&] { return waiting_for("y") == 0; }));
    } else {
      EXPECT_EQ(first->get(), how);
    }
    auto second = lock(b, "x");
    if (how != outcome::session_ended) {
      ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
      give_up_all(a);
    }
    EXPECT_EQ(second->get(), outcome::granted);
    EXPECT_EQ(told(), 0u) << to_string(how);
    end(b);
    ASSERT_TRUE(eventually([&] { return tags_->holders("x").empty(); }));
    ASSERT_TRUE(eventually([&] { return tags_->holders("y").empty(); }));
  }
}

TEST_F(deadlock, is_told_to_a_thread_that_waits) {
  auto other = party();
  ASSERT_EQ(lock(other, "x")->get(), outcome::granted);
  auto mine = tags_->attach();
  auto held = mine.lock("y", exclusive).wait();
  ASSERT_TRUE(held);
  auto waits = lock(other, "y");
  ASSERT_TRUE(eventually([&] { return waiting_for("y") == 1; }));
  // One of the two is told; if it is the other, that gives up what it has.
  std::thread helper{[&] {
    if (eventually([&] { return told() == 1; })
        && waits->get(5s) == outcome::deadlock)
      give_up_all(other);
  }};
  auto result = mine.lock("x", exclusive).wait();
  if (!result) {
    EXPECT_EQ(result.error().why, outcome::deadlock);
    EXPECT_EQ(result.error().cycle.size(), 2u);
    held->release();
  } else {
    EXPECT_EQ(waits->get(), outcome::deadlock);
  }
  helper.join();
  EXPECT_NE(waits->get(), outcome::pending);
}

// Cases 34: 10,000 waiters on one term, each of which holds another.
TEST_F(deadlock, search_does_not_grow_with_the_queue) {
  constexpr std::size_t count = 10'000;
  auto holder = tags_->attach();
  auto held = holder.lock("hot", exclusive).wait();
  ASSERT_TRUE(held);
  auto all = make_puppet();
  auto done = std::make_shared<std::atomic<std::size_t>>(0);
  auto before = memory();
  tell_puppet(all, [=, where = *tags_](puppet* self) {
    for (std::size_t i = 0; i < count; ++i) {
      auto s = where.activity(self);
      s.lock(name(i), exclusive).then([&](pawl::lock x) {
        self->held.push_back(std::move(x));
      });
      s.lock("hot", exclusive).then([done](const pawl::lock&) { ++*done; });
    }
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("hot") == count; }));
  ASSERT_TRUE(walks_are_over(count));
  auto seen = tags_->statistics();
  EXPECT_EQ(seen.walks, count);
  EXPECT_LE(seen.walk_visits, 3 * count);
  auto took = memory() - before;
  fmt::print("{} waiters: {} walks, {} visits, {} KiB\n", count, seen.walks,
             seen.walk_visits, took / 1024);
  // A session, two requests, two holds and a response each, and no graph.
  if (!sanitized) {
    EXPECT_LT(took, count * 8 * 1024);
  }
  EXPECT_EQ(told(), 0u);
  held->release();
  EXPECT_TRUE(eventually([&] { return *done == count; }));
}

TEST_F(deadlock, search_that_visits_too_much_ends_its_request) {
  scope_options options;
  options.probe_limit = 100;
  auto small = open_local_scope(*system_, "small", options);
  ASSERT_TRUE(small.wait_ready(20s));
  // A chain of sessions, each of which waits for the next: one visit for it and
  // one for its wait.
  constexpr std::size_t length = 80;
  auto chain = make_puppet();
  auto ended = std::make_shared<std::vector<std::pair<std::size_t, outcome>>>();
  auto last = std::make_shared<std::atomic<bool>>(false);
  tell_puppet(chain, [=](puppet* self) {
    // From its far end, so that only the last ones have much before them.
    auto end_of_it = small.activity(self);
    end_of_it.lock(name(length), exclusive).then([self](pawl::lock x) {
      self->held.push_back(std::move(x));
    });
    for (auto i = length; i-- > 0;) {
      auto s = small.activity(self);
      s.lock(name(i), exclusive).then([self](pawl::lock x) {
        self->held.push_back(std::move(x));
      });
      s.lock(name(i + 1), exclusive)
        .then([](const pawl::lock&) {},
              [=](const failure& why) {
                ended->emplace_back(i, why.why);
                *last = true;
              });
    }
  });
  ASSERT_TRUE(eventually([&] { return last->load(); }));
  auto done = std::make_shared<std::atomic<bool>>(false);
  tell_puppet(chain, [=](puppet* self) {
    ASSERT_FALSE(ended->empty());
    // The first that had too much before it; its end shortens those behind it.
    EXPECT_EQ(ended->front().second, outcome::probe_limit);
    EXPECT_LT(ended->front().first, length - 40);
    self->held.clear();
    *done = true;
  });
  EXPECT_TRUE(eventually([&] { return done->load(); }));
  EXPECT_EQ(small.statistics().ended(outcome::deadlock), 0u);
  small.close();
}

TEST_F(deadlock, costs_nothing_where_nothing_is_held) {
  auto a = party();
  auto b = party();
  ASSERT_EQ(lock(a, "x")->get(), outcome::granted);
  auto waits = lock(b, "x");
  ASSERT_TRUE(eventually([&] { return waiting_for("x") == 1; }));
  give_up_all(a);
  EXPECT_EQ(waits->get(), outcome::granted);
  EXPECT_EQ(tags_->statistics().walks, 0u);
}

} // namespace
} // namespace pawl::testing
