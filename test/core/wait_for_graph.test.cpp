#include "pawl/core/wait_for_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace pawl;

namespace {

session_id session(std::uint64_t serial) {
  return {static_cast<node_slot>(serial % 3), serial};
}

/// The wait of a session by its n-th request, on its home unless told.
wait_name wait(std::uint64_t who, std::uint64_t n = 0) {
  auto id = session(who);
  return {id, {id.home, who * 100 + n + 1}, 0, id.home};
}

blocker holder(std::uint64_t who) {
  blocker x;
  x.session = session(who);
  x.request = {x.session.home, 0};
  return x;
}

blocked_wait blocked(std::uint64_t who, std::vector<std::uint64_t> by,
                     std::uint64_t n = 0) {
  blocked_wait x;
  x.wait = wait(who, n);
  x.what = term{static_cast<int>(who)};
  for (auto b : by)
    x.by.push_back(holder(b));
  return x;
}

/// "1 2 3": whose waits the cycle is made of.
std::string shape(const std::optional<wait_for_graph::cycle>& x) {
  if (!x)
    return "none";
  std::string result;
  for (const auto& e : *x)
    result += (result.empty() ? "" : " ")
              + std::to_string(e.wait.session.serial);
  return result;
}

TEST(wait_for_graph, finds_the_cycle_through_its_origin) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2}), {});
  g.add(blocked(2, {3}), {});
  EXPECT_EQ(shape(g.find_cycle()), "none");
  g.add(blocked(3, {4, 1}), {});
  EXPECT_EQ(shape(g.find_cycle()), "1 2 3");
  g.check_invariants();
}

TEST(wait_for_graph, does_not_report_a_cycle_that_its_origin_is_not_in) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2}), {});
  g.add(blocked(2, {3}), {});
  g.add(blocked(3, {2}), {});
  EXPECT_EQ(shape(g.find_cycle()), "none");
}

// Case 31: A alone holds S and asks X.
TEST(wait_for_graph, ignores_that_a_session_is_in_its_own_way) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {1}), {});
  EXPECT_EQ(shape(g.find_cycle()), "none");
  EXPECT_EQ(g.edges(), 0u);
  g.check_invariants();
}

TEST(wait_for_graph, follows_all_waits_of_a_session) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2}, 0), {});
  g.add(blocked(1, {3}, 1), {});
  g.add(blocked(3, {1}), {});
  EXPECT_EQ(shape(g.find_cycle()), "1 3");
}

TEST(wait_for_graph, asks_for_each_session_and_each_wait_once) {
  wait_for_graph g{session(1)};
  g.reach(wait(1));
  g.reach(wait(1));
  EXPECT_EQ(g.take_waits(), (std::vector{wait_question{wait(1), {}}}));
  g.add(blocked(1, {2, 3, 2}), {});
  EXPECT_EQ(g.take_sessions(), (std::vector{session(3), session(2)}));
  g.add(session_waits{session(2), {wait(2)}});
  g.add(session_waits{session(2), {wait(2)}});
  EXPECT_EQ(g.take_waits(), (std::vector{wait_question{wait(2), {}}}));
  g.add(blocked(2, {3}), {});
  EXPECT_TRUE(g.take_sessions().empty() && g.take_waits().empty());
  EXPECT_EQ(g.visited(), 4u); // two sessions, two waits
}

TEST(wait_for_graph, does_not_ask_for_what_came_unasked) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2}), {});
  g.add(session_waits{session(2), {wait(2)}});
  g.add(blocked(2, {3}), {});
  g.add(session_waits{session(3), {}});
  EXPECT_TRUE(g.take_sessions().empty() && g.take_waits().empty());
  g.check_invariants();
}

TEST(wait_for_graph, asks_its_origin_only_if_told_to) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2}), {});
  g.add(blocked(2, {1}), {});
  EXPECT_EQ(g.take_sessions(), std::vector{session(2)});
  g.reach(session(1));
  g.reach(session(1));
  EXPECT_EQ(g.take_sessions(), std::vector{session(1)});
}

TEST(wait_for_graph, finds_another_way_when_an_edge_is_over) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2, 3}), {});
  g.add(blocked(2, {1}), {});
  g.add(blocked(3, {4}), {});
  g.add(blocked(4, {1}), {});
  auto first = g.find_cycle();
  EXPECT_EQ(shape(first), "1 2");
  g.remove(first->front());
  EXPECT_EQ(shape(g.find_cycle()), "1 3 4");
  // What is over does not come back.
  g.add(blocked(1, {2}), {});
  EXPECT_EQ(shape(g.find_cycle()), "1 3 4");
  g.remove(wait(4).request, 0);
  EXPECT_EQ(shape(g.find_cycle()), "none");
  g.check_invariants();
}

