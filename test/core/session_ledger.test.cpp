#include "pawl/core/session_ledger.hpp"

#include "lock_fixture.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

using namespace pawl;
using namespace pawl::test;

namespace {

struct owner final : hold_owner {};

/// A record that is in no row.
hold_record* record_of(const session_ptr& who, std::uint32_t hash,
                       hold_record::kind kind = hold_record::kind::direct) {
  auto* r = hold_record::make();
  r->session = who.get();
  r->hash = hash;
  r->what = kind;
  return r;
}

} // namespace

TEST(session_ledger, lives_until_the_last_handle_record_and_waiter_are_gone) {
  lock_world t;
  auto who = t.session();
  auto* r = record_of(who, 1);
  ASSERT_TRUE(who->enter(*r));
  auto w = lock_world::waiter(who, term{"t"}, shared);
  auto* ledger = who.get();
  who.reset();
  EXPECT_EQ(test_session::live, 1);
  EXPECT_TRUE(ledger->leave(*r));
  EXPECT_EQ(test_session::live, 1);
  w.reset();
  EXPECT_EQ(test_session::live, 0);
}

TEST(session_ledger,
     is_as_old_as_a_request_with_a_part_and_stays_so_with_what_came_of_it) {
  lock_world t;
  auto who = t.session();
  who->claim_age(3);
  t.clock.tick();
  auto* r = record_of(who, 1);
  ASSERT_TRUE(who->enter(*r));
  EXPECT_EQ(who->age().lamport, 3u);
  who->claim_age(5);
  who->drop_claim();
  who->drop_claim();
  EXPECT_EQ(who->age().lamport, 3u) << "it holds what came of it";
  EXPECT_TRUE(who->leave(*r));
  EXPECT_EQ(who->age().lamport, session_age::holds_nothing);
  who->claim_age(7);
  ASSERT_TRUE(who->enter(*(r = record_of(who, 1))));
  EXPECT_TRUE(who->leave(*r));
  EXPECT_EQ(who->age().lamport, 7u) << "the request still has its part";
  who->check_invariants();
  who->drop_claim();
  EXPECT_EQ(who->age().lamport, session_age::holds_nothing)
    << "it came to nothing";
}

TEST(session_ledger, has_the_age_of_the_first_lock_of_its_present_set) {
  lock_world t;
  auto who = t.session();
  EXPECT_EQ(who->age().lamport, session_age::holds_nothing);
  auto* a = record_of(who, 1);
  auto* b = record_of(who, 2);
  ASSERT_TRUE(who->enter(*a));
  auto age = who->age();
  t.clock.tick();
  ASSERT_TRUE(who->enter(*b));
  EXPECT_TRUE(who->leave(*a));
  EXPECT_EQ(who->age(), age) << "it still holds something";
  EXPECT_TRUE(who->leave(*b));
  EXPECT_EQ(who->age().lamport, session_age::holds_nothing);
  ASSERT_TRUE(who->enter(*(a = record_of(who, 1))));
  EXPECT_GT(who->age(), age) << "a new set is younger";
  EXPECT_TRUE(who->leave(*a));
}

TEST(session_ledger, keeps_the_age_that_its_home_says) {
  lock_world t;
  auto who = t.session(static_cast<node_slot>(3));
  who->age({17, who->id()});
  auto* r = record_of(who, 1);
  ASSERT_TRUE(who->enter(*r));
  EXPECT_EQ(who->age().lamport, 17u);
  EXPECT_TRUE(who->leave(*r));
  EXPECT_EQ(who->age().lamport, 17u);
  who->check_invariants();
}

TEST(session_ledger, keeps_its_age_while_it_holds_nothing_if_it_is_told_to) {
  lock_world t;
  auto who = t.session();
  who->keep_age();
  EXPECT_EQ(who->age().lamport, session_age::holds_nothing);
  who->check_invariants();
  auto* a = record_of(who, 1);
  ASSERT_TRUE(who->enter(*a));
  auto age = who->age();
  EXPECT_TRUE(who->leave(*a));
  t.clock.tick();
  ASSERT_TRUE(who->enter(*(a = record_of(who, 1))));
  EXPECT_EQ(who->age(), age);
  EXPECT_TRUE(who->leave(*a));
  who->check_invariants();
}

TEST(session_ledger, begins_with_the_age_of_another_ties_included) {
  lock_world t;
  auto first = t.session();
  auto between = t.session();
  auto again = t.session();
  auto* a = record_of(first, 1);
  auto* b = record_of(between, 1);
  ASSERT_TRUE(first->enter(*a));
  ASSERT_TRUE(between->enter(*b));
  again->keep_age(first->age());
  EXPECT_EQ(again->age(), first->age());
  EXPECT_LT(again->age(), between->age()) << "the clock did not move";
  auto* c = record_of(again, 1);
  ASSERT_TRUE(again->enter(*c));
  EXPECT_EQ(again->age(), first->age());
  again->check_invariants();
  EXPECT_TRUE(first->leave(*a));
  EXPECT_TRUE(between->leave(*b));
  EXPECT_TRUE(again->leave(*c));
}

TEST(session_ledger, once_closed_takes_nothing_in) {
  lock_world t;
  auto who = t.session();
  EXPECT_TRUE(who->close().was_open);
  EXPECT_FALSE(who->close().was_open);
  auto* r = record_of(who, 1);
  EXPECT_FALSE(who->enter(*r));
  hold_record::free(r);
  auto w = lock_world::waiter(who, term{"t"}, shared);
  EXPECT_FALSE(who->enter_wait(*w));
  auto won = false;
  EXPECT_EQ(who->settle(*w, won), outcome::session_ended);
  EXPECT_TRUE(won);
  who->check_invariants();
}

