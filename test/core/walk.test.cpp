#include "pawl/core/walk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

using namespace pawl;

namespace {

/// Sessions that wait for each other, on nodes that talk.
class world {
public:
  explicit world(std::size_t nodes, std::size_t limit = 10'000) {
    for (std::size_t i = 0; i < nodes; ++i)
      nodes_.push_back(std::make_unique<node>(*this, slot(i), nodes, limit));
  }

  static node_slot slot(std::size_t i) {
    return static_cast<node_slot>(i);
  }

  /// Sessions are numbers; they live on the node of their number.
  [[nodiscard]] session_id session(std::uint64_t n) const {
    return {slot(n % nodes_.size()), n};
  }

  /// `who` waits for `by` on a node, by default on that where `by` lives.
  wait_name waits(std::uint64_t who, std::vector<std::uint64_t> by,
                  int on = -1) {
    auto id = session(who);
    wait_name name{id, {id.home, ++serials_}, 0,
                   on >= 0 ? slot(static_cast<std::size_t>(on))
                           : session(by.at(0)).home};
    blocked_wait x;
    x.wait = name;
    x.what = term{static_cast<int>(by.at(0))};
    for (auto b : by)
      x.by.push_back({session(b), {session(b).home, 0}, 0,
                      blocker::kind::direct_hold});
    waits_[name] = x;
    return name;
  }

  /// `who` waits, shared, behind exclusive requests that wait on the same node.
  wait_name waits_behind(std::uint64_t who, std::vector<wait_name> ahead) {
    auto name = waits(who, {who}, static_cast<int>(to_index(ahead[0].node)));
    auto& x = waits_.at(name);
    x.mode = lock_mode::shared;
    x.by.clear();
    for (const auto& y : ahead)
      x.by.push_back({y.session, y.request, y.attempt, blocker::kind::queued});
    return name;
  }

  /// `who` waits, exclusively, behind a request that waits on the same node.
  wait_name waits_in_line(std::uint64_t who, const wait_name& ahead) {
    auto name = waits_behind(who, {ahead});
    waits_.at(name).mode = lock_mode::exclusive;
    return name;
  }

  void start(const wait_name& what, bool all = false) {
    scope_effects out;
    nodes_[to_index(what.node)]->machine.start(what, all, out);
    carry(what.node, out);
  }

  /// Delivers the oldest message.
  bool step() {
    if (mail_.empty())
      return false;
    auto x = std::move(mail_.front());
    mail_.pop_front();
    scope_effects out;
    auto& to = *nodes_[to_index(x.to)];
    to.machine.receive(x.from, x.what, out);
    carry(x.to, out);
    return true;
  }

  void settle() {
    while (step()) {
      // go on
    }
    for (const auto& n : nodes_)
      EXPECT_EQ(n->machine.running(), 0u);
  }

  void lose(node_slot which) {
    lost_ = which;
    std::erase_if(mail_, [=](const auto& x) {
      return x.from == which || x.to == which;
    });
    for (auto& n : nodes_)
      if (n->self != which) {
        scope_effects out;
        n->machine.peer_gone(which, out);
        carry(n->self, out);
      }
  }

  void find_again() {
    auto which = std::exchange(lost_, no_node);
    for (auto& n : nodes_)
      if (n->self != which) {
        scope_effects out;
        n->machine.peer_back(which, out);
        carry(n->self, out);
      }
  }

  void end(const wait_name& x) {
    waits_.erase(x);
  }

  /// Whoever is in its way is gone there, and their homes do not know it.
  void clear_the_way(const wait_name& x) {
    waits_.at(x).by.clear();
    ++own_ends[to_index(x.node)];
  }

  /// Whether a session is on a cycle, by naive search.
  [[nodiscard]] bool deadlocked(std::uint64_t who) const {
    std::set<session_id> seen;
    std::vector<session_id> next{session(who)};
    while (!next.empty()) {
      auto s = next.back();
      next.pop_back();
      for (const auto& [name, x] : waits_)
        if (name.session == s)
          for (const auto& by : x.by) {
            if (by.session == session(who) && s != by.session)
              return true;
            if (by.session != s && seen.insert(by.session).second)
              next.push_back(by.session);
          }
    }
    return false;
  }

