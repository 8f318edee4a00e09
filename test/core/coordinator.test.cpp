// The home side alone, and then whole scopes from seeds.

#include "pawl/core/coordinator.hpp"
#include "scope_cluster.hpp"

#include <gtest/gtest.h>

using namespace pawl;

namespace {

constexpr auto a = static_cast<node_slot>(0);
constexpr auto b = static_cast<node_slot>(1);

struct Coordinator : ::testing::Test {
  explicit Coordinator(const std::string& scope = "s")
    : home{{scope, {"a", "b"}, a, time_point{100}, 7}, table, clock} {
    home.open_scope(time_point{0}, out);
  }

  request_spec spec(node_choice choice, std::vector<node_slot> nodes = {}) {
    request_spec x;
    x.id = {a, ++serial};
    x.session = {a, 1};
    x.terms = {{term{"t"}, exclusive}};
    x.choice = choice;
    x.nodes = std::move(nodes);
    return x;
  }

  /// The exchange with `b`, which hands nothing over.
  void join() {
    home.link_up(b, 4, out);
    home.receive(b, scope_opened_message{7}, out);
    home.receive(b, hand_over_message{}, out);
    home.installed(b, 4, 0, out);
  }

  std::string said() {
    std::string result;
    auto add = [&](const std::string& x) {
      result += (result.empty() ? "" : " ") + x;
    };
    for (auto& e : std::exchange(out, {})) {
      if (auto* s = std::get_if<effect::send>(&e))
        add(std::to_string(to_index(s->to)) + ":"
            + std::string{name_of(s->what)});
      else if (auto* x = std::get_if<effect::ended>(&e))
        add("ended(" + std::string{to_string(x->why)} + ")");
      else if (std::holds_alternative<effect::whole>(e))
        add("whole");
      else if (std::holds_alternative<effect::ready>(e))
        add("ready");
    }
    home.check_invariants();
    return result;
  }

  /// Answers whatever is asked, until nothing is.
  void grant_all() {
    for (int i = 0; i < 4; ++i)
      for (auto& e : std::exchange(out, {}))
        if (auto* s = std::get_if<effect::send>(&e)) {
          if (auto* r = std::get_if<request_message>(&s->what))
            home.receive(s->to, granted_message{r->id, r->attempt, {900}}, out);
        } else if (std::holds_alternative<effect::whole>(e)) {
          ++wholes;
        }
  }

  lamport_clock clock;
  lock_table table{{.slot = a}};
  coordinator home;
  scope_effects out;
  std::uint64_t serial = 0;
  int wholes = 0;
};

} // namespace

TEST_F(Coordinator, OwnRequestsWaitWhileTheScopeJoins) {
  home.open(spec(node_choice::every_node), out);
  EXPECT_EQ(said(), "");
  auto x = spec(node_choice::every_node);
  x.no_wait = true;
  home.open(x, out);
  EXPECT_EQ(said(), "ended(busy)");
  home.tick(time_point{100}, out);
  EXPECT_EQ(said(), "ready 0:request");
}

TEST_F(Coordinator, ARequestThatWaitsForTheScopeCanBeCancelled) {
  auto x = spec(node_choice::every_node);
  home.open(x, out);
  home.cancel(x.id, outcome::timeout, out);
  EXPECT_EQ(said(), "ended(timeout)");
  home.tick(time_point{100}, out);
  EXPECT_EQ(said(), "ready");
  EXPECT_EQ(home.requests(), 0u);
}

TEST_F(Coordinator, GreetsHandsOverAcknowledgesAndIsReady) {
  home.link_up(b, 4, out);
  EXPECT_EQ(said(), "1:scope_opened");
  home.receive(b, scope_opened_message{7}, out);
  EXPECT_EQ(said(), "1:hand_over");
  home.receive(b, hand_over_message{}, out);
  EXPECT_EQ(said(), "");
  home.installed(b, 4, 0, out);
  EXPECT_EQ(said(), "1:hand_over_ack ready");
}

