#include "pawl/core/lock_table.hpp"

#include "lock_fixture.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

using namespace pawl;
using namespace pawl::test;

namespace {

constexpr std::size_t base_buckets = 1024;

void trim(lock_table& table) {
  while (table.trim(1 << 20) > 0) {
    // again
  }
}

struct table_world : lock_world {
  using lock_world::lock_world;

  lock_table& table() {
    return locks.table();
  }

  void release(hold_record* r) {
    EXPECT_EQ(locks.release(*r), release_result::released);
  }

  session_ptr a = session();
  session_ptr b = session();
};

} // namespace

// -- rows ---------------------------------------------------------------------

TEST(lock_table, a_row_exists_while_somebody_holds_its_term) {
  table_world x;
  // Around what lies in a row, in a term, and beyond; canonical bytes have a
  // tag before the text.
  for (std::size_t size : {0, 1, 25, 26, 27, 30, 31, 32, 33, 100, 60000}) {
    term what{std::string(size, 'x')};
    auto* r = x.take(x.a, what, exclusive);
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(x.take(x.b, what, shared), nullptr);
    EXPECT_EQ(x.table().rows(), 1u);
    x.check();
    x.release(r);
    EXPECT_EQ(x.table().rows(), 0u);
  }
}

TEST(lock_table, a_term_without_any_bytes_is_a_term) {
  table_world x;
  auto nothing = term::from_canonical({});
  auto* r = x.take(x.a, nothing, exclusive);
  ASSERT_NE(r, nullptr);
  EXPECT_EQ(x.take(x.b, nothing, shared), nullptr);
  auto* other = x.take(x.b, term{""}, shared);
  ASSERT_NE(other, nullptr);
  x.check();
  x.release(r);
  x.release(other);
  x.expect_idle();
}

TEST(lock_table, terms_of_the_same_hash_do_not_meet) {
  for (const auto& [one, other] : colliding_terms()) {
    ASSERT_EQ(lock_table::low(one.hash()), lock_table::low(other.hash()));
    table_world x;
    auto* r = x.take(x.a, one, shared);
    auto* s = x.take(x.a, one, shared);
    auto* y = x.take(x.b, other, exclusive);
    ASSERT_NE(y, nullptr);
    auto w = x.ask(x.b, one, exclusive);
    auto v = x.ask(x.a, other, exclusive);
    EXPECT_EQ(w->state(), outcome::pending);
    EXPECT_EQ(v->state(), outcome::pending);
    EXPECT_EQ(x.row(one), "S 1 1 | 2X");
    EXPECT_EQ(x.row(other), "X 2 | 1X") << "its hint was the other's hash";
    x.check();
    x.release(r);
    x.release(y);
    x.release(s);
    x.pump_all();
    EXPECT_EQ(x.row(one), "X 2");
    EXPECT_EQ(x.row(other), "X 1");
    x.release(w->take_hold());
    x.release(v->take_hold());
    x.expect_idle();
  }
}

// -- tokens -------------------------------------------------------------------

TEST(lock_table, tokens_of_exclusive_grants_grow_and_name_their_node) {
  lock_table_options options;
  options.slot = static_cast<node_slot>(9);
  options.floor = 1000 << fencing::slot_bits;
  table_world x{options};
  fencing_token last = options.floor;
  for (int i = 0; i < 100; ++i) {
    auto* r = x.take(x.a, term{"t"}, exclusive);
    EXPECT_GT(r->token, last);
    EXPECT_EQ(fencing::issuer(r->token), options.slot);
    last = r->token;
    x.release(r);
    auto* s = x.take(x.b, term{"t"}, shared);
    EXPECT_EQ(s->token, last) << "the current value, unraised";
    x.release(s);
  }
}