  void peer_says(std::size_t to, std::size_t from, const message& what) {
    scope_effects out;
    nodes_[to]->machine.receive(slot(from), what, out);
    carry(slot(to), out);
  }

  std::size_t messages = 0;
  std::size_t visits = 0;
  std::size_t biggest = 0;
  std::size_t walked = 0;
  std::vector<walk_verdict_message> verdicts;
  std::map<std::uint64_t, std::uint64_t> ages; // default: the number
  standing how = standing::whole;
  bool gone = false; // holds are over, all of them
  std::map<std::size_t, std::uint64_t> own_ends; // by node
  bool whole_meanwhile = false; // what is to be given back first
  bool granted_meanwhile = false; // what is to end first

private:
  struct node final : walk_port {
    node(world& w, node_slot self, std::size_t nodes, std::size_t limit)
      : all(w), self(self), machine({self, nodes, limit}, *this) {}

    void waits_of(const session_id& who,
                  std::vector<wait_name>& out) override {
      EXPECT_EQ(who.home, self);
      for (const auto& [name, x] : all.waits_)
        if (name.session == who)
          out.push_back(name);
    }
    bool blockers_of(const wait_question& what, std::size_t limit,
                     blocked_wait& out) override {
      EXPECT_EQ(what.wait.node, self);
      auto i = all.waits_.find(what.wait);
      if (i == all.waits_.end())
        return false;
      out = i->second;
      if (out.by.size() > limit)
        out.by.resize(limit);
      if (out.mode == lock_mode::exclusive)
        return true;
      // Only the nearest of those that are ahead is named.
      std::erase_if(out.by, [&](const blocker& x) {
        attempt_name ahead{x.request, x.attempt};
        return all.waits_.count({x.session, x.request, x.attempt, self}) == 0
               || std::find(what.except.begin(), what.except.end(), ahead)
                    != what.except.end();
      });
      if (out.by.size() > 1)
        out.by.resize(1);
      return true;
    }
    bool reachable(node_slot peer) override {
      return peer != all.lost_;
    }
    std::uint64_t own_ends() override {
      return all.own_ends[to_index(self)];
    }
    bool waits_here(const wait_name& what) override {
      return all.waits_.count(what) != 0;
    }
    walk_standing standing_of(const walk_claim& x) override {
      EXPECT_EQ(x.wait.session.home, self);
      EXPECT_EQ(x.wait.session, x.by.session);
      auto n = x.wait.session.serial;
      auto age = all.ages.find(n);
      return {all.waits_.count(x.wait) != 0,
              all.gone ? standing::none : all.how,
              {age != all.ages.end() ? age->second : n, x.wait.session}};
    }
    bool sentence(const walk_verdict_message& x, scope_effects&) override {
      EXPECT_EQ(x.session.home, self);
      if (x.why == outcome::pending
          && std::exchange(all.whole_meanwhile, false)) {
        all.how = standing::whole;
        return false;
      }
      if (x.why == outcome::deadlock
          && std::exchange(all.granted_meanwhile, false)) {
        all.grant(x.request);
        return false;
      }
      all.verdicts.push_back(x);
      std::erase_if(all.waits_, [&](const auto& y) {
        return y.first.request == x.request;
      });
      if (x.why == outcome::pending) // whoever waited for it has it now
        for (auto& [name, y] : all.waits_)
          std::erase_if(y.by, [&](const blocker& b) {
            return b.request == x.request;
          });
      return true;
    }
    void walked(std::size_t visited) override {
      ++all.walked;
      all.visits += visited;
      all.biggest = std::max(all.biggest, visited);
    }

    world& all;
    node_slot self;
    walks machine;
  };

  struct letter {
    node_slot from;
    node_slot to;
    message what;
  };

