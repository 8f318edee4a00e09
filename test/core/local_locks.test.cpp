#include "pawl/core/local_locks.hpp"

#include "lock_fixture.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <random>

using namespace pawl;
using namespace pawl::test;

namespace {

const term t{"t"};

/// Three sessions, in the order of their age once they hold something.
struct three : lock_world {
  session_ptr a = session();
  session_ptr b = session();
  session_ptr c = session();

  void release(hold_record*& r) {
    EXPECT_EQ(locks.release(*std::exchange(r, nullptr)),
              release_result::released);
    check();
  }

  void release(const waiter_ptr& w) {
    ASSERT_EQ(w->state(), outcome::granted);
    EXPECT_EQ(locks.release(*w->take_hold()), release_result::released);
    check();
  }
};

} // namespace

// -- granting -----------------------------------------------------------------

TEST(local_locks, a_free_term_is_taken_and_released_without_a_queue) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(x.row(t), "X 1");
  EXPECT_EQ(x.take(x.b, t, shared), nullptr);
  x.release(r);
  EXPECT_EQ(x.row(t), "-");
  EXPECT_EQ(x.port.managers(), 0u);
}

TEST(local_locks, tickets_are_granted_in_order_and_shared_ones_together) {
  three x;
  auto d = x.session();
  auto* r = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, shared);
  auto c = x.ask(x.c, t, shared);
  auto w = x.ask(d, t, exclusive);
  auto late = x.ask(x.a, term{"u"}, shared);
  EXPECT_EQ(x.row(t), "X 1 | 2S 3S 4X");
  x.release(r);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 2 3 | 4X");
  x.release(b);
  x.release(c);
  x.pump_all();
  EXPECT_EQ(x.row(t), "X 4");
  x.release(w);
  x.release(late);
  x.expect_idle();
}

TEST(local_locks, a_shared_request_behind_a_waiter_waits) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto b = x.ask(x.b, t, exclusive);
  EXPECT_EQ(x.take(x.c, t, shared), nullptr);
  auto c = x.ask(x.c, t, shared);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 | 2X 3S");
  EXPECT_TRUE(x.locks.end(*b, outcome::timeout));
  EXPECT_EQ(b->settlements(), 1);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 3") << "those that it alone kept waiting";
  x.release(r);
  x.release(c);
  x.expect_idle();
}

TEST(local_locks, a_hot_shared_term_is_fast_again_when_its_writer_has_passed) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto b = x.ask(x.b, t, exclusive);
  auto c = x.ask(x.c, t, shared);
  x.release(r);
  x.pump_all();
  x.release(b);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 3");
  auto* again = x.take(x.a, t, shared);
  ASSERT_NE(again, nullptr);
  x.release(again);
  x.release(c);
  x.expect_idle();
}

TEST(local_locks, looks_that_are_early_late_or_doubled_do_no_harm) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, exclusive);
  for (int i = 0; i < 3; ++i)
    x.port.stray(0);
  x.pump_all();
  x.release(r);
  x.pump_all();
  x.port.stray(0);
  x.pump_all();
  auto c = x.ask(x.c, t, exclusive);
  EXPECT_EQ(x.port.managers(), 1u) << "an idle manager is used again";
  x.release(b);
  x.pump_all();
  x.release(c);
  x.expect_idle();
}

// -- re-entrance and upgrade --------------------------------------------------

TEST(local_locks, a_session_enters_again_past_those_who_wait) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto b = x.ask(x.b, t, exclusive);
  auto again = x.ask(x.a, t, shared);
  EXPECT_EQ(again->state(), outcome::granted);
  EXPECT_EQ(again->hold->token, r->token);
  x.release(r);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 | 2X");
  x.release(again);
  x.pump_all();
  x.release(b);
  x.expect_idle();
}

TEST(local_locks, a_sole_holder_with_two_handles_upgrades_at_once) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto* s = x.take(x.a, t, shared);
  auto b = x.ask(x.b, t, exclusive);
  auto up = x.ask(x.a, t, exclusive);
  EXPECT_EQ(up->state(), outcome::granted);
  EXPECT_GT(up->hold->token, r->token);
  EXPECT_EQ(x.row(t), "X 1 1 1 | 2X");
  x.release(r);
  x.release(up);
  EXPECT_EQ(x.row(t), "X 1 | 2X") << "exclusive until the last handle goes";
  x.release(s);
  x.pump_all();
  x.release(b);
  x.expect_idle();
}

TEST(local_locks, an_upgrade_goes_ahead_of_the_queue) {
  three x;
  auto* a = x.take(x.a, t, shared);
  auto* b = x.take(x.b, t, shared);
  auto c = x.ask(x.c, t, exclusive);
  auto up = x.ask(x.a, t, exclusive);
  EXPECT_EQ(x.row(t), "S 1 2 | 1X! 3X");
  x.release(b);
  x.pump_all();
  EXPECT_EQ(up->state(), outcome::granted);
  x.release(a);
  x.release(up);
  x.pump_all();
  x.release(c);
  x.expect_idle();
}

TEST(local_locks, of_two_upgraders_the_younger_loses_at_once) {
  three x;
  auto* a = x.take(x.a, t, shared);
  auto* b = x.take(x.b, t, shared);
  auto young = x.ask(x.b, t, exclusive);
  auto old = x.ask(x.a, t, exclusive);
  EXPECT_EQ(young->state(), outcome::deadlock);
  EXPECT_EQ(young->settlements(), 1);
  auto again = x.ask(x.b, t, exclusive);
  EXPECT_EQ(again->state(), outcome::deadlock);
  EXPECT_EQ(x.row(t), "S 1 2 | 1X!") << "the loser keeps what it holds";
  x.release(b);
  x.pump_all();
  EXPECT_EQ(old->state(), outcome::granted);
  x.release(old);
  x.release(a);
  x.expect_idle();
}