TEST(lock_table, tokens_are_above_what_a_request_brings) {
  table_world x;
  term what{"t"};
  auto ask = [&](fencing_token carried, bool adopt, lock_mode mode) {
    auto w = lock_world::waiter(x.a, what, mode);
    w->carried = carried;
    w->adopt = adopt;
    x.locks.lock(*w);
    auto* r = w->take_hold();
    auto token = r->token.load();
    x.release(r);
    return token;
  };
  auto far = fencing_token{1'000'000} << fencing::slot_bits | 5;
  EXPECT_EQ(ask(far, true, exclusive), far) << "larger than its own: adopted";
  auto next = ask(far, true, exclusive);
  EXPECT_GT(next, far) << "no token is issued twice";
  EXPECT_GT(ask(next + (7u << fencing::slot_bits), false, exclusive), next);
  EXPECT_GE(x.table().highest_token(), next);
  auto read = x.table().known_token(what) + (9u << fencing::slot_bits);
  EXPECT_EQ(ask(read, false, shared), read);
  EXPECT_GT(ask(0, false, exclusive), read) << "a reader has shown it around";
}

TEST(lock_table, a_raised_hold_raises_what_comes_after) {
  table_world x;
  term what{"t"};
  auto* old = x.take(x.a, what, shared);
  auto* r = x.take(x.b, what, shared);
  auto* s = x.take(x.a, what, shared);
  auto high = r->token + (50u << fencing::slot_bits);
  x.table().raise(*r, high);
  x.check();
  EXPECT_EQ(r->token, high);
  auto* late = x.take(x.b, what, shared);
  EXPECT_EQ(late->token, high);
  for (auto* y : {old, r, s, late})
    x.release(y);
  auto* y = x.take(x.a, what, exclusive);
  EXPECT_GT(y->token, high);
  x.release(y);
  x.table().raise_floor(high << 1);
  y = x.take(x.a, what, exclusive);
  EXPECT_GT(y->token, high << 1);
  x.release(y);
}

TEST(lock_table, tokens_grow_over_splits_and_merges) {
  table_world x;
  std::vector<fencing_token> last(500, 0);
  std::vector<hold_record*> ballast;
  for (int round = 0; round < 6; ++round) {
    for (std::size_t i = 0; i < last.size(); ++i) {
      auto* r = x.take(x.a, term{"t" + std::to_string(i)}, exclusive);
      ASSERT_GT(r->token, last[i]);
      last[i] = r->token;
      x.release(r);
    }
    if (round % 2 == 0) {
      for (int i = 0; i < 20000; ++i)
        ballast.push_back(x.take(x.b, term{i}, shared));
      EXPECT_GT(x.table().buckets(), base_buckets);
    } else {
      for (auto* r : ballast)
        x.release(r);
      ballast.clear();
      trim(x.table());
      EXPECT_EQ(x.table().buckets(), base_buckets);
    }
  }
}

// -- hand-over ----------------------------------------------------------------

namespace {

struct part final : hold_owner {};

/// A hold of a peer's session.
hold_record* part_of(const session_ptr& who, lock_mode mode,
                     fencing_token token, hold_owner& from) {
  auto* r = hold_record::make();
  r->session = who.get();
  r->what = hold_record::kind::part;
  r->owner = &from;
  r->mode = mode;
  r->token = token;
  return r;
}

} // namespace

TEST(lock_table, a_hold_that_is_installed_goes_in_front_of_any_queue) {
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* r = x.take(x.a, what, shared);
  auto w = x.ask(x.b, what, exclusive);
  auto high = r->token + (9u << fencing::slot_bits);
  auto* p = part_of(peer, shared, high, from);
  x.locks.install(what, *p, [](hold_record&) { FAIL() << "both are shared"; });
  x.check();
  EXPECT_EQ(x.row(what), "S 1 3 | 2X");
  x.release(r);
  x.pump_all();
  EXPECT_EQ(x.row(what), "S 3 | 2X");
  x.release(p);
  x.pump_all();
  EXPECT_GT(w->hold->token, high);
  x.release(w->take_hold());
  x.expect_idle();
}

TEST(lock_table, an_installed_reader_does_not_lower_the_current_value) {
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* y = x.take(x.a, what, exclusive);
  x.release(y);
  auto* r = x.take(x.a, what, shared);
  auto* p = part_of(peer, shared, 1, from);
  x.locks.install(what, *p, [](hold_record&) {});
  x.check();
  EXPECT_EQ(p->token, 1u);
  auto* late = x.take(x.b, what, shared);
  EXPECT_EQ(late->token, r->token);
  for (auto* z : {r, p, late})
    x.release(z);
  x.expect_idle();
}