TEST_F(Coordinator, AListNamesNodesThatAreThereOrEnds) {
  home.tick(time_point{100}, out);
  said();
  home.open(spec(node_choice::listed, {a, b}), out);
  EXPECT_EQ(said(), "ended(node_down)");
  home.link_up(b, 4, out);
  said();
  home.open(spec(node_choice::listed, {b}), out);
  EXPECT_EQ(said(), "") << "the exchange is under way";
  home.receive(b, hand_over_message{false, {}, 0}, out);
  EXPECT_EQ(said(), "ended(scope_closed)");
}

TEST_F(Coordinator, AHoldIsHandedOverAndReleasedOnWhoCameMeanwhile) {
  home.tick(time_point{100}, out);
  auto x = spec(node_choice::every_node);
  home.open(x, out);
  grant_all();
  EXPECT_EQ(wholes, 1);
  out.clear();
  home.link_up(b, 4, out);
  home.receive(b, scope_opened_message{7}, out);
  home.release(x.id, {}, out);
  ASSERT_GE(out.size(), 4u);
  auto text = said();
  EXPECT_NE(text.find("1:hand_over"), std::string::npos);
  EXPECT_LT(text.find("1:hand_over"), text.find("1:release")) << text;
}

TEST_F(Coordinator, APeerWithOtherSettingsIsNotInTheView) {
  home.link_up(b, 4, out);
  said();
  home.receive(b, scope_opened_message{8}, out);
  EXPECT_EQ(said(), "1:hand_over ready");
  EXPECT_FALSE(home.members().in_view(b));
}