TEST(session_ledger, close_takes_out_everything_but_parts) {
  lock_world t;
  auto who = t.session();
  owner of_part;
  auto* a = record_of(who, 1);
  auto* part = record_of(who, 1, hold_record::kind::part);
  part->owner = &of_part;
  ASSERT_TRUE(who->enter(*a));
  ASSERT_TRUE(who->enter(*part));
  auto w = lock_world::waiter(who, term{"t"}, shared);
  ASSERT_TRUE(who->enter_wait(*w));
  auto had = who->close();
  EXPECT_EQ(had.holds, a);
  EXPECT_EQ(had.waits, w.get());
  EXPECT_EQ(who->holds(), 1u);
  EXPECT_EQ(who->waits(), 0u);
  who->check_invariants();
  w->unref();
  session_ledger::drop(*a); // the closer's share
  EXPECT_FALSE(who->leave(*a)) << "its owner finds it taken out";
  EXPECT_TRUE(who->leave(*part));
}

TEST(session_ledger, settle_and_close_agree_on_who_has_the_hold) {
  lock_world t;
  auto who = t.session();
  auto w = lock_world::waiter(who, term{"t"}, shared);
  ASSERT_TRUE(who->enter_wait(*w));
  auto won = false;
  EXPECT_EQ(who->settle(*w, won), outcome::granted);
  EXPECT_TRUE(won);
  EXPECT_EQ(who->settle(*w, won), outcome::granted);
  EXPECT_FALSE(won) << "it was judged before";
  auto had = who->close();
  EXPECT_EQ(had.waits, nullptr);
  ASSERT_EQ(had.holds, w->hold);
  session_ledger::drop(*had.holds);
  EXPECT_FALSE(who->leave(*w->take_hold()));
}

TEST(session_ledger, says_of_a_waiter_whether_it_has_company) {
  lock_world t;
  auto who = t.session();
  auto pair = colliding_terms()[0];
  auto a = lock_world::waiter(who, pair.first, shared);
  auto b = lock_world::waiter(who, term{"other"}, shared);
  auto c = lock_world::waiter(who, pair.second, shared);
  for (auto* w : {a.get(), b.get(), c.get()})
    ASSERT_TRUE(who->enter_wait(*w));
  EXPECT_FALSE(a->company);
  EXPECT_FALSE(b->company);
  EXPECT_TRUE(c->company) << "a hint goes by the hash";
  who->check_invariants();
  for (auto* w : {a.get(), b.get(), c.get()})
    who->leave_wait(*w);
  EXPECT_EQ(who->waits(), 0u);
}

TEST(session_ledger, does_what_a_set_does_however_much_it_holds) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    std::mt19937 random{seed};
    lock_world t;
    auto who = t.session();
    std::multiset<std::uint32_t> hashes;
    std::vector<hold_record*> records;
    auto growing = true;
    for (int step = 0; step < 40000; ++step) {
      if (random() % 4000 == 0)
        growing = !growing;
      if (records.empty() || random() % 8 < (growing ? 5u : 3u)) {
        auto hash = static_cast<std::uint32_t>(random() % 997 * 0x9e3779b9u);
        records.push_back(record_of(who, hash));
        ASSERT_TRUE(who->enter(*records.back()));
        hashes.insert(hash);
      } else {
        std::swap(records[random() % records.size()], records.back());
        hashes.erase(hashes.find(records.back()->hash));
        ASSERT_TRUE(who->leave(*records.back()));
        records.pop_back();
      }
      ASSERT_EQ(who->holds(), records.size());
      auto probe = static_cast<std::uint32_t>(random() % 997 * 0x9e3779b9u);
      ASSERT_EQ(who->may_hold(probe), hashes.count(probe) > 0);
      if (step % 64 == 0)
        who->check_invariants();
    }
    std::size_t seen = 0;
    who->for_each_hold([&](const hold_record&) { ++seen; });
    EXPECT_EQ(seen, records.size());
    for (auto* r : records)
      ASSERT_TRUE(who->leave(*r));
    who->check_invariants();
  }
  EXPECT_EQ(test_session::live, 0);
}

TEST(session_ledger, close_of_a_large_ledger_hands_out_each_record_once) {
  lock_world t;
  auto who = t.session();
  owner of_parts;
  std::vector<hold_record*> parts;
  std::set<hold_record*> direct;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    auto kind
      = i % 3 == 0 ? hold_record::kind::part : hold_record::kind::direct;
    auto* r = record_of(who, i * 0x9e3779b9u, kind);
    ASSERT_TRUE(who->enter(*r));
    if (kind == hold_record::kind::part) {
      r->owner = &of_parts;
      parts.push_back(r);
    } else {
      direct.insert(r);
    }
  }
  auto had = who->close();
  while (had.holds != nullptr) {
    auto* r = std::exchange(had.holds, had.holds->session_next);
    EXPECT_EQ(direct.erase(r), 1u);
    session_ledger::drop(*r); // the closer's share
    EXPECT_FALSE(who->leave(*r));
  }
  EXPECT_TRUE(direct.empty());
  EXPECT_EQ(who->holds(), parts.size());
  who->check_invariants();
  for (auto* r : parts)
    EXPECT_TRUE(who->leave(*r));
}

TEST(session_ledger, the_clock_only_goes_forward) {
  lamport_clock clock;
  auto before = clock.now();
  clock.raise(before + 10);
  EXPECT_EQ(clock.now(), before + 11);
  clock.raise(before);
  EXPECT_EQ(clock.now(), before + 11);
  clock.tick();
  EXPECT_EQ(clock.now(), before + 12);
}