TEST(lock_table, another_exclusive_handle_has_the_token_of_the_exclusive_hold) {
  // A peer's session has a shared hold with the token of our own last exclusive
  // one, and an exclusive hold that it got while we were cut off, with a smaller
  // token: another handle of that must not have the token of ours.
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* ours = x.take(x.a, what, exclusive);
  auto token = ours->token.load();
  x.release(ours);
  auto smaller = token - (1u << fencing::slot_bits);
  auto* reads = part_of(peer, shared, token, from);
  auto* writes = part_of(peer, exclusive, smaller, from);
  for (auto* y : {reads, writes})
    x.locks.install(what, *y, [](hold_record&) { FAIL() << "one session"; });
  auto* again = x.take(peer, what, exclusive);
  EXPECT_EQ(again->token, smaller);
  auto* once_more = x.take(peer, what, exclusive);
  EXPECT_EQ(once_more->token, smaller);
  auto* reader = x.take(peer, what, shared);
  EXPECT_EQ(reader->token, token) << "the current value";
  x.check();
  for (auto* y : {reads, writes, again, once_more, reader})
    x.release(y);
  auto* next = x.take(x.b, what, exclusive);
  EXPECT_GT(next->token, token);
  x.release(next);
  x.expect_idle();
}

TEST(lock_table, conflicting_holds_are_reported_and_let_nobody_else_in) {
  for (auto loser : {0, 1}) {
    table_world x;
    part from;
    term what{"t"};
    auto peer = x.session(static_cast<node_slot>(1));
    auto* mine = x.take(x.a, what, exclusive);
    std::vector<hold_record*> met;
    auto* p = part_of(peer, shared, 1, from);
    x.locks.install(what, *p, [&](hold_record& r) {
      local_locks::pin(r);
      met.push_back(&r);
    });
    x.check();
    ASSERT_EQ(met, (std::vector<hold_record*>{mine}));
    EXPECT_EQ(x.take(x.a, what, exclusive), nullptr);
    EXPECT_EQ(x.take(peer, what, shared), nullptr);
    auto w = x.ask(x.b, what, shared);
    x.pump_all();
    EXPECT_EQ(x.row(what), "X 1 3 | 2S");
    if (loser == 0) {
      EXPECT_TRUE(x.locks.revoke(*mine));
      x.pump_all();
      EXPECT_EQ(x.row(what), "S 2 3") << "what is left makes the mode";
      EXPECT_EQ(x.locks.release(*mine), release_result::lost);
      x.release(p);
    } else {
      x.locks.give_back(*p);
      session_ledger::drop(*mine);
      x.pump_all();
      EXPECT_EQ(x.row(what), "X 1 | 2S");
      x.release(mine);
    }
    x.pump_all();
    x.release(w->take_hold());
    x.expect_idle();
  }
}

TEST(lock_table, a_session_that_ends_in_a_conflict_leaves_the_other_its_mode) {
  // The exclusive hold goes by itself before it is revoked: the reader that was
  // handed over must not keep others out.
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* one = x.take(x.a, what, shared);
  auto* two = x.take(x.a, what, exclusive);
  x.release(two); // exclusive by what is left
  auto* p = part_of(peer, shared, 1, from);
  auto met = 0;
  x.locks.install(what, *p, [&](hold_record&) { ++met; });
  EXPECT_EQ(met, 1);
  x.check();
  x.locks.close(*x.a, outcome::session_ended);
  EXPECT_EQ(x.row(what), "S 3");
  EXPECT_EQ(x.locks.release(*one), release_result::already_released);
  x.release(p);
  x.expect_idle();
}

TEST(lock_table, a_hold_in_a_conflict_does_not_inherit_the_token_of_the_other) {
  // After a cut one side's hold meets the other's, and goes by itself. What is
  // left keeps its own token, for all further handles of its session.
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* mine = x.take(x.a, what, exclusive);
  auto token = mine->token.load();
  auto* p = part_of(peer, exclusive, token - 1, from);
  x.locks.install(what, *p, [](hold_record&) {});
  x.check();
  auto more = x.ask(peer, what, shared);
  x.pump_all();
  EXPECT_EQ(more->hold->token, token - 1);
  x.release(mine);
  x.pump_all();
  auto* again = x.take(peer, what, exclusive);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->token, token - 1);
  x.check();
  for (auto* r : {p, more->take_hold(), again})
    x.release(r);
  auto* next = x.take(x.b, what, exclusive);
  EXPECT_GT(next->token, token);
  x.release(next);
  x.expect_idle();
}