TEST(local_locks, all_upgrades_of_the_younger_session_lose) {
  three x;
  auto* a = x.take(x.a, t, shared);
  auto* b = x.take(x.b, t, shared);
  auto first = x.ask(x.b, t, exclusive);
  auto second = x.ask(x.b, t, exclusive);
  auto old = x.ask(x.a, t, exclusive);
  EXPECT_EQ(first->state(), outcome::deadlock);
  EXPECT_EQ(second->state(), outcome::deadlock);
  EXPECT_EQ(x.row(t), "S 1 2 | 1X!");
  x.release(b);
  x.pump_all();
  x.release(old);
  x.release(a);
  x.expect_idle();
}

TEST(local_locks, an_upgrade_that_has_ended_is_in_nobodys_way) {
  three x;
  auto* a = x.take(x.a, t, shared);
  auto* b = x.take(x.b, t, shared);
  auto old = x.ask(x.a, t, exclusive);
  // Its deadline has passed; it is about to be taken out of the queue.
  ASSERT_TRUE(old->judge(outcome::timeout));
  auto young = x.ask(x.b, t, exclusive);
  EXPECT_EQ(young->state(), outcome::pending);
  x.a->leave_wait(*old);
  EXPECT_NE(x.locks.table().abandon(*old).look, 0u);
  x.port.stray(0);
  x.release(a);
  x.pump_all();
  EXPECT_EQ(young->state(), outcome::granted);
  x.release(young);
  x.release(b);
  x.expect_idle();
}

TEST(local_locks, upgrades_by_parts_of_requests_are_left_to_the_search_for_cycles) {
  // Whether anybody still waits for a part only its home can say, also if that
  // is this node.
  for (auto home : {0, 5})
    for (auto part_first : {false, true}) {
      three x;
      auto far = x.session(static_cast<node_slot>(home));
      auto* a = x.take(x.a, t, shared);
      auto* b = x.take(far, t, shared);
      waiter_ptr up;
      waiter_ptr part;
      for (auto it_is_its_turn : {part_first, !part_first}) {
        if (it_is_its_turn)
          part = x.ask(far, t, exclusive, hold_record::kind::part);
        else
          up = x.ask(x.a, t, exclusive);
      }
      EXPECT_EQ(x.row(t), part_first ? "S 1 4 | 4X! 1X!" : "S 1 4 | 1X! 4X!");
      EXPECT_TRUE(x.locks.end(*part, outcome::deadlock));
      x.release(b);
      x.pump_all();
      x.release(up);
      x.release(a);
      x.expect_idle();
    }
}

TEST(local_locks, an_upgrade_without_waiting_past_those_who_wait_says_so) {
  three x;
  auto* a = x.take(x.a, t, shared);
  auto* b = x.take(x.b, t, shared);
  auto writer = x.ask(x.c, t, exclusive);
  x.release(b);
  hold_record* r = nullptr;
  auto overtook = false;
  ASSERT_EQ(x.locks.try_lock_covered(*x.a, t, shared, r, &overtook),
            outcome::granted);
  EXPECT_FALSE(overtook) << "who waits waits for it anyway";
  x.release(r);
  ASSERT_EQ(x.locks.try_lock_covered(*x.a, t, exclusive, r, &overtook),
            outcome::granted);
  EXPECT_TRUE(overtook);
  x.release(r);
  x.release(a);
  x.pump_all();
  x.release(writer);
  x.expect_idle();
}

TEST(local_locks,
     requests_of_a_session_are_granted_together_in_whatever_order_they_hang) {
  // The first is listed, but hangs after the second, with a stranger between.
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto first = lock_world::waiter(x.b, t, shared);
  ASSERT_TRUE(x.locks.enlist(*first));
  auto second = x.ask(x.b, t, exclusive);
  auto stranger = x.ask(x.c, t, exclusive);
  x.locks.hang(*first);
  EXPECT_EQ(x.row(t), "X 1 | 2X 3X 2S");
  x.release(r);
  x.pump_all();
  EXPECT_EQ(second->state(), outcome::granted);
  EXPECT_EQ(first->state(), outcome::granted);
  x.release(second);
  x.release(first);
  x.pump_all();
  x.release(stranger);
  x.expect_idle();
}

TEST(
  local_locks,
  who_is_left_waiting_by_a_request_that_ends_as_it_is_granted_is_searched_for) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto first = x.ask(x.b, t, exclusive);
  auto stranger = x.ask(x.c, t, exclusive);
  auto second = x.ask(x.b, t, exclusive);
  // As local_locks::end, up to its last step.
  ASSERT_TRUE(first->judge(outcome::timeout));
  x.b->leave_wait(*first);
  x.release(r);
  x.pump_all();
  EXPECT_FALSE(x.locks.table().abandon(*first).left_behind) << "it is out";
  EXPECT_EQ(x.port.left, std::vector{x.b->id()});
  EXPECT_EQ(stranger->state(), outcome::granted);
  EXPECT_EQ(second->state(), outcome::pending);
  x.release(stranger);
  x.pump_all();
  x.release(second);
  x.expect_idle();
}