  /// Those in its way let go; those behind it wait for a hold.
  void grant(const request_id& what) {
    for (auto& [name, x] : waits_)
      if (name.request == what)
        for (const auto& by : x.by)
          std::erase_if(waits_, [&](const auto& y) {
            return y.first.session == by.session;
          });
    std::erase_if(waits_,
                  [&](const auto& y) { return y.first.request == what; });
    for (auto& [name, x] : waits_)
      for (auto& by : x.by)
        if (by.request == what)
          by = {by.session, {by.session.home, 0}, 0,
                blocker::kind::direct_hold};
  }

  void carry(node_slot from, scope_effects& out) {
    for (auto& x : out) {
      auto& y = std::get<effect::send>(x);
      EXPECT_NE(y.to, from);
      ++messages;
      mail_.push_back({from, y.to, std::move(y.what)});
    }
    nodes_[to_index(from)]->machine.check_invariants();
  }

  std::vector<std::unique_ptr<node>> nodes_;
  std::map<wait_name, blocked_wait> waits_;
  std::deque<letter> mail_;
  std::uint64_t serials_ = 0;
  node_slot lost_ = no_node;
};

std::vector<std::uint64_t> victims(const world& w) {
  std::vector<std::uint64_t> result;
  for (const auto& x : w.verdicts)
    result.push_back(x.session.serial);
  return result;
}

using numbers = std::vector<std::uint64_t>;

TEST(walk, tells_the_youngest_of_a_ring_on_one_node_without_a_message) {
  world w{1};
  w.waits(1, {2});
  w.waits(2, {3});
  w.start(w.waits(3, {1}));
  EXPECT_EQ(victims(w), numbers{3});
  EXPECT_EQ(w.verdicts[0].why, outcome::deadlock);
  EXPECT_EQ(w.messages, 0u);
  ASSERT_EQ(w.verdicts[0].cycle.size(), 3u);
  w.settle();
}

TEST(walk, tells_the_youngest_whoever_closes_the_ring) {
  for (std::uint64_t last = 1; last <= 3; ++last) {
    world w{3};
    w.ages = {{1, 7}, {2, 9}, {3, 8}};
    std::vector<wait_name> all;
    for (std::uint64_t i = 1; i <= 3; ++i)
      all.push_back(w.waits(i, {i % 3 + 1}));
    w.start(all[last - 1]);
    w.settle();
    EXPECT_EQ(victims(w), numbers{2}) << last;
  }
}

// Three message delays: question, answer, verdict.
TEST(walk, takes_two_messages_to_confirm_a_ring_of_two_over_two_nodes) {
  world w{2};
  w.waits(2, {1}, 1); // waits on the node of 1
  w.start(w.waits(1, {2}, 0));
  w.settle();
  EXPECT_EQ(victims(w), numbers{2});
  EXPECT_LE(w.messages, 3u);
  world v{2};
  v.ages = {{1, 9}, {2, 3}};
  v.waits(2, {1}, 1);
  v.start(v.waits(1, {2}, 0));
  v.settle();
  EXPECT_EQ(victims(v), numbers{1});
  EXPECT_LE(v.messages, 3u);
}

TEST(walk, finds_nothing_where_nothing_is) {
  world w{3};
  w.waits(2, {3});
  w.waits(3, {4});
  w.start(w.waits(1, {2}));
  w.settle();
  EXPECT_TRUE(w.verdicts.empty());
}

TEST(walk, follows_all_waits_of_its_session_if_told_to) {
  world w{2};
  w.waits(1, {2});
  w.waits(2, {1});
  auto other = w.waits(1, {3});
  w.start(other);
  w.settle();
  EXPECT_TRUE(w.verdicts.empty());
  w.start(other, true);
  w.settle();
  EXPECT_EQ(w.verdicts.size(), 1u);
}

TEST(walk, is_over_when_its_wait_has_ended) {
  world w{2};
  w.waits(2, {1}, 1);
  auto mine = w.waits(1, {2}, 0);
  w.start(mine);
  w.end(mine);
  w.settle();
  EXPECT_TRUE(w.verdicts.empty());
}

// A wait that ended by timeout while all nodes still believe in it.
TEST(walk, tells_nobody_if_a_home_says_that_it_is_over) {
  world w{3};
  w.waits(2, {3}, 0);
  w.waits(3, {1}, 0);
  auto mine = w.waits(1, {2}, 0);
  w.gone = true;
  w.start(mine);
  w.settle();
  EXPECT_TRUE(w.verdicts.empty());
}

TEST(walk, takes_another_way_if_the_first_is_over) {
  world w{4};
  auto first = w.waits(2, {1}, 0);
  w.waits(3, {7}, 0);
  w.waits(7, {1}, 0);
  auto mine = w.waits(1, {2, 3}, 0);
  // The candidate 1 2 is seen, and is over before it is confirmed.
  w.start(mine);
  w.end(first);
  w.settle();
  EXPECT_EQ(victims(w), numbers{7});
}

TEST(walk, goes_on_for_a_second_ring_after_a_verdict) {
  world w{3};
  w.ages = {{1, 1}, {2, 2}, {3, 3}};
  w.waits(2, {1}, 1);
  w.waits(3, {1}, 2);
  w.start(w.waits(1, {2, 3}, 0));
  w.settle();
  auto all = victims(w);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (numbers{2, 3}));
}