TEST_F(Coordinator, ClosingEndsRequestsAndGivesHoldsBack) {
  join();
  home.open(spec(node_choice::every_node), out);
  grant_all();
  EXPECT_EQ(wholes, 1);
  home.open(spec(node_choice::every_node), out);
  said();
  home.close_scope(out);
  auto text = said();
  EXPECT_NE(text.find("0:release"), std::string::npos) << text;
  EXPECT_NE(text.find("1:release"), std::string::npos) << text;
  EXPECT_NE(text.find("ended(scope_closed)"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("1:scope_closed")) << text;
  EXPECT_EQ(home.requests(), 0u);
}

TEST_F(Coordinator, AnswersThatNobodyWaitsForAreGivenBackOrIgnored) {
  join();
  said();
  home.receive(b, granted_message{{a, 99}, 3, {1}}, out);
  EXPECT_EQ(said(), "1:abandon");
  home.receive(b, granted_message{{b, 99}, 3, {1}}, out);
  home.receive(b, refused_message{{a, 99}, 3, outcome::busy}, out);
  home.receive(b, raised_message{{a, 99}, 3}, out);
  EXPECT_EQ(said(), "");
  home.receive(b, lost_message{{a, 99}, 3, true}, out);
  EXPECT_EQ(said(), "1:release");
  home.receive(static_cast<node_slot>(77), scope_opened_message{7}, out);
  EXPECT_EQ(said(), "");
}

TEST_F(Coordinator, AnotherRequestOfTheSessionDoesNotGetAnOlderToken) {
  // Both have a part here, the second because of the first; then the first is
  // raised, and is whole before the second.
  join();
  said();
  auto answer = [&](std::uint64_t id, node_slot from, fencing_token token) {
    home.receive(from, granted_message{{a, id}, 0, {token}}, out);
  };
  home.open(spec(node_choice::listed, {a, b}), out);
  home.open(spec(node_choice::listed, {a, b}), out);
  auto lead = home.order().before(a, b) ? a : b;
  auto other = lead == a ? b : a;
  answer(1, lead, 900);
  answer(2, lead, 900);
  answer(1, other, 950);
  home.receive(lead, raised_message{{a, 1}, 0}, out);
  out.clear();
  answer(2, other, 950);
  EXPECT_EQ(said(), std::to_string(to_index(lead)) + ":raise");
  home.receive(lead, raised_message{{a, 2}, 0}, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(std::get<effect::whole>(out[0]).tokens[0], 950u);
}

/// The scope's order puts this node first.
struct LeadingCoordinator : Coordinator {
  LeadingCoordinator() : Coordinator(name()) {
    // nop
  }

  static std::string name() {
    const std::vector<std::string> nodes{"a", "b"};
    std::string result = "s";
    while (!node_order{result, nodes}.before(a, b))
      result += "s";
    return result;
  }
};

TEST_F(LeadingCoordinator, AnotherRequestLeftAloneGetsTheLargerTokenToo) {
  join();
  auto answer = [&](std::uint64_t id, node_slot from, fencing_token token) {
    home.receive(from, granted_message{{a, id}, 0, {token}}, out);
  };
  home.open(spec(node_choice::every_node), out);
  home.open(spec(node_choice::every_node), out);
  answer(1, a, 1000);
  answer(2, a, 1000);
  answer(1, b, 1050);
  home.receive(a, raised_message{{a, 1}, 0}, out);
  out.clear();
  home.link_down(b, 4, out);
  auto last = std::find_if(out.begin(), out.end(), [](const auto& x) {
    auto* s = std::get_if<effect::send>(&x);
    return s != nullptr && std::holds_alternative<raise_message>(s->what);
  });
  EXPECT_NE(last, out.end());
}

TEST_F(Coordinator, ADowngradeComesBeforeWhatItMakesStartAnew) {
  home.tick(time_point{100}, out);
  auto first = spec(node_choice::every_node);
  home.open(first, out);
  grant_all();
  home.open(spec(node_choice::every_node), out); // the same session and term
  said();
  home.downgrade(first.id, 0, out);
  EXPECT_EQ(said(), "0:downgrade 0:abandon 0:request");
}

TEST_F(Coordinator, WhatWasGrantedBecauseOfAHoldThatIsLostStartsAnew) {
  // The hold was outranked on a node: what the session got there because of it
  // would have its token, which is too small.
  join();
  auto first = spec(node_choice::every_node);
  home.open(first, out);
  grant_all();
  out.clear();
  auto second = spec(node_choice::every_node);
  home.open(second, out);
  auto lead = std::get<effect::send>(out.at(0)).to;
  home.receive(lead, granted_message{second.id, 0, {900}}, out);
  said();
  home.receive(b, lost_message{first.id, 0, false}, out);
  auto text = said();
  EXPECT_NE(text.find("abandon"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(std::to_string(to_index(lead)) + ":request"))
    << text;
  EXPECT_EQ(home.find(second.id)->attempt(), 1u);
}

TEST_F(Coordinator, ADowngradeByASharedHandleEndsWhatAnExclusiveOneHasLeft) {
  home.tick(time_point{100}, out);
  auto first = spec(node_choice::every_node);
  home.open(first, out);
  grant_all();
  auto second = spec(node_choice::every_node);
  second.terms[0].mode = shared;
  home.open(second, out);
  grant_all();
  home.release(first.id, {}, out);
  said();
  home.downgrade(second.id, 0, out);
  EXPECT_EQ(said(), "0:downgrade");
  home.release(second.id, {}, out);
  said();
  home.downgrade(second.id, 0, out);
  EXPECT_EQ(said(), "");
}

// -- whole scopes -------------------------------------------------------------

namespace {

/// Runs seeds 1 to `last`; the first that fails says so. `tally` sums up how
/// often something happened, so that a test can ask whether it happened at all.
std::map<std::string, std::size_t> run_seeds(std::uint64_t last,
                                             sim::cluster_options options,
                                             std::vector<std::string> tally) {
  std::map<std::string, std::size_t> result;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    options.seed = seed;
    options.nodes = 1 + seed % 4;
    sim::scope_cluster cluster{options};
    try {
      cluster.run();
    } catch (const sim::violation& x) {
      ADD_FAILURE() << "seed " << seed << ": " << x.what();
      break;
    }
    for (const auto& what : tally)
      result[what] += cluster.count(what);
  }
  return result;
}

} // namespace

TEST(ScopeCluster, EverybodyIsGrantedWithoutDeadlinesOrDetection) {
  // Requests of sessions that hold nothing else, for every node, in a view that
  // does not move: none of them has a deadline.
  auto seen = run_seeds(150, {}, {"granted", "timeout", "deadlock", "lost"});
  EXPECT_GT(seen["granted"], 5000u);
  EXPECT_EQ(seen["timeout"] + seen["deadlock"] + seen["lost"], 0u);
}

TEST(ScopeCluster, CrossingRequestsEndByTheirDeadlines) {
  auto seen = run_seeds(150, {.crossing = true}, {"granted", "crossed"});
  EXPECT_GT(seen["granted"], 3000u);
  EXPECT_GT(seen["crossed"], 0u);
}

TEST(ScopeCluster, NodesThatOpenLateGrantNothingTooEarly) {
  run_seeds(100, {.late_openers = true}, {});
  run_seeds(100, {.late_openers = true, .crossing = true}, {});
}

TEST(ScopeCluster, KilledNodesFreeWhatTheyHeldAndComeBack) {
  auto seen = run_seeds(150, {.kills = true, .late_openers = true},
                        {"kills", "node left", "handed over"});
  EXPECT_GT(seen["kills"], 100u);
  EXPECT_GT(seen["node left"], 0u);
  EXPECT_GT(seen["handed over"], 0u);
}

TEST(ScopeCluster, AfterACutOneHoldIsLeft) {
  auto seen = run_seeds(200, {.cuts = true}, {"cuts", "lost", "handed over"});
  EXPECT_GT(seen["lost"], 0u);
  EXPECT_GT(seen["handed over"], 0u);
}

TEST(ScopeCluster, EverythingAtOnce) {
  run_seeds(
    150, {.cuts = true, .kills = true, .late_openers = true, .crossing = true},
    {});
}

// -- deadlocks ----------------------------------------------------------------
// Nothing but verdicts gets these sessions on; each is checked to be a true
// cycle, and its youngest.

TEST(ScopeCluster, DeadlocksOnOneNodeAndAcrossNodesAreFound) {
  auto seen = run_seeds(400, {.terms = 5, .actions = 80, .deadlocks = true},
                        {"verdicts: deadlock", "asked again", "verdicts: probe_limit"});
  EXPECT_GT(seen["verdicts: deadlock"], 300u);
  EXPECT_GT(seen["asked again"], 20u);
  EXPECT_EQ(seen["verdicts: probe_limit"], 0u);
}

TEST(ScopeCluster, DeadlocksAreFoundWithoutAnyPatienceToo) {
  auto seen = run_seeds(
    200, {.terms = 3, .actions = 80, .deadlocks = true, .patience = 0},
    {"verdicts: deadlock", "asked again"});
  EXPECT_GT(seen["verdicts: deadlock"], 100u);
  EXPECT_GT(seen["asked again"], 50u);
}

TEST(ScopeCluster, DeadlocksAreFoundWhileNodesDieAndLinksBreak) {
  auto seen = run_seeds(200,
                        {.terms = 4,
                         .actions = 120,
                         .kills = true,
                         .late_openers = true,
                         .deadlocks = true},
                        {"verdicts: deadlock", "kills", "node_down"});
  EXPECT_GT(seen["verdicts: deadlock"], 100u);
  EXPECT_GT(seen["kills"], 100u);
  auto cut = run_seeds(
    250, {.terms = 4, .actions = 120, .cuts = true, .deadlocks = true},
    {"verdicts: deadlock", "cuts"});
  EXPECT_GT(cut["verdicts: deadlock"], 100u);
  EXPECT_GT(cut["cuts"], 100u);
}

TEST(ScopeCluster, AWalkThatIsTooLargeEndsItsRequest) {
  auto seen = run_seeds(100,
                        {.terms = 3,
                         .actions = 100,
                         .deadlocks = true,
                         .probe_limit = 3},
                        {"verdicts: probe_limit"});
  EXPECT_GT(seen["verdicts: probe_limit"], 20u);
}
