// A worker on a real lock table: what it takes in a peer's name it gives back.

#include "pawl/core/worker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

using namespace pawl;

namespace {

constexpr auto here = static_cast<node_slot>(0);
constexpr auto peer = static_cast<node_slot>(1);
constexpr auto third = static_cast<node_slot>(2);

class client_session final : public session_ledger {
public:
  using session_ledger::session_ledger;
  int revocations = 0;

private:
  void revoked(hold_record&) noexcept override {
    ++revocations;
  }
  void last_gone() noexcept override {
    // a member of the test
  }
};

struct Worker : ::testing::Test, lock_port, worker_port, session_resolver {
  // lock_port
  manager_ref take_manager() override {
    queues.push_back(nullptr);
    return static_cast<manager_ref>(queues.size());
  }
  void start(manager_ref who, wait_queue& q) override {
    queues[who - 1] = &q;
    looks.push_back(who);
  }
  void look(manager_ref who) override {
    looks.push_back(who);
  }
  void release_whole(hold_owner&) override {}
  void left_waiting(const session_id&) override {}
  // worker_port
  void settled(part_waiter& w) noexcept override {
    done.push_back(&w);
  }
  void enters(part_waiter&) override {}
  void leaves(part_waiter&) noexcept override {}
  // session_resolver
  session_ledger* find(const session_id& who) override {
    if (who != mine.id())
      return nullptr;
    mine.ref();
    return &mine;
  }

  std::unique_ptr<worker> make(node_slot whose, bool ready = true) {
    auto result = std::make_unique<worker>(
      worker_options{here, whose, 9, std::chrono::nanoseconds{1000}}, locks,
      *this, clock, *this);
    if (ready)
      result->set_ready(out);
    return result;
  }

  /// Managers and settled waiters, until nothing moves. A waiter belongs to the
  /// worker of its request's home.
  void run() {
    while (!looks.empty() || !done.empty()) {
      if (!looks.empty()) {
        auto*& q = queues[looks.front() - 1];
        auto who = looks.front();
        looks.pop_front();
        if (q == nullptr)
          continue;
        auto result = locks.manage(*q, 4);
        if (result.idle)
          q = nullptr;
        else if (result.more)
          looks.push_back(who);
      } else {
        auto* w = done.front();
        done.pop_front();
        (w->owner.request.home == peer ? p : t)->settled(*w, out);
      }
    }
    p->check_invariants();
  }

  void say(const message& what) {
    p->receive(what, out);
    run();
  }

  static request_message request(std::uint64_t serial,
                                 std::vector<term_lock> terms,
                                 node_slot home = peer,
                                 attempt_number attempt = 0) {
    request_message x;
    x.id = {home, serial};
    x.session = {home, 100 + serial};
    x.age.who = x.session;
    x.attempt = attempt;
    x.terms = std::move(terms);
    x.carried.assign(x.terms.size(), 1000);
    return x;
  }

  /// What was sent, e.g. "granted(2)" for two tokens.
  std::string said() {
    std::string result;
    for (auto& e : std::exchange(out, {})) {
      if (auto* s = std::get_if<effect::send>(&e)) {
        result += (result.empty() ? "" : " ") + std::string{name_of(s->what)};
        if (auto* r = std::get_if<refused_message>(&s->what))
          result += "(" + std::string{to_string(r->why)} + ")";
        if (auto* g = std::get_if<granted_message>(&s->what))
          result += "(" + std::to_string(g->tokens.size()) + ")";
        if (auto* l = std::get_if<lost_message>(&s->what))
          result += "(" + to_string(l->id) + (l->if_partial ? "?" : "") + ")";
      } else if (auto* i = std::get_if<effect::installed>(&e)) {
        result += (result.empty() ? "" : " ")
                  + ("installed " + std::to_string(i->holds));
      }
    }
    return result;
  }

  lock_mode mode(const term& what) {
    return locks.table().view(what).mode;
  }

  std::size_t rows() {
    return locks.table().rows();
  }