TEST(walk, lets_the_youngest_ask_again_if_all_holds_are_partial) {
  world w{2};
  w.how = standing::partial;
  w.waits(2, {1}, 1);
  w.start(w.waits(1, {2}, 0));
  w.settle();
  ASSERT_EQ(victims(w), numbers{2});
  EXPECT_EQ(w.verdicts[0].why, outcome::pending);
  EXPECT_EQ(w.verdicts[0].request.home, w.session(2).home);
}

TEST(walk, begins_again_if_what_was_to_be_given_back_is_whole_by_then) {
  for (std::size_t nodes = 1; nodes <= 2; ++nodes) {
    world w{nodes};
    w.how = standing::partial;
    w.whole_meanwhile = true;
    w.waits(2, {1}, 0);
    w.start(w.waits(1, {2}, 0));
    w.settle();
    ASSERT_EQ(victims(w), numbers{2});
    EXPECT_EQ(w.verdicts[0].why, outcome::deadlock);
  }
}

TEST(walk, begins_again_if_what_was_to_end_has_been_granted_by_then) {
  // Who waited in line behind it now waits for its hold: the ring of 5, 6 and 8
  // is still there, and 5 is not told.
  for (std::size_t nodes = 1; nodes <= 3; ++nodes) {
    world w{nodes};
    w.granted_meanwhile = true;
    auto first = w.waits(5, {1}, 0);
    w.waits(5, {6}, static_cast<int>(nodes) - 1);
    w.waits(6, {8}, 0);
    w.waits_in_line(8, first);
    w.waits(1, {5}, 0);
    w.start(first);
    w.settle();
    EXPECT_EQ(victims(w), numbers{8}) << nodes;
  }
}

TEST(walk, passes_no_verdict_through_a_node_that_went_down) {
  for (int when = 0; when < 6; ++when) {
    world w{3};
    w.waits(2, {3}, 0);
    w.waits(3, {1}, 1);
    w.start(w.waits(1, {2}, 0));
    for (int i = 0; i < when; ++i)
      w.step();
    auto before = w.verdicts.size();
    w.lose(world::slot(2));
    w.settle();
    EXPECT_EQ(w.verdicts.size(), before);
  }
}

TEST(walk, passes_no_verdict_on_what_a_node_has_ended_by_itself) {
  // 1 -> 2 -> 4, and 4 -> 1 only after 2 -> 4 has gone, seen or not.
  for (int when = 0; when < 8; ++when) {
    world w{3};
    auto second = w.waits(2, {4}, 0);
    w.start(w.waits(1, {2}, 2));
    for (int i = 0; i < when; ++i)
      w.step();
    w.clear_the_way(second);
    w.start(w.waits(4, {1}, 1));
    w.settle();
    EXPECT_TRUE(w.verdicts.empty()) << when;
  }
}