TEST(local_locks, a_request_for_several_nodes_is_no_company_for_its_own_part) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto whole = lock_world::waiter(x.b, t, exclusive, hold_record::kind::whole);
  ASSERT_TRUE(x.locks.enlist(*whole));
  auto part = x.ask(x.b, t, exclusive, hold_record::kind::part);
  EXPECT_FALSE(part->company);
  x.release(r);
  EXPECT_EQ(part->state(), outcome::granted)
    << "passed on, without its manager";
  x.release(part);
  EXPECT_TRUE(x.locks.end(*whole, outcome::cancelled));
  x.pump_all();
  x.expect_idle();
}

TEST(local_locks, a_downgrade_by_its_term_is_that_of_all_holds_of_the_session) {
  three x;
  auto* a = x.take(x.a, t, exclusive);
  auto* again = x.take(x.a, t, exclusive);
  auto reader = x.ask(x.b, t, shared);
  x.locks.downgrade(t, *x.c);
  x.locks.downgrade(term{"another"}, *x.a);
  EXPECT_EQ(x.row(t), "X 1 1 | 2S");
  x.locks.downgrade(t, *x.a);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 1 2");
  EXPECT_EQ(again->mode, shared);
  x.release(a);
  x.release(again);
  x.release(reader);
  x.expect_idle();
}

TEST(local_locks, an_upgrader_that_gives_its_hold_up_waits_behind_upgrades) {
  // Otherwise B, which would wait for nobody but A, were told `deadlock`.
  three x;
  auto* a = x.take(x.a, t, shared);
  auto* b = x.take(x.b, t, shared);
  auto* c = x.take(x.c, t, shared);
  auto first = x.ask(x.a, t, exclusive);
  x.release(a);
  EXPECT_EQ(x.row(t), "S 2 3 | 1X");
  auto up = x.ask(x.b, t, exclusive);
  EXPECT_EQ(first->state(), outcome::pending);
  EXPECT_EQ(x.row(t), "S 2 3 | 2X! 1X");
  x.release(c);
  x.pump_all();
  EXPECT_EQ(up->state(), outcome::granted);
  x.release(up);
  x.release(b);
  x.pump_all();
  x.release(first);
  x.expect_idle();
}

TEST(local_locks, a_waiter_whose_session_became_the_only_holder_is_woken) {
  // It hung before its session held anything, so it is no upgrade; the last
  // release of another session makes it grantable all the same.
  three x;
  auto* r = x.take(x.b, t, exclusive);
  auto s = x.ask(x.a, t, shared);
  auto other = x.ask(x.c, t, shared);
  auto w = x.ask(x.a, t, exclusive);
  x.release(r);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 3 | 1X");
  x.release(other);
  x.pump_all();
  EXPECT_EQ(w->state(), outcome::granted);
  x.release(w);
  x.release(s);
  x.expect_idle();
}

TEST(local_locks, a_grant_covers_what_else_its_session_waits_for) {
  three x;
  auto* r = x.take(x.b, t, exclusive);
  auto first = x.ask(x.a, t, exclusive);
  auto other = x.ask(x.c, t, exclusive);
  auto second = x.ask(x.a, t, shared);
  x.release(r);
  x.pump_all();
  EXPECT_EQ(first->state(), outcome::granted);
  EXPECT_EQ(second->state(), outcome::granted);
  EXPECT_EQ(second->hold->token, first->hold->token);
  EXPECT_EQ(x.row(t), "X 1 1 | 3X");
  x.release(first);
  x.release(second);
  x.pump_all();
  x.release(other);
  x.expect_idle();
}

TEST(local_locks, an_upgrade_at_once_covers_what_its_session_waits_for) {
  three x;
  auto* r = x.take(x.b, t, exclusive);
  auto s = x.ask(x.a, t, shared);
  auto other = x.ask(x.c, t, exclusive);
  auto behind = x.ask(x.a, t, exclusive);
  x.release(r);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 | 3X 1X");
  auto up = x.ask(x.a, t, exclusive);
  EXPECT_EQ(up->state(), outcome::granted);
  x.pump_all();
  EXPECT_EQ(behind->state(), outcome::granted)
    << "else it waits for C, and C for A";
  for (auto* w : {&s, &up, &behind})
    x.release(*w);
  x.pump_all();
  x.release(other);
  x.expect_idle();
}

TEST(local_locks, a_request_knows_of_a_grant_that_is_not_in_the_ledger_yet) {
  // The manager has put A's first request into the row, and is about to settle
  // it, when the second comes.
  three x;
  auto* r = x.take(x.b, t, exclusive);
  auto first = x.ask(x.a, t, shared);
  auto other = x.ask(x.c, t, exclusive);
  wait_queue* q = first->queue;
  x.release(r);
  auto batch = x.locks.table().grant(*q, 64);
  ASSERT_EQ(batch.granted, first.get());
  auto second = x.ask(x.a, t, shared);
  EXPECT_EQ(second->state(), outcome::granted) << "else it waits behind C";
  auto won = false;
  EXPECT_EQ(x.a->settle(*first, won), outcome::granted);
  first->unref();
  x.release(first);
  x.release(second);
  x.pump_all();
  x.release(other);
  x.expect_idle();
}

// -- downgrade, give back -----------------------------------------------------

TEST(local_locks, a_downgrade_lets_in_the_readers_at_the_head_only) {
  three x;
  auto d = x.session();
  auto* r = x.take(x.a, t, exclusive);
  auto token = r->token.load();
  auto b = x.ask(x.b, t, shared);
  auto c = x.ask(x.c, t, exclusive);
  auto e = x.ask(d, t, shared);
  EXPECT_TRUE(x.locks.downgrade(*r));
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 2 | 3X 4S");
  EXPECT_EQ(r->token, token);
  EXPECT_EQ(b->hold->token, token) << "the current value, unraised";
  x.release(r);
  x.release(b);
  x.pump_all();
  x.release(c);
  x.pump_all();
  x.release(e);
  x.expect_idle();
}