  lamport_clock clock;
  client_session mine{{here, 1}, clock};
  std::deque<manager_ref> looks;
  std::vector<wait_queue*> queues;
  std::deque<part_waiter*> done;
  scope_effects out;
  local_locks locks{{.slot = here}, *this};
  std::unique_ptr<worker> p = make(peer);
  std::unique_ptr<worker> t = make(third);
};

const term_lock x_a{term{"a"}, exclusive};
const term_lock x_b{term{"b"}, exclusive};
const term_lock s_a{term{"a"}, shared};

handed_over over(std::uint64_t serial, std::vector<term_lock> terms,
                 fencing_token token, node_slot home = peer) {
  handed_over x;
  x.id = {home, serial};
  x.session = {home, 100 + serial};
  x.age.who = x.session;
  x.tokens.assign(terms.size(), token);
  x.terms = std::move(terms);
  return x;
}

} // namespace

TEST_F(Worker, AWaitMakesSessionsThatTakeTheirFirstLockAfterItYounger) {
  auto free = clock.now();
  say(request(1, {{term{"t"}, exclusive}}));
  EXPECT_EQ(clock.now(), free) << "nobody waited";
  say(request(2, {{term{"t"}, exclusive}}));
  EXPECT_GT(clock.now(), free);
  say(abandon_message{{peer, 2}, 0});
  say(release_message{{peer, 1}, {}});
}

TEST_F(Worker, TakesAllTermsAndAnswersOnce) {
  say(request(1, {x_a, x_b}));
  EXPECT_EQ(said(), "granted(2)");
  EXPECT_EQ(rows(), 2u);
  say(release_message{{peer, 1}, {}});
  EXPECT_EQ(rows(), 0u);
  EXPECT_EQ(p->requests() + p->sessions(), 0u);
}

TEST_F(Worker, WaitsForATermWithTheOthersHeld) {
  say(request(1, {x_b}));
  said();
  say(request(2, {x_a, x_b}));
  EXPECT_EQ(said(), "");
  say(release_message{{peer, 1}, {}});
  EXPECT_EQ(said(), "granted(2)");
}

TEST_F(Worker, TokensExceedWhatTheRequestCarries) {
  auto x = request(1, {x_a});
  x.carried = {1 << 20};
  say(x);
  auto& granted
    = std::get<granted_message>(std::get<effect::send>(out[0]).what);
  EXPECT_GT(granted.tokens[0], fencing_token{1} << 20);
}

TEST_F(Worker, AnAbandonTakesBackWhatWaitsAndWhatIsHeld) {
  say(request(1, {x_b}));
  say(request(2, {x_a, x_b}));
  say(abandon_message{{peer, 2}, 0});
  EXPECT_EQ(mode(x_a.what), lock_mode::none);
  say(release_message{{peer, 1}, {}});
  EXPECT_EQ(rows(), 0u);
  EXPECT_EQ(p->sessions(), 0u);
}

TEST_F(Worker, AnAbandonedUpgradeFallsBackToShared) {
  auto first = request(1, {s_a});
  say(first);
  auto second = request(2, {x_a});
  second.session = first.session;
  say(second);
  EXPECT_EQ(mode(x_a.what), exclusive);
  say(abandon_message{{peer, 2}, 0});
  EXPECT_EQ(mode(x_a.what), shared);
}

TEST_F(Worker, AnUnknownRequestLeavesNoTrace) {
  say(abandon_message{{peer, 5}, 3});
  say(release_message{{peer, 5}, {}});
  say(downgrade_message{{peer, 5}, 9});
  EXPECT_EQ(said(), "");
  say(raise_message{{peer, 5}, 0, {7}});
  EXPECT_EQ(said(), "refused(scope_closed)");
  EXPECT_EQ(p->requests(), 0u);
}

