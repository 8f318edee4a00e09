// The view of a scope: who joined, who is down, and when this node may grant.

#include "pawl/core/membership.hpp"

#include <gtest/gtest.h>

#include <random>

using namespace pawl;

namespace {

using member_phase = membership::phase;
using peer_state = membership::peer_state;

constexpr auto a = static_cast<node_slot>(0);
constexpr auto b = static_cast<node_slot>(1);
constexpr auto c = static_cast<node_slot>(2);

using nodes = std::vector<node_slot>;

struct Membership : ::testing::Test {
  membership m{a, 3, time_point{100}};

  /// The whole exchange with a peer that is linked.
  void settle(node_slot peer, link_epoch epoch) {
    (void) m.scope_opened(peer);
    (void) m.handed_over(peer, true);
    (void) m.installed(peer, epoch);
    m.check_invariants();
  }
};

} // namespace

TEST_F(Membership, IsReadyWhenEachPeerIsSettledAbsentOrDown) {
  (void) m.link_up(b, 5);
  EXPECT_EQ(m.open(time_point{0}).greet, nodes{b});
  settle(b, 5);
  EXPECT_EQ(m.state(), member_phase::joining);
  (void) m.link_up(c, 6);
  EXPECT_TRUE(m.handed_over(c, false).became_ready);
  EXPECT_EQ(m.state_of(c), peer_state::absent);
  EXPECT_EQ(m.view(), (nodes{a, b}));
}

TEST_F(Membership, APeerThatNobodyHeardOfIsDownAfterNodeTimeout) {
  (void) m.open(time_point{50});
  EXPECT_EQ(m.next_deadline(), time_point{150});
  EXPECT_FALSE(m.tick(time_point{149}).became_ready);
  EXPECT_TRUE(m.tick(time_point{150}).became_ready);
  EXPECT_EQ(m.view(), nodes{a});
  EXPECT_FALSE(m.next_deadline());
}

