// Requests of one node: every way in which one can end, and what holds and
// sessions do.

#include "fixture.hpp"

namespace pawl::testing {

using request_test = actors_test;

TEST_F(request_test, a_free_lock_is_granted_inside_the_call) {
  auto a = make_puppet();
  std::promise<bool> inside;
  tell(a, [&](caf::event_based_actor* self) {
    auto granted = false;
    tags_->activity(self).lock("t", exclusive).then(
      [&](lock held) { granted = held.mode() == exclusive; });
    inside.set_value(granted);
  });
  EXPECT_TRUE(inside.get_future().get());
}

TEST_F(request_test, a_request_that_waits_is_granted_in_its_actor) {
  auto a = make_puppet();
  auto b = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", exclusive)->get(), outcome::granted);
  auto second = ask(b, *tags_, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  tell_puppet(a, [](puppet* self) { self->held.clear(); });
  EXPECT_EQ(second->get(), outcome::granted);
  tell_puppet(b, [](puppet* self) { self->held.clear(); });
}

TEST_F(request_test, tickets_are_granted_in_order_and_tokens_grow) {
  auto a = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", exclusive)->get(), outcome::granted);
  std::vector<caf::actor> waiting;
  std::vector<result_ptr> results;
  for (std::size_t i = 0; i < 10; ++i) {
    waiting.push_back(make_puppet());
    results.push_back(ask(waiting.back(), *tags_, "t", exclusive));
    ASSERT_TRUE(eventually([&] { return waiting_for("t") == i + 1; }));
  }
  tell_puppet(a, [](puppet* self) { self->held.clear(); });
  fencing_token last = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i]->get(), outcome::granted);
    if (i + 1 < results.size()) {
      EXPECT_EQ(results[i + 1]->how.load(), outcome::pending);
    }
    EXPECT_GT(results[i]->token, last);
    last = results[i]->token;
    tell_puppet(waiting[i], [](puppet* self) { self->held.clear(); });
  }
}

TEST_F(request_test, a_shared_request_behind_a_waiting_writer_waits) {
  auto a = make_puppet();
  auto b = make_puppet();
  auto c = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", shared)->get(), outcome::granted);
  auto writer = ask(b, *tags_, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  auto reader = ask(c, *tags_, "t", shared);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 2; }));
  tell_puppet(a, [](puppet* self) { self->held.clear(); });
  EXPECT_EQ(writer->get(), outcome::granted);
  EXPECT_EQ(reader->how.load(), outcome::pending);
  tell_puppet(b, [](puppet* self) { self->held.clear(); });
  EXPECT_EQ(reader->get(), outcome::granted);
}

TEST_F(request_test, when_a_writer_gives_up_those_it_kept_waiting_are_granted) {
  auto a = make_puppet();
  auto b = make_puppet();
  auto c = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", shared)->get(), outcome::granted);
  auto writer = ask(b, *tags_, [](const session& s) {
    return s.lock("t", exclusive).within(100ms);
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("t") >= 1; }));
  auto reader = ask(c, *tags_, "t", shared);
  EXPECT_EQ(writer->get(), outcome::timeout);
  EXPECT_EQ(reader->get(), outcome::granted);
}

TEST_F(request_test, no_wait_ends_busy_and_changes_nothing) {
  auto a = make_puppet();
  auto b = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", exclusive)->get(), outcome::granted);
  auto second = ask(b, *tags_, [](const session& s) {
    return s.lock("t", shared).no_wait();
  });
  EXPECT_EQ(second->get(), outcome::busy);
  EXPECT_EQ(waiting_for("t"), 0u);
}