TEST_F(Worker, ANewAttemptReplacesTheOlderOne) {
  say(request(1, {x_a}));
  say(request(1, {x_b}, peer, 1));
  said();
  EXPECT_EQ(mode(x_a.what), lock_mode::none);
  EXPECT_EQ(mode(x_b.what), exclusive);
  say(request(1, {x_a}, peer, 0));
  say(abandon_message{{peer, 1}, 0});
  EXPECT_EQ(said(), "");
  EXPECT_EQ(mode(x_b.what), exclusive) << "an older abandon is not for it";
}

TEST_F(Worker, HoldsRequestsBackWhileTheScopeJoins) {
  p = make(peer, false);
  say(request(1, {x_a}));
  say(request(2, {x_a}));
  auto no_wait = request(3, {x_b});
  no_wait.no_wait = true;
  say(no_wait);
  EXPECT_EQ(said(), "refused(busy)");
  EXPECT_EQ(rows(), 0u);
  say(abandon_message{{peer, 1}, 0});
  p->set_ready(out);
  run();
  EXPECT_EQ(said(), "granted(1)");
}

TEST_F(Worker, NoWaitIsRefusedInsteadOfHanging) {
  say(request(1, {x_b}));
  said();
  auto no_wait = request(2, {x_a, x_b});
  no_wait.no_wait = true;
  say(no_wait);
  EXPECT_EQ(said(), "refused(busy)");
  EXPECT_EQ(mode(x_a.what), lock_mode::none);
  EXPECT_FALSE(locks.table().view(x_b.what).contended);
}

TEST_F(Worker, TheEndOfTheEpochDropsEverything) {
  say(request(1, {x_a}));
  say(request(2, {x_a}));
  p->close_epoch(out);
  run();
  EXPECT_EQ(rows(), 0u);
  EXPECT_EQ(p->requests() + p->sessions(), 0u);
}

TEST_F(Worker, AClosedScopeRefusesWhoWaitsAndWhoComes) {
  say(request(1, {x_a}));
  say(request(2, {x_a}));
  said();
  p->close_scope(out);
  run();
  EXPECT_EQ(said(), "refused(scope_closed)");
  say(request(3, {x_a}));
  EXPECT_EQ(said(), "refused(scope_closed)");
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, NonsenseIsRefused) {
  auto foreign = request(1, {x_a}, third);
  say(foreign);
  auto unordered = request(2, {x_b, x_a});
  say(unordered);
  auto no_mode = request(3, {{term{"a"}, lock_mode::none}});
  say(no_mode);
  auto short_of_tokens = request(4, {x_a});
  short_of_tokens.carried.clear();
  say(short_of_tokens);
  auto huge_token = request(5, {x_a});
  huge_token.carried = {~fencing_token{0}};
  say(huge_token);
  auto nothing = request(6, {});
  say(nothing);
  EXPECT_EQ(said(), "refused(cancelled) refused(cancelled) refused(cancelled) "
                    "refused(cancelled) refused(cancelled) "
                    "refused(cancelled)");
  say(request(7, {{term{std::string(70000, 'x')}, exclusive}}));
  EXPECT_EQ(said(), "refused(term_too_large)");
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, ARequestOfThisNodeUsesItsClientsLedger) {
  auto own = make(here);
  auto x = request(1, {x_a}, here);
  x.session = mine.id();
  own->receive(x, out);
  EXPECT_EQ(said(), "granted(1)");
  EXPECT_EQ(mine.holds(), 1u);
  auto gone = request(2, {x_a}, here);
  gone.session = {here, 77};
  own->receive(gone, out);
  EXPECT_EQ(said(), "refused(session_ended)");
  own->receive(release_message{{here, 1}, {}}, out);
  EXPECT_EQ(mine.holds(), 0u);
}

