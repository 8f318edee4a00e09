// One request over several nodes, fed by hand: answers in any order, of any
// attempt, sensible or not.

#include "pawl/core/multi_node_request.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace pawl;

namespace {

using request_phase = multi_node_request::phase;

const std::vector<std::string> names{"a", "b", "c", "d"};

node_slot slot(std::size_t i) {
  return static_cast<node_slot>(i);
}

/// The order of the nodes 0 to n-1: `by_rank(..)[0]` leads.
std::vector<node_slot> by_rank(const node_order& order, std::size_t n) {
  std::vector<node_slot> result;
  for (std::size_t i = 0; i < n; ++i)
    result.push_back(slot(i));
  order.sort(result);
  return result;
}

request_spec spec_of(node_choice choice, std::vector<term_lock> terms) {
  request_spec result;
  result.id = {slot(0), 7};
  result.session = {slot(0), 3};
  result.age = {session_age::holds_nothing, result.session};
  result.terms = std::move(terms);
  result.choice = choice;
  return result;
}

/// Effects as words, e.g. "b:request/0 b:abandon/0 ended(timeout)".
std::string words(const scope_effects& out) {
  std::string result;
  auto add
    = [&](const std::string& x) { result += (result.empty() ? "" : " ") + x; };
  for (const auto& e : out) {
    if (auto* x = std::get_if<effect::send>(&e)) {
      auto attempt = std::visit(
        [](const auto& m) -> std::string {
          if constexpr (requires { m.attempt; })
            return "/" + std::to_string(m.attempt);
          else
            return "";
        },
        x->what);
      add(names[to_index(x->to)] + ":" + std::string{name_of(x->what)}
          + attempt);
    } else if (auto* y = std::get_if<effect::ended>(&e)) {
      add("ended(" + std::string{to_string(y->why)}
          + (y->node == no_node ? "" : "," + names[to_index(y->node)]) + ")");
    } else if (auto* z = std::get_if<effect::whole>(&e)) {
      std::string tokens;
      for (auto t : z->tokens)
        tokens += "," + std::to_string(t);
      add("whole(" + tokens.substr(1) + ")");
    } else if (auto* l = std::get_if<effect::hold_lost>(&e)) {
      add("lost(" + std::to_string(l->which.size()) + ")");
    } else if (auto* d = std::get_if<effect::downgraded>(&e)) {
      add("shared(" + std::to_string(d->which) + ")");
    } else if (auto* n = std::get_if<effect::node_left>(&e)) {
      add("left(" + names[to_index(n->node)] + ")");
    }
  }
  return result;
}

struct fixture : ::testing::Test {
  node_order order{"s", names};
  std::vector<node_slot> ranked = by_rank(order, 4);
  scope_effects out;

  std::string n(std::size_t rank) const {
    return names[to_index(ranked[rank])];
  }

  multi_node_request make(node_choice choice = node_choice::listed,
                          std::vector<term_lock> terms
                          = {{term{"t"}, exclusive}}) {
    return multi_node_request{spec_of(choice, std::move(terms)), order};
  }

  void start(multi_node_request& x, std::size_t nodes,
             std::vector<fencing_token> carried = {5}) {
    x.start({ranked.begin(), ranked.begin() + static_cast<long>(nodes)},
            std::move(carried), out);
    x.check_invariants();
  }

  void granted(multi_node_request& x, std::size_t rank,
               std::vector<fencing_token> tokens, attempt_number attempt = 0) {
    x.granted(ranked[rank], {x.id(), attempt, std::move(tokens)}, 11, out);
    x.check_invariants();
  }

  std::string said() {
    auto result = words(out);
    out.clear();
    return result;
  }
};

using MultiNodeRequest = fixture;

} // namespace

TEST(NodeOrder, TheLeadDependsOnTheNodeSetOnly) {
  node_order x{"s", names};
  node_order y{"s", names};
  std::set<node_slot> leads;
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(x.rank(slot(i)), y.rank(slot(i)));
  for (int s = 0; s < 40; ++s)
    leads.insert(by_rank(node_order{"scope" + std::to_string(s), names}, 4)[0]);
  EXPECT_EQ(leads.size(), 4u) << "scopes differ in their lead";
}

TEST(CanonicalOrder, DoublesBecomeTheStrongerMode) {
  std::vector<term_lock> terms{
    {term{"b"}, shared}, {term{"a"}, shared}, {term{"b"}, exclusive}};
  to_canonical_order(terms);
  EXPECT_EQ(terms, (std::vector<term_lock>{{term{"a"}, shared},
                                           {term{"b"}, exclusive}}));
  EXPECT_EQ(check_terms(terms), outcome::pending);
}