// A shared request names only the first exclusive one ahead.
TEST(wait_for_graph, asks_again_who_is_ahead_when_the_first_one_is_over) {
  wait_for_graph g{session(1)};
  auto x = blocked(1, {2});
  x.mode = lock_mode::shared;
  x.by[0].how = blocker::kind::queued;
  x.by[0].request = wait(2).request;
  g.add(x, {});
  g.add(blocked(3, {2}), {});
  EXPECT_TRUE(g.take_waits().empty());
  auto over = wait(2);
  over.node = x.wait.node;
  g.remove(over);
  EXPECT_EQ(g.take_waits(),
            (std::vector{wait_question{x.wait, {{wait(2).request, 0}}}}));
  EXPECT_TRUE(g.take_waits().empty());
}

TEST(wait_for_graph, forgets_what_a_lost_node_has_said) {
  wait_for_graph g{session(1)};
  g.add(blocked(1, {2}), {});
  g.add(blocked(2, {1}), {});
  g.remove(session(2).home);
  EXPECT_EQ(shape(g.find_cycle()), "none");
  EXPECT_TRUE(g.take_sessions().empty() && g.take_waits().empty());
  g.check_invariants();
}

TEST(wait_for_graph, the_youngest_has_the_largest_age_and_none_is_largest) {
  std::vector<session_age> ages{
    {7, session(5)}, {9, session(1)}, {9, session(4)}, {8, session(6)}};
  EXPECT_EQ(youngest(ages), 2u); // of two of an age, by session id
  ages.push_back({session_age::holds_nothing, session(2)});
  EXPECT_EQ(youngest(ages), 4u);
}

// The twin keeps all edges and searches every path.
TEST(wait_for_graph, agrees_with_a_naive_twin_on_random_graphs) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random{seed};
    auto below = [&](std::uint64_t n) { return random() % n; };
    wait_for_graph g{session(0)};
    std::vector<wait_for_graph::edge> twin;
    std::vector<wait_for_graph::edge> over;
    auto same = [](const wait_for_graph::edge& a,
                   const wait_for_graph::edge& b) {
      return a.wait == b.wait && a.by.session == b.by.session
             && a.by.request == b.by.request && a.by.attempt == b.by.attempt;
    };
    auto has = [&](const auto& all, const wait_for_graph::edge& x) {
      return std::any_of(all.begin(), all.end(),
                         [&](const auto& y) { return same(x, y); });
    };
    auto sessions = 2 + below(8);
    for (int step = 0; step < 60; ++step) {
      auto dice = below(10);
      if (dice < 7) {
        auto who = below(sessions);
        std::vector<std::uint64_t> by;
        for (auto n = below(3); n > 0; --n)
          by.push_back(below(sessions));
        auto x = blocked(who, by, below(2));
        g.add(x, {});
        for (const auto& b : x.by) {
          wait_for_graph::edge e{x.wait, x.what, x.mode, b, {}};
          if (b.session != x.wait.session && !has(twin, e) && !has(over, e))
            twin.push_back(e);
        }
      } else if (dice < 9 && !twin.empty()) {
        auto e = twin[below(twin.size())];
        g.remove(e);
        over.push_back(e);
        std::erase_if(twin, [&](const auto& y) { return same(e, y); });
      } else {
        auto gone = wait(below(sessions), below(2)).request;
        g.remove(gone, 0);
        for (const auto& e : twin)
          if (e.wait.request == gone)
            over.push_back(e);
        std::erase_if(twin, [&](const auto& e) {
          return e.wait.request == gone;
        });
      }
      g.check_invariants();
      ASSERT_EQ(g.edges(), twin.size());
      // Shortest distance from the origin back to it, by naive relaxation.
      std::map<session_id, std::size_t> far{{session(0), 0}};
      std::size_t shortest = 0;
      for (std::size_t round = 0; round <= sessions && shortest == 0; ++round) {
        auto known = far;
        for (const auto& e : twin) {
          auto from = known.find(e.wait.session);
          if (from == known.end() || from->second != round)
            continue;
          if (e.by.session == session(0))
            shortest = round + 1;
          else
            far.emplace(e.by.session, round + 1);
        }
      }
      auto found = g.find_cycle();
      ASSERT_EQ(found ? found->size() : 0, shortest) << "seed " << seed;
      if (!found)
        continue;
      EXPECT_EQ(found->front().wait.session, session(0));
      for (std::size_t i = 0; i < found->size(); ++i) {
        ASSERT_TRUE(has(twin, (*found)[i]));
        ASSERT_EQ((*found)[i].by.session,
                  (*found)[(i + 1) % found->size()].wait.session);
      }
    }
  }
}

} // namespace