TEST(local_locks, a_handle_that_was_shared_downgrades_what_an_upgrade_left) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto* up = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, shared);
  x.release(up);
  x.pump_all();
  EXPECT_EQ(x.row(t), "X 1 | 2S");
  EXPECT_TRUE(x.locks.downgrade(*r));
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 2");
  x.release(b);
  x.release(r);
  x.expect_idle();
}

TEST(local_locks, an_upgrade_that_nobody_saw_falls_back_to_shared) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto up = x.ask(x.a, t, exclusive);
  auto b = x.ask(x.b, t, shared);
  x.pump_all();
  EXPECT_EQ(x.row(t), "X 1 1 | 2S");
  x.locks.give_back(*up->take_hold());
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 1 2");
  x.release(r);
  x.release(b);
  x.expect_idle();
}

TEST(local_locks, what_is_given_back_does_not_take_an_older_upgrade_along) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto* up = x.take(x.a, t, exclusive);
  x.release(up);
  auto again = x.ask(x.a, t, exclusive);
  x.locks.give_back(*again->take_hold());
  x.check();
  EXPECT_EQ(x.row(t), "X 1") << "exclusive until the last handle goes";
  x.release(r);
  x.expect_idle();
}

TEST(local_locks, entering_again_never_goes_back_to_an_older_token) {
  three x;
  auto* r = x.take(x.a, t, shared);
  auto* up = x.take(x.a, t, exclusive);
  auto token = up->token.load();
  x.release(up);
  auto* again = x.take(x.a, t, exclusive);
  EXPECT_EQ(again->token, token) << "resources have seen it";
  x.release(again);
  EXPECT_TRUE(x.locks.downgrade(*r));
  auto* reader = x.take(x.b, t, shared);
  EXPECT_EQ(reader->token, token);
  x.release(r);
  x.release(reader);
  x.expect_idle();
}

// -- ends ---------------------------------------------------------------------

TEST(local_locks, a_request_that_ended_before_it_was_made_leaves_nothing) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto w = lock_world::waiter(x.b, t, exclusive);
  EXPECT_TRUE(x.locks.end(*w, outcome::cancelled));
  x.locks.lock(*w);
  EXPECT_EQ(w->settlements(), 1);
  EXPECT_EQ(x.b->waits(), 0u);
  EXPECT_EQ(x.row(t), "X 1");
  x.release(r);
  x.expect_idle();
}

TEST(local_locks, a_session_that_has_ended_gets_nothing) {
  three x;
  x.locks.close(*x.a, outcome::session_ended);
  hold_record* r = nullptr;
  EXPECT_EQ(x.locks.try_lock(*x.a, t, shared, r), outcome::session_ended);
  EXPECT_EQ(x.locks.try_lock_covered(*x.a, t, shared, r),
            outcome::session_ended);
  auto w = x.ask(x.a, t, shared);
  EXPECT_EQ(w->state(), outcome::session_ended);
  EXPECT_EQ(w->settlements(), 1);
  EXPECT_EQ(x.row(t), "-");
  x.expect_idle();
}

TEST(local_locks, the_end_of_a_session_releases_and_abandons) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto* s = x.take(x.b, term{"u"}, exclusive);
  auto b = x.ask(x.b, t, exclusive);
  auto c = x.ask(x.c, t, exclusive);
  x.locks.close(*x.b, outcome::session_ended);
  EXPECT_EQ(b->state(), outcome::session_ended);
  EXPECT_EQ(x.row(t), "X 1 | 3X");
  EXPECT_EQ(x.row(term{"u"}), "-");
  x.locks.close(*x.a, outcome::session_ended);
  x.pump_all();
  EXPECT_EQ(x.row(t), "X 3");
  // The handles are still there; their release finds nothing to do, and never
  // touches a later grant.
  EXPECT_EQ(x.locks.release(*r), release_result::already_released);
  EXPECT_EQ(x.locks.release(*s), release_result::already_released);
  EXPECT_EQ(x.row(t), "X 3");
  x.release(c);
  x.expect_idle();
}

TEST(local_locks, a_grant_to_a_session_that_has_just_ended_is_given_back) {
  three x;
  for (auto mode : {exclusive, shared}) {
    auto b = x.session();
    auto* r = x.take(x.a, t, exclusive);
    auto asks = x.ask(b, t, mode);
    auto c = x.ask(x.c, t, exclusive);
    // The death closes the ledger, then the row is passed on to the waiter, or
    // its manager grants it, then the death comes to it.
    auto had = b->close();
    ASSERT_EQ(had.waits, asks.get());
    x.release(r);
    x.pump_all();
    EXPECT_EQ(asks->state(), outcome::session_ended);
    EXPECT_EQ(asks->settlements(), 1);
    asks->unref(); // the ledger's
    EXPECT_EQ(c->state(), outcome::granted);
    x.release(c);
    x.pump_all();
  }
  x.expect_idle();
}