TEST_F(MultiNodeRequest, AsksTheLeadFirstThenAllOthersAtOnce) {
  auto x = make();
  start(x, 3);
  EXPECT_EQ(said(), n(0) + ":request/0");
  granted(x, 0, {6});
  EXPECT_EQ(said(), n(1) + ":request/0 " + n(2) + ":request/0");
  granted(x, 2, {6});
  EXPECT_EQ(said(), "");
  granted(x, 1, {6});
  EXPECT_EQ(said(), "whole(6)");
}

TEST_F(MultiNodeRequest, TheOthersAreGivenTheLeadsTokensToAdopt) {
  auto x = make();
  start(x, 2);
  granted(x, 0, {6});
  auto& lead = std::get<request_message>(std::get<effect::send>(out[0]).what);
  auto& other = std::get<request_message>(std::get<effect::send>(out.back()).what);
  EXPECT_EQ(lead.carried, (std::vector<fencing_token>{5}));
  EXPECT_FALSE(lead.adopt);
  EXPECT_EQ(other.carried, (std::vector<fencing_token>{6}));
  EXPECT_TRUE(other.adopt);
}

TEST_F(MultiNodeRequest, ItsAgeIsThatOfItsFirstPartAndIsToldOnce) {
  auto x = make();
  start(x, 3);
  out.clear();
  granted(x, 0, {6});
  granted(x, 1, {6});
  granted(x, 2, {6});
  ASSERT_EQ(out.size(), 4u) << "two are asked, one age, one whole";
  EXPECT_EQ(std::get<effect::aged>(out[0]).lamport, 11u);
  EXPECT_EQ(x.age().lamport, 11u);
}

TEST_F(MultiNodeRequest, ALargerTokenRaisesThoseThatAreSmaller) {
  auto x = make();
  start(x, 3);
  granted(x, 0, {6});
  granted(x, 1, {9});
  said();
  granted(x, 2, {6});
  EXPECT_EQ(said(), n(0) + ":raise/0 " + n(2) + ":raise/0");
  x.raised(ranked[0], {x.id(), 0}, out);
  EXPECT_EQ(said(), "");
  x.raised(ranked[2], {x.id(), 0}, out);
  EXPECT_EQ(said(), "whole(9)");
}

TEST_F(MultiNodeRequest, ASharedGrantIsTheMaximumAndIsNeverRaised) {
  auto x = make(node_choice::listed, {{term{"t"}, shared}});
  start(x, 2);
  granted(x, 0, {6});
  said();
  granted(x, 1, {9});
  EXPECT_EQ(said(), "whole(9)");
}

TEST_F(MultiNodeRequest, ARefusalGivesAllElseBack) {
  auto x = make();
  start(x, 3);
  granted(x, 0, {6});
  said();
  x.refused(ranked[2], {x.id(), 0, outcome::busy}, out);
  x.check_invariants();
  EXPECT_EQ(said(), n(0) + ":abandon/0 " + n(1) + ":abandon/0 ended(busy,"
                      + n(2) + ")");
}

TEST_F(MultiNodeRequest, ARefusalWithoutSenseReadsAsAClosedScope) {
  for (auto why : {outcome::granted, outcome::pending, outcome::timeout,
                   static_cast<outcome>(200)}) {
    auto x = make();
    start(x, 1);
    said();
    x.refused(ranked[0], {x.id(), 0, why}, out);
    EXPECT_EQ(said(), "ended(scope_closed," + n(0) + ")");
  }
}

TEST_F(MultiNodeRequest, ANodeOfTheListThatGoesEndsItAtOnce) {
  auto x = make();
  start(x, 3);
  granted(x, 0, {6});
  granted(x, 1, {6});
  said();
  x.node_gone(ranked[2], loss::node_down, out);
  EXPECT_EQ(said(), n(0) + ":abandon/0 " + n(1) + ":abandon/0 ended(node_down,"
                      + n(2) + ")");
}

TEST_F(MultiNodeRequest, AHoldOnAListIsLostAsAWholeWithOneOfItsNodes) {
  auto x = make();
  start(x, 2);
  granted(x, 0, {6});
  granted(x, 1, {6});
  said();
  x.node_gone(ranked[0], loss::node_down, out);
  EXPECT_EQ(said(), n(1) + ":abandon/0 lost(1)");
  EXPECT_EQ(x.state(), request_phase::ended);
}

