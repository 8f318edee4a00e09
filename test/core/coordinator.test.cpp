// The home side alone. Whole scopes are simulated in test/sim.

#include "pawl/core/coordinator.hpp"

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
  // The hold on both nodes, and the request at its lead.
  EXPECT_NE(text.find("1:abandon 0:abandon 1:abandon"), std::string::npos)
    << text;
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
  home.downgraded({a, 1}, term{"t"}, out);
  EXPECT_EQ(said(), "0:abandon 0:request") << "this node has done its part";
}

TEST_F(Coordinator, ADowngradeOfALockForThisNodeAloneIsOneOfTheSession) {
  // A request for all nodes, granted here because of that lock, would be whole
  // as exclusive while it is shared here.
  join();
  auto pending = spec(node_choice::every_node);
  home.open(pending, out);
  auto lead = std::get<effect::send>(out.back()).to;
  home.receive(lead, granted_message{pending.id, 0, {900}}, out);
  said();
  home.downgraded({a, 1}, term{"another"}, out);
  EXPECT_EQ(said(), "");
  home.downgraded({a, 1}, term{"t"}, out);
  auto text = said();
  EXPECT_NE(text.find("abandon"), std::string::npos) << text;
  EXPECT_EQ(home.find(pending.id)->attempt(), 1u);
  home.downgraded({a, 77}, term{"t"}, out);
  EXPECT_EQ(said(), "");
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
  join();
  auto first = spec(node_choice::every_node);
  home.open(first, out);
  grant_all();
  auto second = spec(node_choice::every_node);
  second.terms[0].mode = shared;
  home.open(second, out);
  grant_all();
  home.release(first.id, {}, out);
  said();
  home.downgraded({a, 1}, term{"t"}, out);
  EXPECT_EQ(said(), "1:downgrade") << "this node has done its part";
  home.release(second.id, {}, out);
  said();
  home.downgraded({a, 1}, term{"t"}, out);
  EXPECT_EQ(said(), "");
}