TEST_F(Worker, InstallsAHandOverInFrontOfEverybody) {
  say(hand_over_message{true, {over(1, {x_a, x_b}, 5000)}, 1 << 20});
  EXPECT_EQ(said(), "installed 1");
  EXPECT_EQ(mode(x_a.what), exclusive);
  EXPECT_GE(locks.table().highest_token(), fencing_token{1} << 20);
  say(hand_over_message{true, {over(1, {x_a, x_b}, 5000)}, 0});
  EXPECT_EQ(p->requests(), 1u) << "said twice";
  say(release_message{{peer, 1}, {1}});
  EXPECT_EQ(rows(), 1u);
  say(release_message{{peer, 1}, {0}});
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, OfTwoHoldsTheLowerTokenHasLost) {
  say(hand_over_message{true, {over(1, {x_a}, 5000)}, 0});
  said();
  t->receive(hand_over_message{true, {over(2, {x_a}, 6000, third)}, 0}, out);
  EXPECT_EQ(said(), "lost(1/1) installed 1");
  say(release_message{{peer, 1}, {}}); // its home's answer
  EXPECT_EQ(mode(x_a.what), exclusive);
  EXPECT_EQ(said(), "");
  t->receive(release_message{{third, 2}, {}}, out);
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, AtEqualTokensTheSharedOneHasLost) {
  say(hand_over_message{true, {over(1, {x_a}, 5000)}, 0});
  said();
  t->receive(hand_over_message{true, {over(2, {s_a}, 5000, third)}, 0}, out);
  EXPECT_EQ(said(), "lost(2/2) installed 1");
  t->receive(release_message{{third, 2}, {}}, out);
  say(release_message{{peer, 1}, {}});
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, APartialGrantWithALargerTokenIsAskedForFirst) {
  auto x = request(1, {x_a});
  x.carried = {1 << 20};
  say(x);
  said();
  t->receive(hand_over_message{true, {over(2, {x_a}, 5000, third)}, 0}, out);
  EXPECT_EQ(said(), "lost(1/1?) installed 1");
  // It was whole: its home says so, and the other one has lost.
  say(raise_message{{peer, 1}, 0, {1 << 21}, true});
  EXPECT_EQ(said(), "raised lost(2/2)");
  t->receive(release_message{{third, 2}, {}}, out);
  say(release_message{{peer, 1}, {}});
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, ARaiseOnTheWayIsNoAnswerToTheQuestionWhetherAGrantIsWhole) {
  auto x = request(1, {x_a});
  x.carried = {1 << 20};
  say(x);
  said();
  t->receive(hand_over_message{true, {over(2, {x_a}, 5000, third)}, 0}, out);
  EXPECT_EQ(said(), "lost(1/1?) installed 1");
  say(raise_message{{peer, 1}, 0, {1 << 21}, false});
  EXPECT_EQ(said(), "raised") << "it may give way yet";
  say(abandon_message{{peer, 1}, 0});
  EXPECT_EQ(said(), "");
  EXPECT_EQ(mode(x_a.what), exclusive);
  t->receive(release_message{{third, 2}, {}}, out);
  EXPECT_EQ(rows(), 0u);
}

TEST_F(Worker, ASearchBeginsWhereASessionHoldsThatWaitsElsewhere) {
  say(request(1, {x_a}));
  said();
  p->receive(waits_elsewhere_message{{peer, 1}, 0}, out);
  auto begun = std::count_if(out.begin(), out.end(), [](const auto& x) {
    auto* w = std::get_if<effect::walk>(&x);
    return w != nullptr && w->all_waits && !w->patient
           && w->what.request == request_id{peer, 1};
  });
  EXPECT_EQ(begun, 1);
  out.clear();
  p->receive(waits_elsewhere_message{{peer, 1}, 0}, out);
  EXPECT_TRUE(out.empty()) << "said twice";
}