TEST(local_locks, a_row_that_becomes_free_is_passed_on_without_its_manager) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, exclusive);
  auto c = x.ask(x.c, t, exclusive);
  auto d = x.session();
  auto reader = x.ask(d, t, shared);
  x.pump_all();
  x.release(r);
  EXPECT_EQ(b->state(), outcome::granted);
  EXPECT_EQ(x.row(t), "X 2 | 3X 4S");
  EXPECT_EQ(x.port.pending(), 0u) << "nobody is told to look";
  x.release(b);
  EXPECT_EQ(c->state(), outcome::granted);
  // A crowd may come behind a reader: that is for the manager.
  x.release(c);
  EXPECT_EQ(reader->state(), outcome::pending);
  x.pump_all();
  EXPECT_EQ(reader->state(), outcome::granted);
  x.release(reader);
  x.expect_idle();
}

TEST(local_locks, a_queue_that_has_become_empty_keeps_nobody_out) {
  // Its manager has not come yet.
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, exclusive);
  x.pump_all();
  x.release(r);
  EXPECT_EQ(b->state(), outcome::granted) << "passed on";
  x.release(b);
  ASSERT_EQ(x.row(t), "- |");
  r = x.take(x.c, t, shared);
  ASSERT_NE(r, nullptr) << "inside the call";
  hold_record* second = nullptr;
  EXPECT_EQ(x.locks.try_lock_covered(*x.a, t, shared, second),
            outcome::granted);
  x.release(second);
  // Who has to wait now waits in the same queue, and its manager stays.
  auto writer = x.ask(x.a, t, exclusive);
  EXPECT_EQ(x.row(t), "S 3 | 1X");
  EXPECT_EQ(x.take(x.b, t, shared), nullptr) << "somebody waits";
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 3 | 1X");
  x.release(r);
  EXPECT_EQ(writer->state(), outcome::granted);
  x.release(writer);
  auto w = lock_world::waiter(x.b, t, exclusive);
  w->no_wait = true;
  x.locks.lock(*w);
  EXPECT_EQ(w->state(), outcome::granted);
  x.release(w);
  x.expect_idle();
}

TEST(local_locks, who_is_left_waiting_by_a_request_of_its_own_is_searched_for) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto first = x.ask(x.b, t, exclusive);
  auto other = x.ask(x.c, t, exclusive);
  auto second = x.ask(x.b, t, shared);
  auto third = x.ask(x.b, t, exclusive);
  x.locks.end(*third, outcome::cancelled);
  EXPECT_TRUE(x.port.left.empty()) << "nobody waits behind it";
  x.locks.end(*other, outcome::cancelled);
  EXPECT_TRUE(x.port.left.empty()) << "of another session";
  x.locks.end(*first, outcome::cancelled);
  ASSERT_EQ(x.port.left.size(), 1u);
  EXPECT_EQ(x.port.left[0], x.b->id());
  x.release(r);
  x.pump_all();
  EXPECT_EQ(second->state(), outcome::granted);
  x.release(second);
  x.expect_idle();
}

TEST(local_locks, a_row_goes_to_all_that_a_session_waits_for_there_by_its_manager) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, exclusive);
  auto again = x.ask(x.b, t, shared);
  x.release(r);
  EXPECT_EQ(b->state(), outcome::pending);
  x.pump_all();
  EXPECT_EQ(b->state(), outcome::granted);
  EXPECT_EQ(again->state(), outcome::granted);
  x.release(b);
  x.release(again);
  x.expect_idle();
}

TEST(local_locks, a_row_is_passed_on_past_thousands_who_have_ended) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  std::vector<session_ptr> dead;
  std::vector<session_ledger::contents> had;
  for (int i = 0; i < 10'000; ++i) {
    dead.push_back(x.session());
    x.ask(dead.back(), t, exclusive);
  }
  auto c = x.ask(x.c, t, exclusive);
  for (auto& s : dead)
    had.push_back(s->close());
  x.release(r); // as a loop: as a recursion it would need a large stack
  EXPECT_EQ(c->state(), outcome::granted);
  for (auto& y : had)
    y.waits->unref(); // the ledger's
  x.release(c);
  x.expect_idle();
}

TEST(local_locks, more_waiters_than_allowed_are_refused) {
  lock_table_options few;
  few.max_waiters = 1;
  lock_world x{few};
  auto a = x.session();
  auto b = x.session();
  auto* r = x.take(a, t, exclusive);
  auto first = x.ask(b, t, exclusive);
  auto second = x.ask(b, t, exclusive);
  EXPECT_EQ(second->state(), outcome::too_many_waiters);
  EXPECT_EQ(b->waits(), 1u);
  EXPECT_TRUE(x.locks.end(*first, outcome::timeout));
  auto third = x.ask(b, t, exclusive);
  EXPECT_EQ(third->state(), outcome::pending) << "the count went down";
  EXPECT_TRUE(x.locks.end(*third, outcome::timeout));
  EXPECT_EQ(x.locks.release(*r), release_result::released);
  x.expect_idle();
}

TEST(local_locks, without_waiting_it_is_granted_or_busy) {
  three x;
  auto* a = x.take(x.a, t, shared);
  auto b = x.ask(x.b, t, exclusive);
  hold_record* r = nullptr;
  EXPECT_EQ(x.locks.try_lock_covered(*x.c, t, shared, r), outcome::busy);
  EXPECT_EQ(x.locks.try_lock_covered(*x.a, t, shared, r), outcome::granted);
  x.release(r);
  EXPECT_EQ(x.locks.try_lock_covered(*x.a, t, exclusive, r), outcome::granted);
  x.release(r);
  auto w = lock_world::waiter(x.c, t, shared);
  w->no_wait = true;
  x.locks.lock(*w);
  EXPECT_EQ(w->state(), outcome::busy);
  x.release(a);
  x.pump_all();
  x.release(b);
  x.expect_idle();
}

// -- revoked, whole -----------------------------------------------------------

