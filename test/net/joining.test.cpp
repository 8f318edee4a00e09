// Nodes that come and go: joining, restarts, scopes that are opened and closed,
// and peers that do not fit.

#include "pawl/test/net/cluster_fixture.hpp"

#include <random>

namespace pawl::testing {
namespace {

using joining = cluster_test;

// Case 12.
TEST_F(joining, node_knows_what_is_held_before_it_grants_anything) {
  configure({"a", "b", "c"}, 500ms);
  start("a");
  start("b");
  ASSERT_TRUE(sees("a", {"a", "b"}));
  ASSERT_TRUE(sees("b", {"a", "b"}));
  auto writer = new_client("a").everywhere("t");
  ASSERT_EQ(writer->get(), outcome::granted);
  auto reader = new_client("b").everywhere("r", shared);
  ASSERT_EQ(reader->get(), outcome::granted);
  auto& c = start("c");
  // Asked while it joins: it waits, and finds the holder.
  auto early = c.new_client().here("t", shared);
  auto early_reader = c.new_client().here("r", shared);
  EXPECT_EQ(early_reader->get(), outcome::granted);
  ASSERT_TRUE(c.tags->ready());
  ASSERT_EQ(holders("c", "t"), 1u);
  EXPECT_EQ(tags("c").holders("t")[0].home, "a");
  EXPECT_EQ(tags("c").holders("t")[0].token, writer->held.token());
  EXPECT_TRUE(early->pending());
  EXPECT_EQ(c.new_client().try_here("r"), outcome::busy);
  // A release reaches the node that joined.
  writer->held.release();
  ASSERT_EQ(early->get(), outcome::granted);
  early->held.release();
  auto later = c.new_client().everywhere("t");
  ASSERT_EQ(later->get(), outcome::granted);
  EXPECT_GT(later->held.token(), writer->held.token());
}

TEST_F(joining, node_makes_its_own_requests_wait_and_is_busy_for_those_that_do_not) {
  configure({"a", "b"}, 1s);
  auto begin = std::chrono::steady_clock::now();
  start("a");
  EXPECT_EQ(new_client("a").try_here("t"), outcome::busy);
  auto busy = new_client("a").ask([](const session& s) {
    return s.lock("t", exclusive).on(every_node).no_wait();
  });
  EXPECT_EQ(busy->get(), outcome::busy);
  auto here = new_client("a").here("t");
  auto wide = new_client("a").everywhere("w");
  auto late = new_client("a").ask(
    [](const session& s) { return s.lock("l", exclusive).within(50ms); });
  EXPECT_EQ(late->get(), outcome::timeout);
  EXPECT_EQ(here->get(), outcome::granted);
  EXPECT_EQ(wide->get(), outcome::granted);
  // b was found down when no handshake had succeeded within node-timeout.
  auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, 1s);
  EXPECT_LT(took, 8s);
}

TEST_F(joining, node_delays_no_request_of_the_others) {
  configure({"a", "b", "c"}, 500ms);
  start("a");
  start("b");
  ASSERT_TRUE(sees("a", {"a", "b"}));
  std::atomic<bool> enough{false};
  std::atomic<int> granted{0};
  std::atomic<int> failed{0};
  std::thread locks{[&] {
    auto s = tags("a").attach();
    while (!enough) {
      auto held = s.lock("t", exclusive).on(every_node).within(5s).wait();
      ++(held ? granted : failed);
    }
  }};
  // Case 28: it dies in the middle of joining, at another moment each time.
  for (int i = 0; i < 8; ++i) {
    start("c");
    auto before = granted.load();
    if (i % 2 == 0) {
      EXPECT_TRUE(eventually([&] { return granted > before + i; }));
    }
    crash("c");
  }
  start("c");
  EXPECT_TRUE(sees("c", {"a", "b", "c"}));
  auto before = granted.load();
  EXPECT_TRUE(eventually([&] { return granted > before + 10; }));
  enough = true;
  locks.join();
  EXPECT_EQ(failed, 0);
}

TEST_F(joining, node_refuses_to_open_a_scope_whose_name_no_peer_would_read) {
  configure_and_start({"a", "b"});
  std::string longest(1024, 'n');
  try {
    auto tags = (*this)["a"].here->open(longest + "n");
    FAIL() << "it is open";
  } catch (const node_error& why) {
    EXPECT_EQ(std::string{why.what()},
              "the name of a scope has 1025 bytes, and may have 1024");
  }
  auto here = (*this)["a"].here->open(longest);
  auto there = (*this)["b"].here->open(longest);
  EXPECT_TRUE(eventually([&] {
    return here.ready_nodes().size() == 2 && there.ready_nodes().size() == 2;
  }));
  EXPECT_TRUE(here.attach().lock("t", exclusive).on(every_node).wait());
}

TEST_F(joining, node_that_opens_the_scope_later_is_asked_from_then_on) {
  configure({"a", "b", "c"});
  start("a");
  start("b", false);
  start("c", false);
  // Both answer that they have not opened it: it is ready without a time-out.
  ASSERT_TRUE(sees("a", {"a"}));
  auto& c = new_client("a");
  auto held = c.everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto no = new_client("a").on({"b"}, "t");
  ASSERT_EQ(no->get(), outcome::scope_closed);
  EXPECT_EQ(no->why.node, "b");
  (*this)["b"].open();
  ASSERT_TRUE(sees("b", {"a", "b"}));
  EXPECT_EQ(new_client("b").try_here("t", shared), outcome::busy);
  (*this)["c"].open();
  ASSERT_TRUE(all_joined());
  EXPECT_EQ(new_client("c").try_here("t", shared), outcome::busy);
  held->held.release();
  EXPECT_TRUE(becomes_free("t"));
}

TEST_F(joining, nodes_shrink_a_hold_when_one_closes_the_scope_and_widen_it_again) {
  configure_and_start({"a", "b"});
  auto& c = new_client("a");
  auto held = c.everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  tags("b").close();
  EXPECT_TRUE(c.hears("node_left b"));
  EXPECT_TRUE(held->held.still_held());
  (*this)["b"].clients.clear();
  (*this)["b"].open();
  ASSERT_TRUE(all_joined());
  EXPECT_EQ(new_client("b").try_here("t", shared), outcome::busy);
  EXPECT_EQ(held->held.release(), release_result::released);
  EXPECT_TRUE(becomes_free("t"));
}

// Cases 3, 20: the old incarnation holds T, the new one asks for it.
TEST_F(joining, node_that_comes_back_is_granted_what_its_old_life_held) {
  configure_and_start({"a", "b", "c"});
  fencing_token last = 0;
  for (int i = 0; i < 3; ++i) {
    auto held = new_client("b").everywhere("t");
    ASSERT_EQ(held->get(), outcome::granted);
    EXPECT_GT(held->held.token(), last);
    last = held->held.token();
    auto behind = new_client("c").everywhere("t");
    ASSERT_TRUE(somebody_waits("t"));
    crash("b");
    start("b");
    auto again = new_client("b").everywhere("t");
    ASSERT_EQ(behind->get(), outcome::granted);
    EXPECT_GT(behind->held.token(), last);
    behind->held.release();
    ASSERT_EQ(again->get(), outcome::granted);
    EXPECT_GT(again->held.token(), behind->held.token());
    last = again->held.token();
    again->held.release();
    ASSERT_TRUE(all_joined());
  }
}

// Case 26.
TEST_F(joining, nodes_all_anew_make_old_handles_fail_fast) {
  configure_and_start({"a", "b"});
  auto held = new_client("a").everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto waits = new_client("b").everywhere("t");
  ASSERT_TRUE(somebody_waits("t"));
  auto old = held->held.token();
  crash("a");
  crash("b");
  EXPECT_FALSE(held->held.still_held());
  start_all();
  EXPECT_FALSE(held->held.still_held());
  EXPECT_EQ(held->held.mode(), lock_mode::none);
  auto fresh = new_client("b").everywhere("t");
  ASSERT_EQ(fresh->get(), outcome::granted);
  EXPECT_GT(fresh->held.token(), old);
  EXPECT_NE(held->held.release(), release_result::released);
  EXPECT_TRUE(fresh->held.still_held());
  EXPECT_EQ(holders("a", "t"), 1u);
}

// A hand-over races grants, releases and downgrades of other threads: a scope is
// closed and opened again all the while.
TEST_F(joining, scope_sees_each_hold_whole_while_others_lock_and_release) {
  configure_and_start({"a", "b", "c"});
  constexpr int terms = 4;
  constexpr int rounds = 1700; // six threads of it: 10^4
  std::atomic<int> writers[terms] = {};
  std::atomic<int> readers[terms] = {};
  std::atomic<int> faults{0};
  std::atomic<int> odd{0};
  std::atomic<int> running{6};
  std::mutex odd_lock;
  std::string odd_text;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      auto& where = tags(t % 2 == 0 ? "a" : "b");
      auto s = where.attach();
      std::mt19937 random{static_cast<unsigned>(t)};
      for (int i = 0; i < rounds; ++i) {
        auto k = static_cast<int>(random() % terms);
        auto mode = random() % 2 == 0 ? exclusive : shared;
        auto held = s.lock(k, mode).on(every_node).within(20s).wait();
        if (!held) {
          ++odd;
          std::lock_guard guard{odd_lock};
          odd_text = to_string(held.error());
          continue;
        }
        if (mode == exclusive) {
          if (writers[k].fetch_add(1) != 0 || readers[k] != 0)
            ++faults;
          if (random() % 3 == 0) {
            --writers[k];
            ++readers[k];
            held->downgrade();
            if (writers[k] != 0)
              ++faults;
            --readers[k];
          } else {
            --writers[k];
          }
        } else {
          ++readers[k];
          if (writers[k] != 0)
            ++faults;
          --readers[k];
        }
        if (held->release() != release_result::released)
          ++odd;
      }
      --running;
    });
  int openings = 0;
  while (running > 0) {
    tags("c").close();
    (*this)["c"].open();
    EXPECT_TRUE(tags("c").wait_ready(20s));
    ++openings;
    // It takes part in the locking too, as soon as it can.
    auto s = tags("c").attach();
    auto k = openings % terms;
    auto held = s.lock(k, exclusive).within(20s).wait();
    if (held && (writers[k] != 0 || readers[k] != 0))
      ++faults;
    if (!held)
      ++odd;
  }
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(faults, 0);
  EXPECT_EQ(odd, 0) << odd_text;
  EXPECT_GT(openings, 10);
  for (int k = 0; k < terms; ++k)
    EXPECT_TRUE(eventually([&] { return tags("c").holders(k).empty(); }));
}

