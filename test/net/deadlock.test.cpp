// Deadlocks across nodes.

#include "pawl/test/net/cluster_fixture.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>

namespace pawl::testing {
namespace {

class deadlock_net : public cluster_test {
protected:
  /// Told on all nodes that run.
  std::uint64_t told(const std::vector<std::string>& nodes) {
    std::uint64_t result = 0;
    for (const auto& x : nodes)
      result += (*this)[x].tags->statistics().ended(outcome::deadlock);
    return result;
  }

  std::size_t waiters(const std::string& node, const std::string& what) {
    return (*this)[node].tags->waiters(what).size();
  }
};

std::string name(std::size_t i) {
  return fmt::format("t{}", i);
}

// Each asks the other's node while it holds nothing, and takes what the other
// one asks for while its own request is on the way.
TEST_F(deadlock_net, of_locks_taken_while_a_request_is_on_its_way_is_found) {
  configure_and_start({"a", "b"});
  for (std::size_t i = 0; i < 100; ++i) {
    auto p = fmt::format("p{}", i);
    auto q = fmt::format("q{}", i);
    client x{*(*this)["a"].system, tags("a")};
    client y{*(*this)["b"].system, tags("b")};
    auto x_far = x.on({"b"}, p);
    auto x_near = x.here(q);
    auto y_far = y.on({"a"}, q);
    auto y_near = y.here(p);
    // One of each two is granted at once or after the other one has ended; who
    // is told of a deadlock gives up what it holds.
    auto all_end = eventually([&] {
      for (auto& [who, far, near] : {std::tie(x, x_far, x_near),
                                     std::tie(y, y_far, y_near)})
        if (far->how != outcome::pending && near->how != outcome::pending)
          who.kill();
      return !x_far->pending() && !x_near->pending() && !y_far->pending()
             && !y_near->pending();
    });
    ASSERT_TRUE(all_end) << i;
  }
}

TEST_F(deadlock_net, of_a_ring_tells_exactly_one_and_the_others_finish) {
  for (std::vector<std::string> nodes :
       {std::vector<std::string>{"a"}, {"a", "b"}, {"a", "b", "c"}}) {
    configure_and_start(nodes);
    for (std::size_t n : {2u, 3u, 8u, 64u}) {
      auto before = told(nodes);
      std::vector<client*> all;
      std::vector<attempt_ptr> first;
      std::vector<attempt_ptr> second;
      // Each holds a term on its own node and asks for the next one's.
      auto home = [&](std::size_t i) { return nodes[i % n % nodes.size()]; };
      for (std::size_t i = 0; i < n; ++i) {
        all.push_back(&new_client(home(i)));
        first.push_back(all[i]->on({home(i)}, name(i)));
        ASSERT_EQ(first[i]->get(), outcome::granted);
      }
      for (std::size_t i = 0; i < n; ++i)
        second.push_back(all[i]->on({home(i + 1)}, name((i + 1) % n)));
      ASSERT_TRUE(eventually([&] { return told(nodes) == before + 1; }))
        << nodes.size() << " nodes, " << n;
      auto victim = n;
      ASSERT_TRUE(eventually([&] {
        for (std::size_t i = 0; i < n; ++i)
          if (second[i]->how == outcome::deadlock)
            victim = i;
        return victim < n;
      }));
      EXPECT_EQ(second[victim]->why.cycle.size(), n);
      first[victim]->held.release();
      for (std::size_t k = 1; k < n; ++k) {
        auto i = (victim + n - k) % n;
        EXPECT_EQ(second[i]->get(), outcome::granted);
        second[i]->held.release();
        first[i]->held.release();
      }
      EXPECT_EQ(told(nodes), before + 1);
    }
    end_all();
  }
}

TEST_F(deadlock_net, of_two_upgraders_on_two_nodes_tells_one) {
  configure_and_start({"a", "b"});
  auto& a = new_client("a");
  auto& b = new_client("b");
  auto from_a = a.everywhere("t", shared);
  auto from_b = b.everywhere("t", shared);
  ASSERT_EQ(from_a->get(), outcome::granted);
  ASSERT_EQ(from_b->get(), outcome::granted);
  auto up_a = a.everywhere("t");
  auto up_b = b.everywhere("t");
  ASSERT_TRUE(eventually([&] { return told({"a", "b"}) == 1; }));
  ASSERT_TRUE(eventually([&] {
    return up_a->how == outcome::deadlock || up_b->how == outcome::deadlock;
  }));
  auto a_lost = up_a->how == outcome::deadlock;
  (a_lost ? from_a : from_b)->held.release();
  EXPECT_EQ((a_lost ? up_b : up_a)->get(), outcome::granted);
}

// The search begins at `b`, where a request of `who` has ended that would have
// let another one of its in, past the stranger; who waits for `who` at home.
TEST_F(deadlock_net,
       that_arises_when_a_request_of_its_own_is_cancelled_is_found) {
  configure_and_start({"a", "b"});
  auto& holder = new_client("b");
  auto& who = new_client("a");
  auto& stranger = new_client("a");
  auto held = holder.here("far");
  auto mine = who.here("near");
  ASSERT_EQ(held->get(), outcome::granted);
  ASSERT_EQ(mine->get(), outcome::granted);
  cancel_source stop;
  auto first = who.ask([&](const session& s) {
    return s.lock("far", exclusive).on({"b"}).cancel_with(stop.token());
  });
  ASSERT_TRUE(eventually([&] { return waiters("b", "far") == 1; }));
  auto ahead = stranger.on({"b"}, "far");
  ASSERT_TRUE(eventually([&] { return waiters("b", "far") == 2; }));
  auto second = who.on({"b"}, "far");
  ASSERT_TRUE(eventually([&] { return waiters("b", "far") == 3; }));
  auto near = stranger.here("near");
  ASSERT_TRUE(eventually([&] { return waiters("a", "near") == 1; }));
  stop.cancel();
  EXPECT_EQ(first->get(), outcome::cancelled);
  ASSERT_TRUE(eventually([&] { return told({"a", "b"}) == 1; }));
  EXPECT_TRUE(eventually([&] {
    return near->how == outcome::deadlock || ahead->how == outcome::deadlock;
  }));
  mine->held.release();
  held->held.release();
}

// Case 29: A waits on two nodes, for two sessions, one of which waits for A.
TEST_F(deadlock_net, through_a_request_that_waits_on_two_nodes_is_found) {
  configure_and_start({"a", "b", "c"});
  auto& who = new_client("a");
  auto& left = new_client("b");
  auto& right = new_client("c");
  auto mine = who.here("mine");
  ASSERT_EQ(mine->get(), outcome::granted);
  auto on_b = left.here("t");
  auto on_c = right.here("t");
  ASSERT_EQ(on_b->get(), outcome::granted);
  ASSERT_EQ(on_c->get(), outcome::granted);
  // The lead is one of the three; the others are asked once it has granted.
  auto all = who.everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  auto closes_c = right.on({"a"}, "mine");
  auto closes_b = left.on({"a"}, "mine");
  ASSERT_TRUE(eventually([&] { return told({"a", "b", "c"}) >= 1; }));
  for (const auto& x : {mine, on_b, on_c})
    x->held.release();
  // Each gives up what it gets, in whatever order that is.
  EXPECT_TRUE(eventually([&] {
    auto over = true;
    for (const auto& x : {all, closes_b, closes_c}) {
      if (x->how == outcome::granted)
        x->held.release();
      over = over && !x->pending();
    }
    return over;
  }));
}

// Case 35 and more: whatever their node sets, they wait in line.
TEST_F(deadlock_net, is_never_told_because_of_requests_for_one_term) {
  configure_and_start({"a", "b", "c"});
  std::mt19937_64 random{7};
  std::vector<std::vector<std::string>> sets{
    {"a", "b"}, {"b", "c"}, {"a", "c"}, {"a", "b", "c"}, {"b"}};
  std::vector<std::string> nodes{"a", "b", "c"};
  std::vector<attempt_ptr> all;
  for (int i = 0; i < 200; ++i) {
    auto& who = new_client(nodes[random() % 3]);
    all.push_back(random() % 3 == 0 ? who.everywhere("t")
                                    : who.on(sets[random() % 5], "t"));
  }
  for (auto left = all; !left.empty();) {
    ASSERT_TRUE(eventually([&] {
      return std::any_of(left.begin(), left.end(),
                         [](const auto& x) { return !x->pending(); });
    }));
    std::erase_if(left, [](const auto& x) {
      if (x->pending())
        return false;
      EXPECT_EQ(x->how, outcome::granted);
      x->held.release();
      return true;
    });
  }
  EXPECT_EQ(told(nodes), 0u);
}

// A node that dies takes its edges with it.
TEST_F(deadlock_net, is_not_told_if_a_node_of_the_cycle_dies) {
  configure_and_start({"a", "b", "c"}, 500ms);
  auto& x = new_client("a");
  auto& y = new_client("b");
  auto& z = new_client("c");
  auto on_a = x.here("t");
  auto on_b = y.here("t");
  auto on_c = z.here("t");
  for (const auto& i : {on_a, on_b, on_c})
    ASSERT_EQ(i->get(), outcome::granted);
  auto waits = x.on({"b"}, "t");
  ASSERT_TRUE(eventually([&] { return waiters("b", "t") == 1; }));
  auto dies = y.on({"c"}, "t");
  ASSERT_TRUE(eventually([&] { return waiters("c", "t") == 1; }));
  crash("b");
  auto closes = z.on({"a"}, "t");
  ASSERT_EQ(waits->get(), outcome::node_down);
  EXPECT_EQ(told({"a", "c"}), 0u);
  on_a->held.release();
  EXPECT_EQ(closes->get(), outcome::granted);
}

TEST_F(deadlock_net, in_random_order_is_always_resolved) {
  configure_and_start({"a", "b"});
  std::mt19937_64 random{11};
  std::vector<std::string> nodes{"a", "b"};
  struct one {
    client* who;
    std::vector<attempt_ptr> held;
    std::size_t left = 3;
  };
  std::vector<one> all;
  for (int i = 0; i < 12; ++i)
    all.push_back({&new_client(nodes[random() % 2]), {}, 3});
  std::size_t finished = 0;
  std::size_t victims = 0;
  auto next = [&](one& x) {
    auto what = name(random() % 4);
    auto dice = random() % 3;
    x.held.push_back(dice == 0   ? x.who->everywhere(what)
                     : dice == 1 ? x.who->on({nodes[random() % 2]}, what)
                                 : x.who->here(what));
    --x.left;
  };
  auto give_up = [](one& x) {
    for (auto& y : x.held)
      y->held.release();
    x.held.clear();
    x.left = 3;
  };
  for (auto& x : all)
    next(x);
  auto progress = [&] {
    auto moved = false;
    for (auto& x : all) {
      auto how = x.held.back()->how.load();
      if (how == outcome::pending)
        continue;
      moved = true;
      if (how == outcome::granted && x.left > 0) {
        next(x);
        continue;
      }
      finished += how == outcome::granted;
      victims += how == outcome::deadlock;
      EXPECT_TRUE(how == outcome::granted || how == outcome::deadlock);
      give_up(x);
      next(x);
    }
    return moved;
  };
  while (finished < 400)
    ASSERT_TRUE(eventually(progress, 20s)) << "stuck after " << finished;
  std::printf("%zu finished, %zu restarts\n", finished, victims);
  EXPECT_GT(victims, 0u);
  for (auto& x : all)
    x.who->kill();
}

/// Locks that a test of many takes; PAWL_LOCKS sets another number.
std::uint64_t many_locks(std::uint64_t usual) {
  const auto* text = std::getenv("PAWL_LOCKS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : usual;
}

/// `count` terms of `all`, each once, in random order.
std::vector<std::size_t> some_of(std::size_t all, std::size_t count,
                                 std::mt19937& random) {
  std::vector<std::size_t> result(all);
  std::iota(result.begin(), result.end(), std::size_t{0});
  std::shuffle(result.begin(), result.end(), random);
  result.resize(count);
  return result;
}

TEST_F(deadlock_net, is_never_told_to_requests_for_many_terms_at_once) {
  const std::vector<std::string> nodes{"a", "b", "c"};
  configure_and_start(nodes);
  const auto wanted = many_locks(1'000'000);
  std::atomic<std::uint64_t> taken{0};
  std::atomic<int> odd{0};
  std::vector<std::thread> threads;
  // On each node one asks everywhere, and two just there, for terms that overlap.
  for (unsigned t = 0; t < 9; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random{t};
      auto s = (*this)[nodes[t % 3]].tags->attach();
      while (taken < wanted) {
        std::vector<term_lock> what;
        for (auto i : some_of(40, 5, random))
          what.push_back({make_term(name(i)),
                          random() % 3 == 0 ? exclusive : shared});
        auto ask = s.lock_all(std::move(what)).within(30s);
        auto held = t < 3 ? std::move(ask).on(every_node).wait()
                          : std::move(ask).wait();
        if (held)
          taken += 5;
        else
          ++odd;
      }
    });
  for (auto& x : threads)
    x.join();
  EXPECT_EQ(odd, 0);
  EXPECT_EQ(told(nodes), 0u);
}

TEST_F(deadlock_net, is_never_told_to_who_takes_locks_in_one_order) {
  for (std::vector<std::string> nodes :
       {std::vector<std::string>{"a", "b"}, {"a", "b", "c"}}) {
    configure_and_start(nodes);
    const auto wanted = many_locks(10'000);
    std::atomic<std::uint64_t> taken{0};
    std::atomic<int> odd{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random{t};
        auto s = (*this)[nodes[t % nodes.size()]].tags->attach();
        while (taken < wanted) {
          auto terms = some_of(20, 4, random);
          std::sort(terms.begin(), terms.end());
          std::vector<lock> held;
          for (auto i : terms) {
            auto mode = random() % 2 == 0 ? exclusive : shared;
            auto x = s.lock(name(i), mode).on(every_node).within(30s).wait();
            if (x)
              held.push_back(std::move(*x));
            else
              ++odd;
          }
          taken += held.size();
        }
      });
    for (auto& x : threads)
      x.join();
    EXPECT_EQ(odd, 0);
    EXPECT_EQ(told(nodes), 0u) << nodes.size() << " nodes";
    end_all();
  }
}

} // namespace
} // namespace pawl::testing