TEST(local_locks, a_hold_that_was_revoked_is_lost_and_tells_its_session) {
  three x;
  auto* r = x.take(x.a, t, exclusive);
  auto b = x.ask(x.b, t, shared);
  local_locks::pin(*r);
  EXPECT_TRUE(x.locks.revoke(*r));
  EXPECT_EQ(x.a->revocations, 1);
  EXPECT_EQ(x.a->holds(), 0u);
  x.pump_all();
  EXPECT_EQ(x.row(t), "S 2");
  EXPECT_EQ(x.locks.release(*r), release_result::lost);
  auto* again = x.take(x.a, t, shared);
  EXPECT_NE(again, nullptr) << "the same session can lock it again";
  x.release(again);
  x.release(b);
  x.expect_idle();
}

TEST(local_locks, a_whole_is_released_once_by_its_handle_or_its_session) {
  struct owner final : hold_owner {};
  three x;
  owner one;
  owner two;
  auto make = [&](hold_owner& of) {
    auto* r = hold_record::make();
    r->session = x.a.get();
    r->what = hold_record::kind::whole;
    r->mode = exclusive;
    r->owner = &of;
    EXPECT_TRUE(x.a->enter(*r));
    return r;
  };
  auto* r = make(one);
  auto* s = make(two);
  EXPECT_EQ(x.locks.release(*r), release_result::released);
  EXPECT_EQ(x.port.wholes, (std::vector<hold_owner*>{&one}));
  x.locks.close(*x.a, outcome::session_ended);
  EXPECT_EQ(x.port.wholes, (std::vector<hold_owner*>{&one, &two}));
  EXPECT_EQ(x.locks.release(*s), release_result::already_released);
  EXPECT_EQ(x.port.wholes.size(), 2u);
}

// -- against a naive twin -----------------------------------------------------

namespace {

/// What a scope should do, written down as plainly as possible.
struct twin {
  struct hold {
    int session;
    int handle;
    lock_mode mode;
  };

  struct wait {
    int session;
    int ask;
    lock_mode mode;
    bool upgrade;
  };

  struct row {
    lock_mode mode = lock_mode::none;
    std::vector<hold> holds;
    std::vector<wait> waits;
    bool contended = false;
    /// An exclusive handle was released before others of its session.
    bool kept = false;
    fencing_token last_exclusive = 0;
    fencing_token of_hold = 0;
  };

  static bool has(const row& x, int session) {
    return std::any_of(x.holds.begin(), x.holds.end(),
                       [&](const hold& h) { return h.session == session; });
  }

  static bool only(const row& x, int session) {
    return std::all_of(x.holds.begin(), x.holds.end(),
                       [&](const hold& h) { return h.session == session; });
  }

  /// Whether the holders leave room.
  static bool fits(const row& x, int session, lock_mode mode) {
    return only(x, session) || (x.mode == shared && mode == shared);
  }

  /// Whether it goes past the queue.
  static bool passes(const row& x, int session, lock_mode mode) {
    if (x.waits.empty())
      return fits(x, session, mode);
    return has(x, session)
           && (covers(x.mode, mode) || fits(x, session, mode));
  }
};

class play {
public:
  explicit play(unsigned seed) : random_(seed) {
    for (int i = 0; i < sessions; ++i)
      sessions_.push_back(world_.session());
    auto pair = colliding_terms()[0];
    terms_ = {term{""}, term{std::string(200, 'x')}, pair.first, pair.second};
    rows_.resize(terms_.size());
  }

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFatalFailure();
         ++step) {
      world_.clock.tick();
      auto what = random_() % 100;
      if (what < 22)
        try_lock();
      else if (what < 50)
        ask();
      else if (what < 66)
        release();
      else if (what < 70)
        give_back();
      else if (what < 75)
        downgrade();
      else if (what < 83)
        end();
      else if (what < 85)
        close();
      else if (what < 87)
        world_.port.stray(random_());
      else
        pump();
      compare();
    }
    // What is left goes, in any order.
    while (!::testing::Test::HasFatalFailure()
           && (!handles_.empty() || !asks_.empty()
               || world_.port.pending() > 0)) {
      random_() % 2 == 0 ? release() : end();
      pump();
    }
    compare();
    world_.expect_idle();
    EXPECT_GT(counted_, 0);
  }