// -- who does not fit ---------------------------------------------------------

/// Lines of the log, while it lives.
class log_lines {
public:
  log_lines() {
    set_log_sink([this](log_level, const std::string& x) {
      std::lock_guard guard{lock_};
      all_ += x + "\n";
    });
  }

  ~log_lines() {
    set_log_sink({});
  }

  bool has(const std::string& x) {
    return eventually([&] {
      std::lock_guard guard{lock_};
      return all_.find(x) != std::string::npos;
    });
  }

  std::string all() {
    std::lock_guard guard{lock_};
    return all_;
  }

private:
  std::mutex lock_;
  std::string all_;
};

// Case 10.
TEST_F(joining, node_with_another_time_out_is_told_so_and_the_others_go_on) {
  log_lines log;
  configure({"a", "b", "c"}, 500ms);
  options_["c"].node_timeout = 700ms;
  for (std::string x : {"a", "b", "c"})
    start(x);
  EXPECT_TRUE(sees("a", {"a", "b"}));
  EXPECT_TRUE(sees("b", {"a", "b"}));
  EXPECT_TRUE(sees("c", {"c"}));
  EXPECT_TRUE(log.has("node 'a' has a pawl.node-timeout of 500 ms, node 'c' of "
                      "700 ms"))
    << log.all();
  EXPECT_EQ(new_client("b").everywhere("t")->get(), outcome::granted);
  auto no = new_client("a").on({"c"}, "t");
  EXPECT_EQ(no->get(), outcome::node_down);
}