TEST_F(request_test, a_cancelled_request_leaves_the_queue_to_those_behind) {
  auto a = make_puppet();
  auto b = make_puppet();
  auto c = make_puppet();
  cancel_source stop;
  ASSERT_EQ(ask(a, *tags_, "t", exclusive)->get(), outcome::granted);
  auto second = ask(b, *tags_, [&](const session& s) {
    return s.lock("t", exclusive).cancel_with(stop.token());
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  auto third = ask(c, *tags_, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 2; }));
  stop.cancel();
  EXPECT_EQ(second->get(), outcome::cancelled);
  tell_puppet(a, [](puppet* self) { self->held.clear(); });
  EXPECT_EQ(third->get(), outcome::granted);
  // A token that is cancelled already ends a request before it is asked.
  auto late = ask(b, *tags_, [&](const session& s) {
    return s.lock("u", exclusive).cancel_with(stop.token());
  });
  EXPECT_EQ(late->get(), outcome::cancelled);
}

TEST_F(request_test, a_term_that_is_too_large_is_refused) {
  auto a = make_puppet();
  std::string large(term::max_size, 'x'); // and a tag
  EXPECT_EQ(ask(a, *tags_, large, exclusive)->get(), outcome::term_too_large);
  std::string fits(term::max_size - 1, 'x');
  EXPECT_EQ(ask(a, *tags_, fits, exclusive)->get(), outcome::granted);
}

TEST_F(request_test, strange_terms_are_distinct_terms) {
  auto a = make_puppet();
  using namespace std::string_literals;
  for (const auto& x : {""s, "\0"s, "\0\0"s, "\xff\xfe"s, "0"s})
    EXPECT_EQ(ask(a, *tags_, x, exclusive)->get(), outcome::granted);
  auto number = ask(a, *tags_, [](const session& s) {
    return s.lock(std::uint8_t{48}, exclusive).no_wait();
  });
  EXPECT_EQ(number->get(), outcome::granted);
  auto wider = ask(a, *tags_, [](const session& s) {
    return s.lock(std::int64_t{48}, exclusive).no_wait();
  });
  EXPECT_EQ(wider->get(), outcome::busy);
}

TEST_F(request_test, requests_of_one_session_do_not_exclude_each_other) {
  auto a = make_puppet();
  std::promise<std::vector<fencing_token>> tokens;
  tell(a, [&](caf::event_based_actor* self) {
    auto s = tags_->attach(self);
    std::vector<fencing_token> got;
    std::vector<lock> held;
    auto keep = [&](lock x) {
      got.push_back(x.token());
      held.push_back(std::move(x));
    };
    s.lock("t", exclusive).then(keep);
    s.lock("t", exclusive).then(keep);
    s.lock("t", shared).then(keep);
    held.erase(held.begin());
    got.push_back(tags_->holders("t").size());
    tokens.set_value(got);
  });
  auto got = tokens.get_future().get();
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], got[2]);
  EXPECT_EQ(got[3], 2u); // free only when the last handle goes
}

TEST_F(request_test, sessions_of_one_actor_exclude_each_other) {
  auto a = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", exclusive)->get(), outcome::granted);
  auto second = ask(a, *tags_, [](const session& s) {
    return s.lock("t", exclusive).no_wait();
  });
  EXPECT_EQ(second->get(), outcome::busy);
}

TEST_F(request_test, a_session_with_two_shared_handles_upgrades) {
  auto a = make_puppet();
  std::promise<bool> upgraded;
  tell(a, [&](caf::event_based_actor* self) {
    auto s = tags_->attach(self);
    std::vector<lock> held;
    auto keep = [&](lock x) { held.push_back(std::move(x)); };
    s.lock("t", shared).then(keep);
    s.lock("t", shared).then(keep);
    s.lock("t", exclusive).then(keep);
    upgraded.set_value(held.size() == 3 && held[2].token() > held[0].token());
  });
  EXPECT_TRUE(upgraded.get_future().get());
}