private:
  static constexpr int sessions = 5;

  struct handle {
    hold_record* record;
    int session;
    std::size_t where;
    bool released; // with its session
  };

  struct asked {
    waiter_ptr w;
    int session;
    std::size_t where;
    outcome expected = outcome::pending;
  };

  lock_mode some_mode() {
    return random_() % 2 == 0 ? shared : exclusive;
  }

  twin::row& pick(std::size_t& where) {
    where = random_() % terms_.size();
    world_.port.tag = static_cast<int>(where);
    return rows_[where];
  }

  /// The grant of `mode` to `session`, on both sides.
  void granted(std::size_t where, int session, lock_mode mode,
               hold_record* record) {
    auto& x = rows_[where];
    auto token = record->token.load();
    if (mode == exclusive && x.mode != exclusive) {
      ASSERT_GT(token, x.last_exclusive);
      x.last_exclusive = token;
    } else if (x.mode == exclusive) {
      ASSERT_EQ(token, x.last_exclusive) << "covered: the same token";
    } else {
      ASSERT_GE(token, x.last_exclusive);
      ASSERT_TRUE(x.holds.empty() || token == x.of_hold);
    }
    x.of_hold = token;
    x.mode = stronger(x.mode, mode);
    x.holds.push_back({session, next_, mode});
    handles_.emplace(next_++, handle{record, session, where, false});
    ++counted_;
  }

  void try_lock() {
    std::size_t where = 0;
    auto& x = pick(where);
    auto who = static_cast<int>(random_() % sessions);
    auto mode = some_mode();
    hold_record* r = nullptr;
    auto covered = random_() % 2 == 0;
    auto& s = *sessions_[static_cast<std::size_t>(who)];
    auto found = covered
                   ? world_.locks.try_lock_covered(s, terms_[where], mode, r)
                   : world_.locks.try_lock(s, terms_[where], mode, r);
    // The fast one leaves what has to go past a queue to the slow one.
    auto expected = covered ? twin::passes(x, who, mode)
                    : !x.waits.empty()
                      ? x.mode == exclusive && twin::has(x, who)
                      : twin::fits(x, who, mode);
    ASSERT_EQ(found == outcome::granted, expected);
    if (expected)
      granted(where, who, mode, r);
  }

  void ask() {
    std::size_t where = 0;
    auto& x = pick(where);
    auto who = static_cast<int>(random_() % sessions);
    auto mode = some_mode();
    auto id = next_++;
    auto& mine = asks_[id];
    mine.session = who;
    mine.where = where;
    auto passes = twin::passes(x, who, mode);
    auto upgrade = !passes && twin::has(x, who);
    auto expected = passes ? outcome::granted : outcome::pending;
    if (upgrade) {
      auto age = [&](int s) {
        return sessions_[static_cast<std::size_t>(s)]->age();
      };
      for (const auto& w : x.waits)
        if (w.upgrade && w.session != who && age(w.session) < age(who))
          expected = outcome::deadlock;
      if (expected == outcome::pending)
        std::erase_if(x.waits, [&](const twin::wait& w) {
          if (!w.upgrade || w.session == who)
            return false;
          asks_.at(w.ask).expected = outcome::deadlock;
          return true;
        });
    }
    mine.w = lock_world::waiter(sessions_[static_cast<std::size_t>(who)],
                                terms_[where], mode);
    auto& w = *mine.w;
    mine.expected = expected;
    if (expected == outcome::pending) {
      auto at = x.waits.end();
      if (upgrade)
        at = std::find_if(x.waits.begin(), x.waits.end(),
                          [](const twin::wait& y) { return !y.upgrade; });
      x.waits.insert(at, {who, id, mode, upgrade});
      x.contended = true;
    }
    world_.locks.lock(w);
    ASSERT_EQ(w.state(), expected);
    settle_ends();
    if (expected == outcome::granted)
      grant_of(id);
  }

  /// The waiter was granted on both sides: its hold becomes a handle.
  void grant_of(int id) {
    auto at = asks_.find(id);
    auto mine = std::move(at->second);
    asks_.erase(at);
    ASSERT_EQ(mine.w->state(), outcome::granted);
    ASSERT_EQ(mine.w->settlements(), 1);
    granted(mine.where, mine.session, mine.w->mode(), mine.w->take_hold());
  }

  /// Requests that the twin has ended.
  void settle_ends() {
    for (auto at = asks_.begin(); at != asks_.end();) {
      auto expected = at->second.expected;
      if (expected == outcome::pending || expected == outcome::granted) {
        ++at;
        continue;
      }
      ASSERT_EQ(at->second.w->state(), expected);
      ASSERT_EQ(at->second.w->settlements(), 1);
      at = asks_.erase(at);
    }
  }

  void take_hold_out(std::size_t where, int id, bool unseen) {
    auto& x = rows_[where];
    auto at = std::find_if(x.holds.begin(), x.holds.end(),
                           [&](const twin::hold& h) { return h.handle == id; });
    auto gone = *at;
    x.holds.erase(at);
    x.kept |= gone.mode == exclusive && !unseen;
    x.kept &= !x.holds.empty();
    x.mode = x.kept ? exclusive : lock_mode::none;
    for (const auto& h : x.holds)
      x.mode = stronger(x.mode, h.mode);
    if (twin::has(x, gone.session))
      return;
    std::stable_partition(x.waits.begin(), x.waits.end(),
                          [&](const twin::wait& w) {
                            return w.upgrade && w.session != gone.session;
                          });
    for (auto& w : x.waits)
      if (w.session == gone.session)
        w.upgrade = false;
    // Demoted ones stay ahead of those that never were upgrades: as they were
    // the rest of the prefix, the partition has left them there.
  }

  std::map<int, handle>::iterator some_handle() {
    return std::next(handles_.begin(), static_cast<std::ptrdiff_t>(
                                         random_() % handles_.size()));
  }

  void release() {
    if (handles_.empty())
      return;
    auto at = some_handle();
    auto [id, mine] = *at;
    handles_.erase(at);
    auto result = world_.locks.release(*mine.record);
    if (mine.released) {
      ASSERT_EQ(result, release_result::already_released);
      return;
    }
    ASSERT_EQ(result, release_result::released);
    take_hold_out(mine.where, id, false);
    pass_on(mine.where);
  }

  void give_back() {
    if (handles_.empty())
      return;
    auto at = some_handle();
    auto [id, mine] = *at;
    handles_.erase(at);
    world_.locks.give_back(*mine.record);
    if (mine.released)
      return;
    take_hold_out(mine.where, id, true);
    pass_on(mine.where);
  }

  /// A release that frees a row gives it to an exclusive head, unless a session
  /// waits there more than once.
  void pass_on(std::size_t where) {
    auto& x = rows_[where];
    if (x.mode != lock_mode::none || x.waits.empty()
        || x.waits.front().mode != exclusive
        || std::any_of(x.waits.begin(), x.waits.end(), [&](const auto& w) {
             return asks_.at(w.ask).w->company;
           }))
      return;
    auto next = x.waits.front().ask;
    x.waits.erase(x.waits.begin());
    grant_of(next);
  }

  void downgrade() {
    if (handles_.empty())
      return;
    auto& [id, mine] = *some_handle();
    ASSERT_EQ(world_.locks.downgrade(*mine.record), !mine.released);
    auto& x = rows_[mine.where];
    if (mine.released || x.mode != exclusive)
      return;
    x.mode = shared;
    x.kept = false;
    for (auto& h : x.holds)
      h.mode = shared;
  }

  void end() {
    if (asks_.empty())
      return;
    auto at = std::next(asks_.begin(), static_cast<std::ptrdiff_t>(
                                         random_() % asks_.size()));
    ASSERT_TRUE(world_.locks.end(*at->second.w, outcome::timeout));
    take_wait_out(at->first);
    at->second.expected = outcome::timeout;
    settle_ends();
  }

  void take_wait_out(int id) {
    for (auto& x : rows_)
      std::erase_if(x.waits,
                    [&](const twin::wait& w) { return w.ask == id; });
  }

  void close() {
    auto who = static_cast<int>(random_() % sessions);
    auto& s = sessions_[static_cast<std::size_t>(who)];
    world_.locks.close(*s, outcome::session_ended);
    for (auto& [id, mine] : asks_)
      if (mine.session == who) {
        take_wait_out(id);
        mine.expected = outcome::session_ended;
      }
    settle_ends();
    for (auto& [id, mine] : handles_)
      if (mine.session == who && !mine.released) {
        take_hold_out(mine.where, id, false);
        mine.released = true;
        pass_on(mine.where);
      }
    s = world_.session();
    // A new session in the old one's place, with another name.
    for (auto& [id, mine] : handles_)
      if (mine.session == who)
        mine.session = -1;
  }

  void pump() {
    auto pending = world_.port.pending();
    if (pending == 0)
      return;
    auto index = random_() % pending;
    auto limit = 1 + static_cast<std::uint32_t>(random_() % 3);
    auto where = world_.port.tag_of_look(index);
    std::vector<int> won;
    if (where >= 0)
      won = look(rows_[static_cast<std::size_t>(where)], limit);
    ASSERT_TRUE(world_.port.pump(world_.locks, index, limit));
    for (auto id : won) {
      grant_of(id);
      if (::testing::Test::HasFatalFailure())
        return;
    }
  }

  /// What a manager does when it looks. The holds themselves are entered by
  /// `granted`, so a copy stands for the row meanwhile.
  std::vector<int> look(twin::row& x, std::uint32_t limit) {
    std::vector<int> won;
    auto copy = x;
    auto let_in = [&](std::size_t i) {
      auto w = copy.waits[i];
      copy.waits.erase(copy.waits.begin() + static_cast<std::ptrdiff_t>(i));
      copy.mode = stronger(copy.mode, w.mode);
      copy.holds.push_back({w.session, -1, w.mode});
      won.push_back(w.ask);
      return w.session;
    };
    auto covered = [&](int session) {
      for (std::size_t i = 0; i < copy.waits.size();)
        if (copy.waits[i].session == session
            && covers(copy.mode, copy.waits[i].mode))
          let_in(i);
        else
          ++i;
    };
    if (copy.mode == exclusive)
      covered(copy.holds.front().session);
    for (std::uint32_t i = 0; !copy.waits.empty(); ++i) {
      const auto& w = copy.waits.front();
      // A crowd of shared requests is let in at once.
      if ((i >= limit && w.mode == exclusive)
          || !twin::fits(copy, w.session, w.mode))
        break;
      covered(let_in(0));
    }
    x.waits = copy.waits;
    x.contended = !x.waits.empty();
    return won;
  }

  void compare() {
    world_.check();
    for (const auto& s : sessions_)
      s->check_invariants();
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const auto& x = rows_[i];
      auto view = world_.locks.table().view(terms_[i]);
      ASSERT_EQ(view.mode, x.mode);
      ASSERT_EQ(view.holders, x.holds.size());
      ASSERT_EQ(view.waiters, x.waits.size());
      ASSERT_EQ(view.contended, x.contended);
      std::size_t place = 0;
      auto same = true;
      world_.locks.table().for_each_waiter(terms_[i], [&](waiter& w) {
        const auto& y = x.waits[place++];
        same &= asks_.at(y.ask).w.get() == &w && y.upgrade == w.upgrade;
      });
      ASSERT_TRUE(same) << "tickets are in order";
      // I4: nobody can be granted that no look is under way for.
      if (world_.port.pending() == 0 && x.contended) {
        ASSERT_FALSE(x.waits.empty());
        ASSERT_FALSE(
          twin::fits(x, x.waits.front().session, x.waits.front().mode));
      }
    }
    for (const auto& [id, mine] : asks_)
      ASSERT_EQ(mine.w->state(), outcome::pending);
  }

  std::mt19937 random_;
  lock_world world_;
  std::vector<session_ptr> sessions_;
  std::vector<term> terms_;
  std::vector<twin::row> rows_;
  std::map<int, handle> handles_;
  std::map<int, asked> asks_;
  int next_ = 1;
  int counted_ = 0;
};

} // namespace

TEST(local_locks, does_what_its_naive_twin_does) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    {
      play game{seed};
      game.run(1000);
    }
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_EQ(test_waiter::live, 0);
    ASSERT_EQ(test_session::live, 0);
  }
}