TEST(lock_table, a_shared_hold_is_in_the_way_of_readers_only_if_it_is_kept) {
  // Beside an exclusive part that may be given back unseen it is not; when an
  // exclusive one that was seen has gone it is.
  for (auto seen : {false, true}) {
    table_world x;
    term what{"t"};
    auto* reads = x.take(x.a, what, shared);
    auto* writes = x.take(x.a, what, exclusive);
    auto w = x.ask(x.b, what, shared);
    auto blockers = [&] {
      std::vector<blocker> result;
      EXPECT_TRUE(x.locks.table().blockers(*w, {}, 9, result));
      return result;
    };
    ASSERT_EQ(blockers().size(), 1u);
    EXPECT_FALSE(blockers()[0].kept);
    if (seen) {
      x.release(writes);
      ASSERT_EQ(blockers().size(), 1u);
      EXPECT_TRUE(blockers()[0].kept);
    } else {
      x.locks.give_back(*writes);
    }
    x.release(reads);
    x.pump_all();
    x.release(w->take_hold());
    x.expect_idle();
  }
}

TEST(lock_table, who_is_ahead_is_in_the_way_beside_holds_in_a_conflict) {
  // The reader does not wait for the shared hold, but for the writer ahead that
  // does; and it will when the exclusive hold has gone.
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* mine = x.take(x.a, what, exclusive);
  auto* p = part_of(peer, shared, mine->token - 1, from);
  x.locks.install(what, *p, [](hold_record&) {});
  auto writer = x.ask(x.b, what, exclusive);
  auto reader = x.ask(x.session(), what, shared);
  std::vector<blocker> found;
  ASSERT_TRUE(x.locks.table().blockers(*reader, {}, 9, found));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].how, blocker::kind::queued);
  EXPECT_EQ(found[1].how, blocker::kind::direct_hold);
  x.release(mine);
  x.release(p);
  x.pump_all();
  x.release(writer->take_hold());
  x.pump_all();
  x.release(reader->take_hold());
  x.expect_idle();
}

TEST(lock_table, who_stands_between_two_requests_of_a_session_is_not_in_its_way) {
  // The first will let the second in, whatever is between them.
  for (auto second : {shared, exclusive}) {
    table_world x;
    term what{"t"};
    auto* held = x.take(x.a, what, exclusive);
    auto first = x.ask(x.b, what, exclusive);
    auto between = x.ask(x.session(), what, exclusive);
    auto w = x.ask(x.b, what, second);
    x.locks.table().mark_elsewhere(*between);
    auto named = [&] {
      std::vector<blocker> found;
      EXPECT_TRUE(x.locks.table().blockers(*w, {}, 9, found));
      return std::any_of(found.begin(), found.end(), [&](const blocker& y) {
        return y.session == between->session().id();
      });
    };
    EXPECT_FALSE(named());
    x.locks.end(*first, outcome::cancelled);
    EXPECT_TRUE(named()) << "now it is";
    x.release(held);
    x.pump_all();
    x.release(between->take_hold());
    x.pump_all();
    x.release(w->take_hold());
    x.expect_idle();
  }
}

TEST(lock_table, a_reader_does_not_let_its_own_writer_in) {
  table_world x;
  term what{"t"};
  auto* held = x.take(x.a, what, exclusive);
  auto first = x.ask(x.b, what, shared);
  auto between = x.ask(x.session(), what, exclusive);
  auto w = x.ask(x.b, what, exclusive);
  std::vector<blocker> found;
  ASSERT_TRUE(x.locks.table().blockers(*w, {}, 9, found));
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const blocker& y) {
    return y.session == between->session().id();
  }));
  x.locks.end(*between, outcome::cancelled);
  x.release(held);
  x.pump_all();
  x.release(first->take_hold());
  x.pump_all();
  x.release(w->take_hold());
  x.expect_idle();
}