TEST_F(MultiNodeRequest, AnEveryNodeHoldShrinksAndStays) {
  auto x = make(node_choice::every_node);
  start(x, 3);
  granted(x, 0, {6});
  granted(x, 1, {6});
  granted(x, 2, {6});
  said();
  x.view_changed({ranked[1], ranked[2]}, out);
  x.check_invariants();
  EXPECT_EQ(said(), "left(" + n(0) + ")");
  EXPECT_EQ(x.state(), request_phase::granted);
  x.release({}, out);
  EXPECT_EQ(said(), n(1) + ":release " + n(2) + ":release");
}

TEST_F(MultiNodeRequest, KeepsItsPlaceWhileTheLeadStays) {
  auto x = make(node_choice::every_node);
  start(x, 2);
  said();
  x.view_changed({ranked[0], ranked[2], ranked[3]}, out);
  x.check_invariants();
  EXPECT_EQ(said(), "");
  granted(x, 0, {6});
  EXPECT_EQ(said(), n(2) + ":request/0 " + n(3) + ":request/0");
  x.view_changed({ranked[0], ranked[1], ranked[3]}, out);
  EXPECT_EQ(said(), n(1) + ":request/0");
  granted(x, 1, {6});
  EXPECT_EQ(said(), "");
  x.view_changed({ranked[0], ranked[1]}, out);
  EXPECT_EQ(said(), "whole(6)");
}

TEST_F(MultiNodeRequest, ANewLeadMeansANewAttemptWithTheSameAge) {
  auto x = make(node_choice::every_node);
  x.start({ranked[1], ranked[2]}, {5}, out);
  granted(x, 1, {6});
  granted(x, 2, {8});
  said();
  x.view_changed(ranked, out);
  x.check_invariants();
  EXPECT_EQ(said(),
            n(1) + ":abandon/0 " + n(2) + ":abandon/0 " + n(0) + ":request/1");
  EXPECT_EQ(x.age().lamport, 11u);
  granted(x, 0, {6}); // an old attempt
  EXPECT_EQ(said(), n(0) + ":abandon/0");
}

TEST_F(MultiNodeRequest, AnEmptyListIsGrantedAndHoldsNothing) {
  auto x = make();
  start(x, 0);
  EXPECT_EQ(said(), "whole(0)");
  x.release({}, out);
  EXPECT_EQ(said(), "");
  EXPECT_EQ(x.state(), request_phase::ended);
}

TEST_F(MultiNodeRequest, AGrantThatFitsNothingIsGivenBack) {
  auto x = make();
  start(x, 2);
  said();
  granted(x, 1, {6}); // was not asked
  EXPECT_EQ(said(), n(1) + ":abandon/0");
  granted(x, 3, {6}); // is none of its nodes
  EXPECT_EQ(said(), n(3) + ":abandon/0");
  granted(x, 0, {6, 7}); // too many tokens
  EXPECT_EQ(said(), n(0) + ":abandon/0 ended(scope_closed," + n(0) + ")");
}

TEST_F(MultiNodeRequest, APartialGrantThatIsOutrankedGivesWay) {
  auto x = make();
  start(x, 2);
  granted(x, 0, {6});
  said();
  x.lost(ranked[0], {x.id(), 0, true}, out);
  EXPECT_EQ(said(),
            n(0) + ":abandon/0 " + n(1) + ":abandon/0 " + n(0) + ":request/1");
}

TEST_F(MultiNodeRequest, AGrantThatIsOutrankedBeforeItIsHeardOfGivesWayToo) {
  auto x = make();
  start(x, 2);
  granted(x, 0, {9});
  said();
  // The grant is on its way behind this.
  x.lost(ranked[1], {x.id(), 0, false}, out);
  x.check_invariants();
  EXPECT_EQ(said(),
            n(0) + ":abandon/0 " + n(1) + ":abandon/0 " + n(0) + ":request/1");
  granted(x, 1, {8});
  EXPECT_EQ(said(), n(1) + ":abandon/0");
}

TEST_F(MultiNodeRequest, AWholeGrantAnswersThatItIsWholeBeforeItLoses) {
  auto x = make(node_choice::listed,
                {{term{"t"}, exclusive}, {term{"u"}, exclusive}});
  start(x, 1, {5, 5});
  granted(x, 0, {6, 6});
  said();
  x.lost(ranked[0], {x.id(), 1, true}, out);
  EXPECT_EQ(said(), n(0) + ":raise/0");
  x.lost(ranked[0], {x.id(), 1, false}, out);
  EXPECT_EQ(said(), "lost(1) " + n(0) + ":release");
  x.lost(ranked[0], {x.id(), 1, false}, out);
  EXPECT_EQ(said(), "") << "it is told once";
  EXPECT_EQ(x.state(), request_phase::granted) << "the other term is held";
}