// A scope that is closed and opened again must not take a peer for dead that is
// only slow to acknowledge the closing: it would lead beside it.
TEST_F(Membership, APeerWhoseLinkIsStillBeingLeftIsNotDownForBeingUnheard) {
  (void) m.open(time_point{50});
  m.peer_is_up(b);
  EXPECT_FALSE(m.tick(time_point{150}).became_ready) << "c is down, b is not";
  EXPECT_FALSE(m.next_deadline());
  EXPECT_FALSE(m.tick(time_point{100'000}).became_ready);
  m.check_invariants();
  (void) m.link_up(b, 5);
  settle(b, 5);
  EXPECT_EQ(m.state(), member_phase::ready);
  EXPECT_EQ(m.view(), (nodes{a, b}));
}

// What closed may be an older scope of the peer's, and the one that it has open
// by now may hold everything.
TEST_F(Membership, AClosedScopeResolvesNothingBeforeTheGreetingIsAnswered) {
  (void) m.open(time_point{0});
  (void) m.rejected(c);
  (void) m.link_up(b, 5);
  EXPECT_FALSE(m.scope_closed(b).became_ready);
  EXPECT_EQ(m.state_of(b), peer_state::linked);
  EXPECT_TRUE(m.handed_over(b, false).became_ready);
  EXPECT_EQ(m.state_of(b), peer_state::absent);
}

// The rows do not have its holds yet: what were granted before would be lost
// against them, though they are over.
TEST_F(Membership,
       AScopeThatIsClosedAfterItsHandOverIsAbsentWhenThatIsInstalled) {
  (void) m.open(time_point{0});
  (void) m.rejected(c);
  (void) m.link_up(b, 5);
  (void) m.scope_opened(b);
  (void) m.handed_over(b, true);
  EXPECT_FALSE(m.scope_closed(b).became_ready);
  EXPECT_EQ(m.view(), nodes{a});
  m.check_invariants();
  auto now = m.installed(b, 5);
  EXPECT_TRUE(now.became_ready);
  EXPECT_TRUE(now.acknowledge.empty());
  EXPECT_EQ(m.state_of(b), peer_state::absent);
  EXPECT_EQ(m.view(), nodes{a});
  m.check_invariants();
}

TEST_F(Membership,
       AScopeThatIsOpenedAgainBeforeItsHandOverIsInstalledIsSettled) {
  (void) m.open(time_point{0});
  (void) m.rejected(c);
  (void) m.link_up(b, 5);
  (void) m.scope_opened(b);
  (void) m.handed_over(b, true);
  (void) m.scope_closed(b);
  (void) m.scope_opened(b);
  EXPECT_TRUE(m.installed(b, 5).became_ready);
  EXPECT_EQ(m.state_of(b), peer_state::settled);
  EXPECT_EQ(m.view(), (nodes{a, b}));
  m.check_invariants();
}

// It would count all its peers as down, and lead beside its namesake.
TEST_F(Membership, TheSecondNodeOfANameBecomesReadyOnlyWhenAPeerTakesItIn) {
  (void) m.open(time_point{50});
  m.peer_is_up(b);
  (void) m.rejected(c);
  EXPECT_FALSE(m.tick(time_point{100'000}).became_ready);
  m.check_invariants();
  (void) m.link_up(b, 5);
  settle(b, 5);
  EXPECT_EQ(m.state(), member_phase::ready);
}

TEST_F(Membership, ALinkThatGoesDownWhileItIsBeingLeftIsDown) {
  (void) m.open(time_point{50});
  m.peer_is_up(b);
  (void) m.tick(time_point{150});
  EXPECT_TRUE(m.link_down(b, 5).became_ready);
  m.check_invariants();
  EXPECT_EQ(m.view(), nodes{a});
}

TEST_F(Membership, ALinkedPeerThatHasNotHandedOverIsWaitedFor) {
  (void) m.open(time_point{0});
  (void) m.link_up(b, 5);
  (void) m.tick(time_point{1000});
  EXPECT_EQ(m.state(), member_phase::joining);
  (void) m.link_down(b, 5);
  EXPECT_EQ(m.state(), member_phase::ready);
}

TEST_F(Membership, ARejectedPeerIsDownAtOnce) {
  (void) m.open(time_point{0});
  (void) m.rejected(b);
  EXPECT_TRUE(m.rejected(c).became_ready);
}

TEST_F(Membership, WhoOpensTheScopeEntersTheViewAndIsHandedOverToInOneStep) {
  (void) m.open(time_point{0});
  (void) m.link_up(b, 5);
  auto x = m.scope_opened(b);
  EXPECT_TRUE(x.view_changed);
  EXPECT_EQ(x.hand_over, nodes{b});
  EXPECT_TRUE(m.in_view(b));
  EXPECT_FALSE(m.resolved(b)) << "it may hold what this node does not know";
}

TEST_F(Membership, WhoHasNotOpenedTheScopeSaysSo) {
  (void) m.link_up(b, 5);
  EXPECT_EQ(m.scope_opened(b).decline, nodes{b});
  EXPECT_FALSE(m.in_view(b));
}

TEST_F(Membership, AnAbsentPeerThatOpensLaterIsSettled) {
  (void) m.open(time_point{0});
  (void) m.link_up(b, 5);
  (void) m.handed_over(b, false);
  auto x = m.scope_opened(b);
  EXPECT_EQ(x.hand_over, nodes{b});
  EXPECT_EQ(m.state_of(b), peer_state::settled);
  EXPECT_EQ(m.scope_closed(b).left, nodes{b});
  EXPECT_EQ(m.state_of(b), peer_state::absent);
}

TEST_F(Membership, ANewEpochEndsTheOldOneFirst) {
  (void) m.open(time_point{0});
  (void) m.link_up(b, 5);
  settle(b, 5);
  auto x = m.link_up(b, 9);
  EXPECT_EQ(x.left, nodes{b});
  EXPECT_EQ(x.greet, nodes{b});
  EXPECT_EQ(m.state_of(b), peer_state::linked);
  EXPECT_TRUE(m.link_down(b, 5).left.empty()) << "of an old epoch";
  EXPECT_EQ(m.state_of(b), peer_state::linked);
}

TEST_F(Membership, AHandOverOfAnOldEpochSettlesNothing) {
  (void) m.open(time_point{0});
  (void) m.link_up(b, 5);
  (void) m.handed_over(b, true);
  (void) m.link_up(b, 6);
  (void) m.installed(b, 5);
  EXPECT_EQ(m.state_of(b), peer_state::linked);
  (void) m.installed(b, 6);
  EXPECT_EQ(m.state_of(b), peer_state::linked) << "nothing was handed over";
}

TEST_F(Membership, StaysReadyWhenAPeerComesBack) {
  (void) m.open(time_point{0});
  (void) m.tick(time_point{100});
  EXPECT_EQ(m.state(), member_phase::ready);
  (void) m.link_up(b, 5);
  EXPECT_EQ(m.state(), member_phase::ready);
  settle(b, 5);
  EXPECT_EQ(m.view(), (nodes{a, b}));
}

/// Whatever comes, in whatever order: the invariants hold, and ready means that
/// at that moment no peer was unresolved (V2).
TEST_F(Membership, RandomEventsKeepTheInvariants) {
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    std::mt19937 random{seed};
    membership x{a, 3, time_point{100}};
    auto was = member_phase::unopened;
    for (int i = 0; i < 40; ++i) {
      auto peer = static_cast<node_slot>(random() % 5);
      link_epoch epoch = random() % 3;
      membership::changes out;
      switch (random() % 13) {
        case 0:
          if (x.state() == member_phase::unopened)
            out = x.open(time_point{i});
          break;
        case 1:
        case 2:
          out = x.link_up(peer, epoch);
          break;
        case 3:
          out = x.link_down(peer, epoch);
          break;
        case 4:
          out = x.rejected(peer);
          break;
        case 5:
          out = x.scope_opened(peer);
          break;
        case 6:
          out = x.handed_over(peer, random() % 4 != 0);
          break;
        case 7:
        case 8:
          out = x.installed(peer, epoch);
          break;
        case 9:
          out = x.scope_closed(peer);
          break;
        case 10:
          out = x.mismatched(peer);
          break;
        case 11:
          x.peer_is_up(peer);
          break;
        default:
          out = x.tick(time_point{i * 4});
      }
      x.check_invariants();
      EXPECT_EQ(out.became_ready,
                x.state() == member_phase::ready && was != member_phase::ready);
      if (out.became_ready) {
        EXPECT_TRUE(x.resolved(b) && x.resolved(c)) << "seed " << seed;
      }
      was = x.state();
    }
  }
}