TEST(lock_table, an_upgrade_past_those_who_wait_says_so) {
  table_world x;
  term what{"t"};
  auto* reads = x.take(x.a, what, shared);
  auto* other = x.take(x.b, what, shared);
  auto waits = x.ask(x.session(static_cast<node_slot>(1)), what, exclusive);
  EXPECT_FALSE(waits->overtook);
  x.release(other);
  auto up = x.ask(x.a, what, exclusive);
  EXPECT_TRUE(up->overtook);
  x.release(up->take_hold());
  x.release(reads);
  x.pump_all();
  x.release(waits->take_hold());
  x.expect_idle();
}

TEST(lock_table, a_downgrade_in_a_conflict_changes_its_own_session_only) {
  table_world x;
  part from;
  term what{"t"};
  auto peer = x.session(static_cast<node_slot>(1));
  auto* mine = x.take(x.a, what, exclusive);
  auto* p = part_of(peer, exclusive, 1, from);
  auto met = 0;
  x.locks.install(what, *p, [&](hold_record&) { ++met; });
  EXPECT_EQ(met, 1);
  EXPECT_TRUE(x.locks.downgrade(*mine));
  x.check();
  EXPECT_EQ(p->mode, exclusive);
  EXPECT_EQ(x.row(what), "X 1 3");
  x.release(p);
  EXPECT_EQ(x.row(what), "S 1");
  x.release(mine);
  x.expect_idle();
}

// -- growing and shrinking ----------------------------------------------------

TEST(lock_table, grows_to_many_rows_and_back_to_nothing) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  {
    table_world x;
    std::mt19937 random{1};
    std::vector<hold_record*> held;
    for (int i = 0; i < 200'000; ++i) {
      // Some are too long for a row.
      auto what = i % 16 == 0 ? term{std::string(40, 'x') + std::to_string(i)}
                              : term{i};
      auto* r = x.take(x.a, what, i % 2 == 0 ? shared : exclusive);
      ASSERT_NE(r, nullptr);
      held.push_back(r);
      if (i % 40'000 == 0)
        x.check();
    }
    x.check();
    EXPECT_EQ(x.table().rows(), held.size());
    EXPECT_GT(x.table().buckets(), held.size());
    EXPECT_LT(x.table().buckets(), 2 * held.size());
    std::shuffle(held.begin(), held.end(), random);
    for (std::size_t i = 0; i < held.size(); ++i) {
      x.release(held[i]);
      if (i % 40'000 == 0)
        x.check();
    }
    trim(x.table());
    x.check();
    EXPECT_EQ(x.table().rows(), 0u);
    EXPECT_EQ(x.table().buckets(), base_buckets);
  }
  block_pool::flush();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

TEST(lock_table, trims_a_few_buckets_at_a_time_and_keeps_what_is_held) {
  table_world x;
  std::vector<hold_record*> held;
  for (int i = 0; i < 20'000; ++i)
    held.push_back(x.take(x.a, term{i}, exclusive));
  auto large = x.table().buckets();
  for (std::size_t i = 500; i < held.size(); ++i)
    x.release(held[i]);
  while (x.table().trim(100) > 0)
    x.check();
  EXPECT_LT(x.table().buckets(), large);
  EXPECT_EQ(x.table().rows(), 500u);
  for (int i = 0; i < 500; ++i)
    EXPECT_EQ(x.take(x.b, term{i}, shared), nullptr);
  for (int i = 0; i < 500; ++i)
    x.release(held[static_cast<std::size_t>(i)]);
  x.expect_idle();
}

TEST(lock_table, waiters_and_their_queues_move_with_their_rows) {
  table_world x;
  std::vector<hold_record*> held;
  std::vector<waiter_ptr> waiting;
  for (int i = 0; i < 300; ++i) {
    held.push_back(x.take(x.a, term{i}, exclusive));
    waiting.push_back(x.ask(x.b, term{i}, exclusive));
  }
  std::vector<hold_record*> ballast;
  for (int i = 1000; i < 20'000; ++i)
    ballast.push_back(x.take(x.a, term{i}, shared));
  x.check();
  for (std::size_t i = 0; i < 150; ++i)
    x.release(held[i]);
  x.pump_all();
  for (auto* r : ballast)
    x.release(r);
  trim(x.table());
  x.check();
  for (std::size_t i = 150; i < 300; ++i)
    x.release(held[i]);
  x.pump_all();
  for (auto& w : waiting) {
    ASSERT_EQ(w->state(), outcome::granted);
    x.release(w->take_hold());
  }
  x.expect_idle();
}