TEST_F(MultiNodeRequest, AGrantThatNobodyHasSeenIsTakenBackAsIfItHadNotBeen) {
  // A release would leave the rows exclusive as long as the session holds them
  // otherwise.
  auto x = make(node_choice::every_node, {{term{"t"}, exclusive}});
  start(x, 1, {5});
  granted(x, 0, {6});
  said();
  x.take_back(out);
  EXPECT_EQ(said(), n(0) + ":abandon/0");
  EXPECT_EQ(x.state(), request_phase::ended);
  x.take_back(out);
  EXPECT_EQ(said(), "");
}

TEST_F(MultiNodeRequest, WhatWasGivenUpKeepsItsPlaceInAHandOver) {
  auto x = make(node_choice::every_node,
                {{term{"t"}, exclusive}, {term{"u"}, exclusive}});
  start(x, 1, {5, 5});
  granted(x, 0, {6, 8});
  x.release(std::vector<std::uint16_t>{0}, out);
  x.downgrade(1, out);
  auto over = x.hand_over_to(ranked[1]);
  x.check_invariants();
  EXPECT_EQ(over.tokens, (std::vector<fencing_token>{0, 8}));
  EXPECT_EQ(over.terms[1].mode, shared);
  out.clear();
  x.release({}, out);
  EXPECT_EQ(said(), n(0) + ":release " + n(1) + ":release");
}

/// Random events against a twin that knows, per node, only what was last said
/// to it. Whatever happens: in the end each node was told to give back what it
/// was asked for, and the client heard of exactly one end.
TEST_F(MultiNodeRequest, RandomEventsLeaveNothingBehindOnAnyNode) {
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    std::mt19937 random{seed};
    auto below
      = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    auto every = below(2) == 0;
    auto x = make(every ? node_choice::every_node : node_choice::listed);
    // The attempt that a node was asked for, and may hold.
    std::map<node_slot, attempt_number> owes;
    auto ends = 0;
    auto wholes = 0;
    auto feed = [&] {
      x.check_invariants();
      for (auto& e : std::exchange(out, {})) {
        if (auto* s = std::get_if<effect::send>(&e)) {
          if (auto* r = std::get_if<request_message>(&s->what))
            owes[s->to] = r->attempt;
          else if (auto* a = std::get_if<abandon_message>(&s->what)) {
            if (owes.count(s->to) != 0 && owes[s->to] <= a->attempt)
              owes.erase(s->to);
          } else if (std::holds_alternative<release_message>(s->what))
            owes.erase(s->to);
        }
        ends += std::holds_alternative<effect::ended>(e);
        wholes += std::holds_alternative<effect::whole>(e);
      }
    };
    std::vector<node_slot> view{ranked[0], ranked[1], ranked[2]};
    x.start(view, {5}, out);
    feed();
    for (int i = 0; i < 30 && x.state() != request_phase::ended; ++i) {
      auto node = slot(below(4));
      auto attempt = below(8) == 0 ? x.attempt() - 1 : x.attempt();
      switch (below(every ? 8 : 7)) {
        case 0:
        case 1:
        case 2:
          x.granted(node, {x.id(), attempt, {6 + below(3)}}, 1, out);
          break;
        case 3:
          x.raised(node, {x.id(), attempt}, out);
          break;
        case 4:
          if (below(8) == 0) {
            // A refusal of the present attempt holds nothing any more.
            if (attempt == x.attempt() && x.pending())
              owes.erase(node);
            x.refused(node, {x.id(), attempt, outcome::busy}, out);
          }
          break;
        case 5:
          if (below(4) == 0)
            x.lost(node, {x.id(), 0, below(2) == 0}, out);
          break;
        case 6:
          if (!every && below(6) == 0) {
            owes.erase(node);
            x.node_gone(node, loss::node_down, out);
          }
          break;
        default:
          view.clear();
          for (std::size_t j = 0; j < 4; ++j)
            if (below(2) == 0)
              view.push_back(slot(j));
          if (view.empty())
            view.push_back(node);
          for (std::size_t j = 0; j < 4; ++j)
            if (std::find(view.begin(), view.end(), slot(j)) == view.end())
              owes.erase(slot(j));
          x.view_changed(view, out);
      }
      feed();
    }
    if (x.pending())
      x.cancel(outcome::timeout, out);
    else if (x.state() == request_phase::granted)
      x.release({}, out);
    feed();
    EXPECT_EQ(x.state(), request_phase::ended);
    EXPECT_EQ(ends + wholes, 1) << "seed " << seed;
    EXPECT_TRUE(owes.empty()) << "seed " << seed;
  }
}