TEST_F(request_test, an_upgrade_waits_for_other_readers_and_goes_first) {
  auto a = make_puppet();
  auto b = make_puppet();
  auto c = make_puppet();
  tell_puppet(a, [this](puppet* self) {
    self->own.emplace(tags_->attach(self));
    self->own->lock("t", shared).then(
      [self](lock x) { self->held.push_back(std::move(x)); });
  });
  ASSERT_EQ(ask(b, *tags_, "t", shared)->get(), outcome::granted);
  ASSERT_TRUE(eventually([&] { return tags_->holders("t").size() == 2; }));
  auto writer = ask(c, *tags_, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  auto up = std::make_shared<result>();
  tell_puppet(a, [up](puppet* self) {
    self->own->lock("t", exclusive).then(
      [self, up](lock x) {
        self->held.push_back(std::move(x));
        up->how = outcome::granted;
      },
      [up](const failure& why) { up->ended(why); });
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 2; }));
  EXPECT_TRUE(tags_->waiters("t").front().upgrade);
  tell_puppet(b, [](puppet* self) { self->held.clear(); });
  EXPECT_EQ(up->get(), outcome::granted);
  EXPECT_EQ(writer->how.load(), outcome::pending);
  tell_puppet(a, [](puppet* self) {
    self->held.clear();
    self->own.reset();
  });
  EXPECT_EQ(writer->get(), outcome::granted);
}

TEST_F(request_test, of_two_upgraders_the_younger_is_told_deadlock_at_once) {
  auto a = make_puppet();
  auto b = make_puppet();
  auto share = [this](puppet* self) {
    self->own.emplace(tags_->attach(self));
    self->own->lock("t", shared).then(
      [self](lock x) { self->held.push_back(std::move(x)); });
  };
  auto upgrade = [](const result_ptr& out) {
    return [out](puppet* self) {
      self->own->lock("t", exclusive).then(
        [self, out](lock x) {
          self->held.push_back(std::move(x));
          out->how = outcome::granted;
        },
        [out](const failure& why) { out->ended(why); });
    };
  };
  tell_puppet(a, share);
  ASSERT_TRUE(eventually([&] { return tags_->holders("t").size() == 1; }));
  tell_puppet(b, share);
  ASSERT_TRUE(eventually([&] { return tags_->holders("t").size() == 2; }));
  auto first = std::make_shared<result>();
  auto second = std::make_shared<result>();
  tell_puppet(a, upgrade(first));
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  tell_puppet(b, upgrade(second));
  // One of the two, whichever is younger; the other gets it when that leaves.
  ASSERT_TRUE(eventually([&] {
    return first->how != outcome::pending || second->how != outcome::pending;
  }));
  auto first_lost = first->how == outcome::deadlock;
  auto& loser = first_lost ? first : second;
  auto& winner = first_lost ? second : first;
  EXPECT_EQ(loser->get(), outcome::deadlock);
  EXPECT_EQ(winner->how.load(), outcome::pending);
  EXPECT_EQ(tags_->holders("t").size(), 2u); // the loser keeps what it has
  auto drop = [](puppet* self) {
    self->held.clear();
    self->own.reset();
  };
  tell_puppet(first_lost ? a : b, drop);
  EXPECT_EQ(winner->get(), outcome::granted);
  tell_puppet(first_lost ? b : a, drop);
}

TEST_F(request_test, a_downgrade_keeps_the_token_and_lets_readers_in) {
  auto a = make_puppet();
  auto b = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "t", exclusive)->get(), outcome::granted);
  auto reader = ask(b, *tags_, "t", shared);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  std::promise<bool> same;
  tell_puppet(a, [&](puppet* self) {
    auto& x = self->held.front();
    auto token = x.token();
    same.set_value(x.downgrade() && x.token() == token && x.mode() == shared);
  });
  EXPECT_TRUE(same.get_future().get());
  EXPECT_EQ(reader->get(), outcome::granted);
}

TEST_F(request_test, a_downgrade_is_over_before_what_its_session_locks_next) {
  // What the session locks anew after a downgrade is exclusive, whatever the
  // scope's actor has still to hear of.
  for (auto wide_first : {false, true})
    for (int i = 0; i < 100; ++i) {
      auto s = tags_->attach();
      auto wide
        = s.lock("t", wide_first ? exclusive : shared).on(every_node).wait();
      ASSERT_TRUE(wide);
      auto here = s.lock("t", exclusive).wait();
      ASSERT_TRUE(here);
      EXPECT_TRUE((wide_first ? *wide : *here).downgrade());
      EXPECT_EQ(here->mode(), shared) << "of all handles";
      auto anew = s.lock("t", exclusive).no_wait().wait();
      ASSERT_TRUE(anew);
      // The scope's actor has heard of everything when this has come back.
      ASSERT_TRUE(s.lock("another", exclusive).on(every_node).wait());
      EXPECT_EQ(anew->mode(), exclusive);
      EXPECT_FALSE(tags_->attach().lock("t", shared).no_wait().wait());
    }
}