TEST_F(joining, nodes_that_list_each_other_under_other_names_go_on_apart) {
  log_lines log;
  configure({"a", "b", "c"}, 500ms);
  // What calls itself z is at the address at which the others look for c.
  auto z = options_.at("c");
  options_.erase("c");
  z.name = "z";
  for (auto& x : z.peers)
    if (x.starts_with("c="))
      x[0] = 'z';
  options_["z"] = z;
  for (std::string x : {"a", "b", "z"})
    start(x);
  EXPECT_TRUE(sees("a", {"a", "b"}));
  EXPECT_TRUE(sees("b", {"a", "b"}));
  EXPECT_TRUE(sees("z", {"z"}));
  EXPECT_TRUE(log.has("node 'z' is not among the nodes a, b, c of node 'a'"))
    << log.all();
  EXPECT_EQ(new_client("a").everywhere("t")->get(), outcome::granted);
  EXPECT_EQ(new_client("z").everywhere("t")->get(), outcome::granted);
}

TEST_F(joining, node_under_a_name_in_use_is_refused_and_the_others_go_on) {
  log_lines log;
  configure_and_start({"a", "b"}, 1s);
  auto held = new_client("b").everywhere("t");
  ASSERT_EQ(held->get(), outcome::granted);
  auto second = options_.at("b");
  second.listen = fmt::format("127.0.0.1:{}", free_port());
  {
    member newcomer{second, true};
    EXPECT_TRUE(log.has(fmt::format(
      "the name 'b' is in use: the node at {} answers under it, so the one at "
      "{} is refused",
      options_.at("b").listen, second.listen)))
      << log.all();
    // It would be alone in its view, and grant itself what `held` is.
    EXPECT_FALSE(newcomer.tags->wait_ready(2500ms));
    EXPECT_FALSE(newcomer.here->open("later").wait_ready(2500ms));
  }
  EXPECT_TRUE(held->held.still_held());
  EXPECT_TRUE(sees("a", {"a", "b"}));
  EXPECT_EQ(new_client("a").try_here("t", shared), outcome::busy);
}

} // namespace
} // namespace pawl::testing