TEST(walk, begins_anew_if_a_node_has_ended_something_else_by_itself) {
  for (int when = 0; when < 12; ++when) {
    world w{3};
    w.waits(2, {3}, 0);
    w.waits(3, {1}, 1);
    w.start(w.waits(1, {2}, 2));
    for (int i = 0; i < when; ++i)
      w.step();
    ++w.own_ends[0];
    ++w.own_ends[1];
    ++w.own_ends[2];
    w.settle();
    EXPECT_EQ(victims(w).size(), 1u) << when;
  }
}

TEST(walk, looks_past_somebody_in_a_queue_who_leaves_while_it_looks) {
  // 3 is ahead of 2, and 2 of 1; 3 waits for 1. 2 leaves at any time.
  for (int when = 0; when < 12; ++when) {
    world w{4};
    auto third = w.waits(3, {1}, 0);
    auto second = w.waits(2, {3}, 0);
    w.start(w.waits_behind(1, {second, third}));
    for (int i = 0; i < when; ++i)
      w.step();
    w.end(second);
    w.settle();
    EXPECT_EQ(victims(w), numbers{3}) << when;
  }
}

TEST(walk, begins_again_when_the_peer_that_it_had_to_do_without_is_back) {
  // Also if it was the verdict that was lost.
  for (int when = 0; when < 6; ++when) {
    world w{2};
    w.waits(2, {1}, 1);
    w.start(w.waits(1, {2}, 0));
    for (int i = 0; i < when; ++i)
      w.step();
    w.lose(static_cast<node_slot>(1));
    w.settle();
    w.find_again();
    w.settle();
    ASSERT_EQ(victims(w).size(), 1u) << when;
  }
}

TEST(walk, begins_again_when_a_peer_is_back_before_it_is_over) {
  // It still waits for an answer of another peer.
  world w{3};
  w.waits(4, {3}, 0);
  auto mine = w.waits(3, {4, 5}, 0);
  w.lose(static_cast<node_slot>(1));
  w.start(mine);
  w.find_again();
  w.settle();
  EXPECT_EQ(victims(w), numbers{4});
}

TEST(walk, ends_its_request_when_it_visits_more_than_its_limit) {
  for (std::size_t nodes : {1u, 3u}) {
    world w{nodes, 20};
    for (std::uint64_t i = 2; i < 100; ++i)
      w.waits(i, {i + 1});
    auto mine = w.waits(1, {2}, 0);
    w.start(mine);
    w.settle();
    ASSERT_EQ(w.verdicts.size(), 1u);
    EXPECT_EQ(w.verdicts[0].why, outcome::probe_limit);
    EXPECT_EQ(w.verdicts[0].request, mine.request);
    EXPECT_LT(w.biggest, 40u);
  }
}

TEST(walk, that_is_not_told_of_all_blockers_is_too_large) {
  // All that it is told of are of one session; 4, who waits for it, is left
  // out.
  for (std::size_t nodes : {1u, 2u}) {
    world w{nodes, 20};
    std::vector<std::uint64_t> by(30, 2);
    by.push_back(4);
    auto mine = w.waits(1, by, static_cast<int>(nodes) - 1);
    w.waits(4, {1}, 0);
    w.start(mine);
    w.settle();
    ASSERT_EQ(w.verdicts.size(), 1u);
    EXPECT_EQ(w.verdicts[0].why, outcome::probe_limit);
    EXPECT_EQ(w.verdicts[0].request, mine.request);
  }
  // The same, asked by another node.
  world w{2, 20};
  auto mine = w.waits(1, {2}, 1);
  std::vector<std::uint64_t> by(30, 4);
  by.push_back(6);
  w.waits(2, by, 0);
  w.waits(6, {1}, 0);
  w.start(mine);
  w.settle();
  ASSERT_EQ(w.verdicts.size(), 1u);
  EXPECT_EQ(w.verdicts[0].why, outcome::probe_limit);
}