TEST_F(request_test,
       several_terms_that_are_not_granted_leave_modes_as_they_were) {
  auto a = tags_->attach();
  auto b = tags_->attach();
  auto reads = a.lock("t", shared).wait();
  auto in_the_way = b.lock("u", exclusive).wait();
  ASSERT_TRUE(reads && in_the_way);
  std::vector<term> both{term{"t"}, term{"u"}};
  auto busy = a.lock_all(both, exclusive).no_wait().wait();
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().why, outcome::busy);
  EXPECT_TRUE(b.lock("t", shared).no_wait().wait()) << "t is shared as before";
  auto late = a.lock_all(both, exclusive).within(1ms).wait();
  ASSERT_FALSE(late);
  EXPECT_TRUE(b.lock("t", shared).within(20s).wait());
}

TEST_F(request_test, a_handle_may_be_asked_while_its_session_ends) {
  for (int i = 0; i < 300; ++i) {
    auto s = tags_->attach();
    auto held = s.lock("t", exclusive).on(every_node).wait();
    ASSERT_TRUE(held);
    std::atomic<bool> asks{false};
    std::thread asker{[&] {
      asks = true;
      while (held->still_held()) {
        // again
      }
      EXPECT_FALSE(held->downgrade());
    }};
    while (!asks)
      std::this_thread::yield();
    s.end();
    asker.join();
  }
}

TEST_F(request_test, a_second_release_finds_nothing_and_touches_no_later_grant) {
  auto s = tags_->attach();
  auto first = s.lock("t", exclusive).wait();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->release(), release_result::released);
  auto other = tags_->attach();
  auto second = other.lock("t", exclusive).wait();
  ASSERT_TRUE(second);
  EXPECT_EQ(first->release(), release_result::already_released);
  EXPECT_FALSE(first->still_held());
  EXPECT_TRUE(second->still_held());
  EXPECT_EQ(tags_->holders("t").size(), 1u);
}

TEST_F(request_test, a_dropped_builder_asks_for_nothing) {
  auto s = tags_->attach();
  {
    auto unused = s.lock("t", exclusive).within(1s);
    static_cast<void>(unused);
  }
  EXPECT_TRUE(tags_->holders("t").empty());
}

TEST_F(request_test, more_waiters_than_the_scope_allows_are_refused) {
  scope_options options;
  options.max_waiters = 1;
  auto small = open_local_scope(*system_, "small", options);
  ASSERT_TRUE(small.wait_ready(20s));
  auto a = make_puppet();
  auto b = make_puppet();
  auto c = make_puppet();
  ASSERT_EQ(ask(a, small, "t", exclusive)->get(), outcome::granted);
  auto second = ask(b, small, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return small.waiters("t").size() == 1; }));
  EXPECT_EQ(ask(c, small, "t", exclusive)->get(), outcome::too_many_waiters);
  small.close();
  EXPECT_EQ(second->get(), outcome::scope_closed);
}

TEST_F(request_test, a_closed_scope_ends_what_waits_and_releases_what_is_held) {
  auto other = open_local_scope(*system_, "other");
  ASSERT_TRUE(other.wait_ready(20s));
  auto a = make_puppet();
  auto b = make_puppet();
  auto s = other.attach();
  auto mine = s.lock("t", exclusive).wait();
  ASSERT_TRUE(mine);
  auto second = ask(b, other, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return other.waiters("t").size() == 1; }));
  other.close();
  EXPECT_EQ(second->get(), outcome::scope_closed);
  EXPECT_EQ(ask(a, other, "t", exclusive)->get(), outcome::scope_closed);
  // Handles go on being harmless.
  EXPECT_EQ(mine->release(), release_result::already_released);
  EXPECT_EQ(mine->mode(), lock_mode::none);
}