TEST_F(Worker,
       ASearchBeginsWhereAnExclusiveHoldLeavesAnotherOneThatKeepsTheRow) {
  // Session 101 of the peer holds "a" exclusively and, because of that, shared;
  // somebody waits to read.
  for (auto waits : {true, false}) {
    say(request(1, {x_a}));
    auto again = request(2, {{x_a.what, shared}});
    again.session.serial = 101;
    say(again);
    auto reader = request(3, {{x_a.what, shared}});
    if (waits)
      say(reader);
    out.clear();
    p->receive(release_message{{peer, 1}, {}}, out);
    auto begun = std::count_if(out.begin(), out.end(), [](const auto& x) {
      auto* w = std::get_if<effect::walk>(&x);
      return w != nullptr && w->all_waits
             && w->what.session == session_id{peer, 101};
    });
    EXPECT_EQ(begun, waits ? 1 : 0);
    out.clear();
    p->receive(release_message{{peer, 2}, {}}, out);
    p->receive(abandon_message{{peer, 3}, 0}, out);
    run();
    EXPECT_EQ(rows(), 0u);
    out.clear();
  }
}

TEST_F(Worker, APartialGrantThatGivesWayLeavesTheOtherInPeace) {
  auto x = request(1, {x_a});
  x.carried = {1 << 20};
  say(x);
  said();
  t->receive(hand_over_message{true, {over(2, {x_a}, 5000, third)}, 0}, out);
  say(abandon_message{{peer, 1}, 0});
  EXPECT_EQ(said(), "lost(1/1?) installed 1");
  EXPECT_EQ(mode(x_a.what), exclusive);
}

TEST_F(Worker, ALocalHoldThatIsOutrankedIsRevoked) {
  hold_record* hold = nullptr;
  ASSERT_EQ(locks.try_lock(mine, x_a.what, exclusive, hold), outcome::granted);
  say(hand_over_message{true, {over(1, {x_a}, 1 << 20)}, 0});
  EXPECT_EQ(said(), "installed 1");
  EXPECT_EQ(mine.revocations, 1);
  EXPECT_EQ(locks.release(*hold), release_result::lost);
  say(release_message{{peer, 1}, {}});
  EXPECT_EQ(rows(), 0u);
}

/// Random messages of one peer, sensible or not, beside another peer's. A twin
/// keeps what the peer may believe to hold; in the end nothing is left.
TEST_F(Worker, RandomMessagesLeaveNothingBehind) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random{seed};
    auto below
      = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    p = make(peer, below(2) == 0);
    t = make(third);
    std::set<std::uint64_t> granted;
    auto some_terms = [&] {
      std::vector<term_lock> terms;
      for (int i = 0; i < 3; ++i)
        if (below(2) == 0)
          terms.push_back({term{i}, below(2) == 0 ? shared : exclusive});
      return terms;
    };
    for (int i = 0; i < 60; ++i) {
      auto serial = std::uint64_t{1 + below(6)};
      auto w = below(4) == 0 ? t.get() : p.get();
      auto home = w == t.get() ? third : peer;
      switch (below(9)) {
        case 0:
        case 1:
        case 2: {
          auto x = request(serial, some_terms(), home, below(4));
          x.session.serial = 100 + below(3);
          x.no_wait = below(4) == 0;
          w->receive(x, out);
          break;
        }
        case 3:
          w->receive(abandon_message{{home, serial}, below(4)}, out);
          break;
        case 4:
          w->receive(release_message{{home, serial}, {}}, out);
          break;
        case 5:
          w->receive(release_message{{home, serial},
                                     {static_cast<std::uint16_t>(below(4))}},
                     out);
          break;
        case 6:
          w->receive(downgrade_message{{home, serial},
                                       static_cast<std::uint16_t>(below(3))},
                     out);
          break;
        case 7:
          w->receive(raise_message{{home, serial}, below(3), {9000, 9000}},
                     out);
          break;
        default:
          p->set_ready(out);
      }
      run();
      t->check_invariants();
      locks.table().check_invariants();
    }
    p->close_epoch(out);
    t->close_epoch(out);
    run();
    EXPECT_EQ(rows(), 0u) << "seed " << seed;
    EXPECT_EQ(locks.table().waiters(), 0u) << "seed " << seed;
    EXPECT_EQ(p->requests() + p->sessions(), 0u) << "seed " << seed;
  }
}
