// Whether a node that did not run for a while may believe in what it holds.

#include "pawl/net/cluster_board.hpp"

#include <gtest/gtest.h>

using namespace pawl;
using namespace std::chrono_literals;

namespace {

using time_point = cluster_board::time_point;

constexpr auto me = node_slot{0};
constexpr auto peer = node_slot{1};

struct board : ::testing::Test {
  cluster_board all{2, me, 1000ms};
  time_point start{1'000'000s};
  /// When the link came up over which holds were exchanged.
  time_point exchanged{};

  void ran(link_epoch epoch, std::chrono::milliseconds heard,
           std::chrono::milliseconds now) {
    all.ran(peer, epoch, start + heard, start + now);
  }

  [[nodiscard]] bool awake(std::chrono::milliseconds now) const {
    return all.awake([this](node_slot) { return exchanged; }, start + now);
  }

  /// Linked in epoch 5, and stopped for two seconds.
  void sleep() {
    ran(5, 0ms, 0ms);
    all.gap(peer, start + 2000ms);
    ran(5, 0ms, 2000ms);
  }
};

} // namespace

TEST_F(board, a_node_that_runs_is_awake) {
  ran(5, 0ms, 100ms);
  EXPECT_TRUE(awake(200ms));
}

TEST_F(board, a_node_that_has_not_run_for_half_of_node_timeout_is_not_awake) {
  ran(5, 0ms, 0ms);
  EXPECT_TRUE(awake(499ms));
  EXPECT_FALSE(awake(500ms));
}

TEST_F(board, a_node_that_slept_is_not_awake_before_the_link_is_heard) {
  sleep();
  EXPECT_FALSE(awake(2001ms));
  ran(5, 1999ms, 2100ms);
  EXPECT_FALSE(awake(2101ms)) << "what it heard was for before it slept";
  ran(5, 2001ms, 2200ms);
  EXPECT_TRUE(awake(2201ms));
}

TEST_F(board, a_new_link_counts_when_holds_were_exchanged_over_it) {
  sleep();
  ran(0, 0ms, 2010ms);
  ran(6, 2020ms, 2030ms);
  EXPECT_FALSE(awake(2031ms)) << "linked is not exchanged";
  exchanged = start + 1000ms;
  EXPECT_FALSE(awake(2031ms)) << "an older exchange does not count";
  exchanged = start + 2030ms;
  EXPECT_TRUE(awake(2031ms));
}

TEST_F(board, a_peer_that_stays_down_counts_no_more_after_node_timeout) {
  sleep();
  ran(0, 0ms, 2500ms);
  EXPECT_FALSE(awake(2501ms));
  ran(0, 0ms, 3000ms);
  EXPECT_TRUE(awake(3001ms));
}

// It would be told that it holds nothing each time a peer came back.
TEST_F(board, a_sleep_that_is_over_is_over_whatever_links_do_later) {
  sleep();
  ran(5, 2001ms, 2200ms); // heard
  ran(0, 0ms, 2300ms);
  EXPECT_TRUE(awake(2301ms));
  ran(7, 2400ms, 2400ms);
  EXPECT_TRUE(awake(2401ms)) << "before anything is exchanged in epoch 7";

  all.gap(peer, start + 5000ms);
  ran(0, 0ms, 5000ms);
  ran(8, 5010ms, 5010ms);
  EXPECT_FALSE(awake(5011ms));
  exchanged = start + 5010ms;
  ran(0, 0ms, 5100ms);
  ran(9, 5200ms, 5200ms);
  EXPECT_TRUE(awake(5201ms)) << "epoch 8 has served";
}

TEST_F(board, a_second_sleep_counts_again) {
  sleep();
  exchanged = start + 2030ms;
  ran(6, 2020ms, 2030ms);
  ASSERT_TRUE(awake(2031ms));
  all.gap(peer, start + 5000ms);
  ran(6, 2020ms, 5000ms);
  EXPECT_FALSE(awake(5001ms));
}