TEST(walk, counts_a_session_that_it_asks_another_node_about_once) {
  constexpr std::uint64_t limit = 100;
  for (std::uint64_t n : {limit / 2 - 2, limit / 2 + 2, limit - 5}) {
    world w{2, limit};
    std::vector<std::uint64_t> by;
    for (std::uint64_t i = 0; i < n; ++i)
      by.push_back(2 * i + 1); // all of the other node
    w.start(w.waits(0, by, 0));
    w.settle();
    EXPECT_TRUE(w.verdicts.empty()) << n;
  }
}

TEST(walk, runs_once_more_if_it_is_started_while_it_runs) {
  world w{2};
  w.waits(2, {1}, 1);
  auto mine = w.waits(1, {3}, 0);
  w.start(mine);
  auto other = w.waits(1, {2}, 0);
  w.start(other);
  w.start(other);
  EXPECT_EQ(w.walked, 0u);
  w.settle();
  EXPECT_EQ(w.walked, 2u);
  EXPECT_EQ(w.verdicts.size(), 1u);
}

TEST(walk, ignores_answers_that_nobody_asked_for_and_what_a_peer_cannot_know) {
  world w{3};
  w.start(w.waits(1, {2}, 0));
  walk_answer_message lie;
  lie.walk = 1;
  lie.step = 1;
  // Node 1 speaks for a session and a wait of node 2; and of a node that is
  // not.
  blocked_wait x;
  x.wait = {w.session(2), {world::slot(2), 9}, 0, world::slot(2)};
  x.by.push_back({w.session(1), {world::slot(1), 0}, 0,
                  blocker::kind::direct_hold, false, standing::whole, {}});
  lie.waits.push_back(x);
  x.wait.node = world::slot(1);
  x.by[0].session.home = static_cast<node_slot>(99);
  lie.waits.push_back(x);
  lie.sessions.push_back({w.session(2), {{w.session(2), {}, 0, no_node}}});
  lie.standings.resize(3);
  w.peer_says(0, 1, lie);
  w.peer_says(0, 2, lie);
  lie.walk = 77;
  w.peer_says(0, 2, lie);
  walk_question_message odd;
  odd.sessions = {w.session(1), w.session(2)};
  odd.waits = {{x.wait, {}}};
  odd.claims.resize(2);
  w.peer_says(0, 1, odd);
  w.settle();
  EXPECT_TRUE(w.verdicts.empty());
}

// In worlds that only verdicts change, walks from every session leave no cycle;
// each verdict names a cycle that was one, and its youngest.
TEST(walk, leaves_no_cycle_and_names_true_ones_in_random_worlds) {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    std::mt19937_64 random{seed};
    auto below = [&](std::uint64_t n) { return random() % n; };
    world w{1 + below(4)};
    w.how = below(4) == 0 ? standing::partial : standing::whole;
    auto together = below(2) == 0;
    auto count = 2 + below(12);
    std::vector<wait_name> all;
    for (std::uint64_t i = 0; i < count; ++i)
      for (auto n = below(3); n > 0; --n) {
        std::vector<std::uint64_t> by;
        for (auto k = 1 + below(2); k > 0; --k)
          by.push_back(below(count));
        all.push_back(w.waits(i, by));
      }
    std::shuffle(all.begin(), all.end(), random);
    for (const auto& x : all) {
      w.start(x, below(2) == 0);
      if (!together)
        w.settle();
    }
    w.settle();
    found += w.verdicts.size();
    for (std::uint64_t i = 0; i < count; ++i)
      ASSERT_FALSE(w.deadlocked(i)) << "seed " << seed;
    for (const auto& v : w.verdicts) {
      session_id youngest = v.session;
      for (const auto& step : v.cycle)
        youngest = std::max(youngest, step.session,
                            [](const auto& a, const auto& b) {
                              return a.serial < b.serial;
                            });
      EXPECT_EQ(v.session, youngest) << "seed " << seed;
    }
  }
  EXPECT_GT(found, 1000u);
}

} // namespace