TEST_F(request_test, handles_may_outlive_the_actor_system) {
  lock late;
  std::optional<session> s;
  std::optional<scope> other = open_local_scope(*system_, "other");
  ASSERT_TRUE(other->wait_ready(20s));
  s.emplace(other->attach());
  auto got = s->lock("t", exclusive).wait();
  ASSERT_TRUE(got);
  late = std::move(*got);
  other->close();
  other.reset();
  close();
  EXPECT_FALSE(late.still_held());
  EXPECT_EQ(late.release(), release_result::already_released);
  s.reset();
}

TEST_F(request_test, several_terms_are_granted_all_or_none) {
  auto a = make_puppet();
  ASSERT_EQ(ask(a, *tags_, "b", exclusive)->get(), outcome::granted);
  auto s = tags_->attach();
  auto none = s.lock_all({term{"a"}, term{"b"}, term{"c"}}, exclusive)
                .within(100ms)
                .wait();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().why, outcome::timeout);
  // Nothing is left behind, once what is under way has arrived.
  EXPECT_TRUE(eventually([&] { return tags_->holders("a").empty(); }));
  EXPECT_TRUE(tags_->holders("c").empty());
  tell_puppet(a, [](puppet* self) { self->held.clear(); });
  auto all = s.lock_all({term{"c"}, term{"a"}, term{"b"}, term{"a"}}, exclusive)
               .within(20s)
               .wait();
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 3u);
  EXPECT_EQ(tags_->holders("a").size(), 1u);
}

TEST_F(request_test, an_empty_list_of_nodes_is_granted_and_holds_nothing) {
  auto s = tags_->attach();
  auto got = s.lock("t", exclusive).on(std::vector<std::string>{}).wait();
  ASSERT_TRUE(got);
  EXPECT_TRUE(tags_->holders("t").empty());
}

TEST_F(request_test, a_node_that_nobody_configured_is_named_in_the_failure) {
  auto s = tags_->attach();
  auto got = s.lock("t", exclusive).on("nowhere").wait();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().why, outcome::node_down);
  EXPECT_EQ(got.error().node, "nowhere");
}

TEST_F(request_test, every_node_of_a_cluster_of_one_is_this_node) {
  auto s = tags_->attach();
  auto got = s.lock("t", exclusive).on(every_node).within(20s).wait();
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->still_held());
  EXPECT_EQ(tags_->holders("t").size(), 1u);
  auto other = tags_->attach();
  auto busy = other.lock("t", shared).no_wait().wait();
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().why, outcome::busy);
  EXPECT_EQ(got->release(), release_result::released);
  EXPECT_EQ(got->release(), release_result::already_released);
  EXPECT_TRUE(other.lock("t", shared).within(20s).wait());
}

TEST_F(request_test, the_runtime_counts_what_it_does) {
  auto s = tags_->attach();
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(s.lock(i, exclusive).wait());
  auto held = s.lock("t", exclusive).wait();
  std::thread{[&] {
    auto other = tags_->attach();
    EXPECT_FALSE(other.lock("t", shared).within(20ms).wait());
    EXPECT_FALSE(other.lock("t", shared).no_wait().wait());
  }}.join();
  auto x = tags_->statistics();
  EXPECT_EQ(x.fast_grants, 101u);
  EXPECT_EQ(x.waits, 1u);
  EXPECT_EQ(x.requests, 103u);
  EXPECT_EQ(x.ended(outcome::timeout), 1u);
  EXPECT_EQ(x.ended(outcome::busy), 1u);
  EXPECT_GE(x.wait.max, 20'000'000u);
  ASSERT_FALSE(x.hottest.empty());
  EXPECT_EQ(to_string(x.hottest.front().what), "t");
}

} // namespace pawl::testing
