// Transactions: bodies that are run again, and tasks made of them.
//
// A deadlock is made by two upgraders: the puppet `older_` and the transaction
// both hold "t" shared, the transaction asks for it exclusively and waits, then
// `older_` does, too: the younger of the two is told at once.

#include "fixture.hpp"

#include "pawl/actors/blocking_transact.hpp"
#include "pawl/actors/transact.hpp"

#include <numeric>
#include <stdexcept>

namespace pawl::testing {

namespace {

/// How a task has ended, for a test that waits for it.
struct ending {
  std::atomic<int> times{0};
  std::atomic<outcome> how{outcome::pending};
  std::mutex lock_;
  std::string message;
  std::string thrown;

  void failed(const task_failure& why) {
    {
      std::lock_guard guard{lock_};
      message = why.message;
      if (why.exception) {
        try {
          std::rethrow_exception(why.exception);
        } catch (const std::exception& x) {
          thrown = x.what();
        }
      }
    }
    ++times;
    how = why.why;
  }

  void done() {
    ++times;
    how = outcome::granted;
  }

  outcome get() {
    eventually([this] { return how.load() != outcome::pending; });
    return how;
  }
};

using ending_ptr = std::shared_ptr<ending>;

void begin(pawl::task what, const ending_ptr& out) {
  std::move(what).then([out] { out->done(); },
                       [out](const task_failure& why) { out->failed(why); });
}

/// The shortest way into the trap; `calls` counts how often it is taken.
struct upgrade_body {
  std::shared_ptr<std::atomic<unsigned>> calls
    = std::make_shared<std::atomic<unsigned>>(0);

  void operator()(const transaction& tx) const {
    calls->store(tx.number());
    tx.lock("side", shared).then([tx](lock side) {
      tx.lock("t", shared)
        .then([tx, side = std::move(side)](lock first) mutable {
          tx.lock("t", exclusive)
            .then([side = std::move(side), first = std::move(first)](lock) {});
        });
    });
  }
};

transact_options quick() {
  transact_options result;
  result.first_delay = 100us;
  result.most_delay = 1ms;
  return result;
}

/// Backs off for longer than any test takes.
transact_options slow() {
  transact_options result;
  result.first_delay = 1h;
  result.most_delay = 1h;
  return result;
}

} // namespace

class transact_test : public actors_test {
protected:
  transact_test() : older_(make_puppet()), me_(make_puppet()) {
    // nop
  }

  ~transact_test() override {
    tell_puppet(older_, [](puppet* self) {
      self->held.clear();
      self->own.reset();
    });
    older_ = nullptr;
    me_ = nullptr;
  }

  using make_task = std::function<pawl::task(caf::event_based_actor*)>;

  ending_ptr start(const caf::actor& who, make_task f) {
    auto out = std::make_shared<ending>();
    tell(who, [out, f = std::move(f)](caf::event_based_actor* self) {
      begin(f(self), out);
    });
    return out;
  }

  ending_ptr start(make_task f) {
    return start(me_, std::move(f));
  }

  ending_ptr start_body(std::function<void(transaction)> body,
                        transact_options options = quick()) {
    return start([=, this](caf::event_based_actor* self) {
      return transact(*tags_, self, body, options);
    });
  }

  /// From now on whatever takes its first lock is younger.
  void tick() {
    tags_->state()->clock->tick();
  }

  result_ptr ask_in_session(const caf::actor& who, lock_mode mode,
                            const std::string& what = "t") {
    auto out = std::make_shared<result>();
    tell_puppet(who, [=, this](puppet* self) {
      if (!self->own)
        self->own.emplace(tags_->attach(self));
      self->own->lock(what, mode).then(
        [self, out](lock x) {
          self->held.push_back(std::move(x));
          out->how = outcome::granted;
        },
        [out](const failure& why) { out->ended(why); });
    });
    return out;
  }

  void share(const caf::actor& who) {
    ASSERT_EQ(ask_in_session(who, shared)->get(), outcome::granted);
    tick();
  }

  void drop(const caf::actor& who) {
    tell_puppet(who, [](puppet* self) { self->held.clear(); });
  }

  void downgrade(const caf::actor& who) {
    tell_puppet(who, [](puppet* self) {
      for (auto& x : self->held)
        x.downgrade();
    });
  }

  bool waits(std::size_t n = 1) {
    return eventually([=, this] { return waiting_for("t") == n; });
  }

  bool free(const std::string& what) {
    return eventually([&] { return tags_->holders(what).empty(); });
  }

  std::uint64_t restarts() {
    return tags_->statistics().restarts;
  }

  /// Lets a transaction with `options` run into a deadlock; `older_` then holds
  /// "t" exclusively.
  ending_ptr trapped(const upgrade_body& body,
                     const transact_options& options) {
    share(older_);
    auto out = start_body(body, options);
    EXPECT_TRUE(waits());
    EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
    return out;
  }

  caf::actor older_;
  caf::actor me_;
};

// -- the body -----------------------------------------------------------------

TEST_F(transact_test, a_body_that_need_not_wait_is_over_inside_the_call) {
  std::promise<std::string> order;
  tell(me_, [&](caf::event_based_actor* self) {
    std::string text;
    transact(*tags_, self, [&](transaction tx) {
      tx.lock("a", exclusive).then([&, tx](lock) {
        text += "a";
        tx.lock("b", exclusive).then([&](lock) { text += "b"; });
      });
    }).then([&] { text += tags_->holders("a").empty() ? "done" : "held"; });
    order.set_value(text);
  });
  EXPECT_EQ(order.get_future().get(), "abdone");
  EXPECT_EQ(restarts(), 0u);
}

TEST_F(transact_test, what_the_body_took_is_released_before_its_end_is_told) {
  std::promise<std::size_t> left;
  auto kept = std::make_shared<lock>();
  tell(me_, [&](caf::event_based_actor* self) {
    transact(*tags_, self, [kept](transaction tx) {
      tx.lock("a", exclusive).then([kept](lock x) { *kept = std::move(x); });
    }).then([&] { left.set_value(tags_->holders("a").size()); });
  });
  EXPECT_EQ(left.get_future().get(), 0u);
  EXPECT_EQ(kept->mode(), lock_mode::none);
}

TEST_F(transact_test, a_body_waits_for_its_locks_and_goes_on) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto out = start_body([](transaction tx) {
    tx.lock("a", exclusive).then([tx](lock a) {
      tx.lock("b", exclusive).then([a = std::move(a)](lock) {});
    });
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  EXPECT_EQ(tags_->holders("a").size(), 1u);
  EXPECT_EQ(out->how, outcome::pending);
  held->release();
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_TRUE(free("a"));
}

TEST_F(transact_test, several_terms_and_all_nodes_are_locked_through_it_too) {
  auto count = std::make_shared<std::atomic<std::size_t>>(0);
  auto out = start_body([=](transaction tx) {
    tx.lock_all({term{"a"}, term{"b"}}, shared)
      .within(20s)
      .then([=](lock_set held) {
        *count = held.size();
        tx.lock("c", exclusive)
          .on(every_node)
          .within(20s)
          .then([=, held = std::move(held)](lock) { ++*count; });
      });
  });
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_EQ(count->load(), 3u);
  EXPECT_TRUE(free("c"));
}

TEST_F(transact_test, a_body_lasts_while_anybody_has_a_handle_of_it) {
  auto kept = std::make_shared<std::optional<transaction>>();
  auto out = start_body([kept](transaction tx) {
    kept->emplace(tx);
    tx.lock("a", exclusive).then([tx](lock) {});
  });
  std::promise<void> passed;
  tell(me_, [&](caf::event_based_actor*) { passed.set_value(); });
  passed.get_future().wait();
  EXPECT_EQ(out->how, outcome::pending);
  kept->reset(); // in this thread
  EXPECT_EQ(out->get(), outcome::granted);
}

TEST_F(transact_test, a_body_that_finishes_abandons_what_it_still_waits_for) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto called = std::make_shared<std::atomic<bool>>(false);
  auto kept = std::make_shared<std::optional<transaction>>();
  auto out = start_body([=](transaction tx) {
    kept->emplace(tx);
    tx.lock("b", exclusive)
      .then([=](lock) { *called = true; },
            [=](const failure&) { *called = true; });
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  tell(me_, [=](caf::event_based_actor*) { (*kept)->finish(); });
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_EQ(waiting_for("b"), 0u);
  std::promise<bool> over;
  tell(me_, [&](caf::event_based_actor*) {
    (*kept)->lock("c", exclusive).then([=](lock) { *called = true; });
    auto was = (*kept)->over();
    kept->reset();
    over.set_value(was);
  });
  EXPECT_TRUE(over.get_future().get());
  EXPECT_FALSE(*called);
}

TEST_F(transact_test, a_failure_without_a_continuation_fails_the_transaction) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto out = start_body([](transaction tx) {
    tx.lock("b", shared).within(20ms).then([](lock) {});
  });
  EXPECT_EQ(out->get(), outcome::timeout);
  EXPECT_EQ(restarts(), 0u);
}

TEST_F(transact_test, a_failure_with_a_continuation_is_the_bodys_business) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto out = start_body([](transaction tx) {
    tx.lock("b", shared).no_wait().then([](lock) {}, [](const failure&) {});
  });
  EXPECT_EQ(out->get(), outcome::granted);
  auto other = start_body([](transaction tx) {
    tx.lock("b", shared)
      .no_wait()
      .then([](lock) {}, [tx](const failure&) { tx.fail("no pump is free"); });
  });
  EXPECT_EQ(other->get(), outcome::body_failed);
  EXPECT_EQ(other->message, "no pump is free");
}

// -- deadlocks ----------------------------------------------------------------

TEST_F(transact_test, a_body_that_met_a_deadlock_is_run_again_and_counted) {
  upgrade_body body;
  auto out = trapped(body, quick());
  ASSERT_TRUE(eventually([&] { return body.calls->load() == 2; }));
  EXPECT_EQ(out->how, outcome::pending);
  drop(older_);
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_EQ(out->times, 1);
  EXPECT_EQ(body.calls->load(), 2u);
  EXPECT_EQ(restarts(), 1u);
  EXPECT_TRUE(free("side"));
}

TEST_F(transact_test, while_it_backs_off_it_holds_nothing) {
  upgrade_body body;
  cancel_source stop;
  auto options = slow();
  options.cancel = stop.token();
  auto out = trapped(body, options);
  EXPECT_TRUE(free("side"));
  EXPECT_TRUE(eventually([&] { return tags_->residue().sessions == 1; }));
  EXPECT_EQ(tags_->residue().waits, 0u);
  EXPECT_EQ(out->how, outcome::pending);
  stop.cancel();
  EXPECT_EQ(out->get(), outcome::cancelled);
  EXPECT_EQ(body.calls->load(), 1u);
  EXPECT_EQ(restarts(), 0u);
}

TEST_F(transact_test, a_body_that_is_run_again_is_as_old_as_its_first_try) {
  auto calls = std::make_shared<std::atomic<unsigned>>(0);
  share(older_);
  auto out = start_body([=](transaction tx) {
    *calls = tx.number();
    tx.lock("t", shared).then([tx](lock first) {
      tx.lock("t", exclusive).then([first = std::move(first)](lock) {});
    });
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  ASSERT_TRUE(eventually([&] { return calls->load() == 2; }));
  ASSERT_TRUE(waits()); // holding nothing
  // Somebody is younger than the first try, but holds something before the
  // second does. They meet as upgraders.
  auto third = make_puppet();
  tick();
  ASSERT_EQ(ask_in_session(third, shared, "other")->get(), outcome::granted);
  tick();
  auto later = ask_in_session(third, shared);
  ASSERT_TRUE(waits(2));
  drop(older_);
  EXPECT_EQ(later->get(), outcome::granted);
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(third, exclusive)->get(), outcome::deadlock);
  drop(third);
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_EQ(calls->load(), 2u);
  tell_puppet(third, [](puppet* self) { self->own.reset(); });
}

TEST_F(transact_test, the_deadlock_of_the_last_try_arrives) {
  upgrade_body body;
  auto options = quick();
  options.tries = 2;
  auto out = trapped(body, options);
  ASSERT_TRUE(eventually([&] { return body.calls->load() == 2; }));
  downgrade(older_); // the second try gets its share, and asks for more
  ASSERT_TRUE(eventually([&] {
    auto all = tags_->waiters("t");
    return all.size() == 1 && all.front().upgrade;
  }));
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  EXPECT_EQ(out->get(), outcome::deadlock);
  EXPECT_EQ(out->times, 1);
  EXPECT_EQ(restarts(), 1u);
  EXPECT_TRUE(free("side"));
}

TEST_F(transact_test, continuations_of_a_try_that_is_over_are_not_called) {
  auto late = std::make_shared<std::atomic<int>>(0);
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  share(older_);
  auto out = start_body([=](transaction tx) {
    if (tx.number() > 1)
      return;
    tx.lock("b", exclusive)
      .then([=](lock) { ++*late; }, [=](const failure&) { ++*late; });
    tx.lock("t", shared).then([=](lock first) {
      tx.lock("t", exclusive)
        .then([=, first = std::move(first)](lock) { ++*late; },
              [=](const failure&) { ++*late; });
    });
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_EQ(waiting_for("b"), 0u);
  EXPECT_EQ(late->load(), 0);
}

TEST_F(transact_test, many_upgraders_of_one_term_all_come_through) {
  constexpr int actors = 8;
  constexpr int each = 20;
  auto value = std::make_shared<int>(0); // guarded by "t"
  std::vector<ending_ptr> all;
  for (int i = 0; i < actors; ++i)
    all.push_back(start(make_puppet(), [=, this](caf::event_based_actor* self) {
      std::vector<int> turns(each);
      auto options = quick();
      options.tries = 100'000;
      return for_each(*tags_, self, turns, 1, [=, this](int) {
        return transact(
          *tags_, self,
          [=](transaction tx) {
            tx.lock("t", shared).then([=](lock first) {
              tx.lock("t", exclusive).then([=, first = std::move(first)](lock) {
                ++*value;
              });
            });
          },
          options);
      });
    }));
  for (auto& x : all)
    EXPECT_EQ(x->get(), outcome::granted);
  EXPECT_EQ(*value, actors * each);
}

// -- cancel -------------------------------------------------------------------

TEST_F(transact_test, a_cancel_ends_a_body_that_waits_for_a_lock) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  cancel_source stop;
  auto told = std::make_shared<std::atomic<bool>>(false);
  auto out = start([&, told](caf::event_based_actor* self) {
    return transact(*tags_, self,
                    [told](transaction tx) {
                      tx.lock("a", exclusive).then([=](lock a) {
                        tx.lock("b", exclusive)
                          .then([a = std::move(a)](lock) {},
                                [=](const failure&) { *told = true; });
                      });
                    })
      .cancel_with(stop.token());
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  stop.cancel();
  EXPECT_EQ(out->get(), outcome::cancelled);
  EXPECT_TRUE(free("a"));
  EXPECT_EQ(waiting_for("b"), 0u);
  EXPECT_FALSE(*told);
}

TEST_F(transact_test, a_cancel_ends_a_body_that_waits_for_something_else) {
  cancel_source stop;
  auto options = quick();
  options.cancel = stop.token();
  auto kept = std::make_shared<std::optional<transaction>>();
  auto mine = std::make_shared<lock>();
  auto out = start_body(
    [=](transaction tx) {
      kept->emplace(tx);
      tx.lock("a", exclusive).then([=](lock x) { *mine = std::move(x); });
    },
    options);
  ASSERT_TRUE(eventually([&] { return tags_->holders("a").size() == 1; }));
  stop.cancel();
  EXPECT_EQ(out->get(), outcome::cancelled);
  EXPECT_TRUE(free("a"));
  tell(me_, [kept](caf::event_based_actor*) { kept->reset(); });
}

TEST_F(transact_test, a_body_that_is_cancelled_before_is_not_run) {
  cancel_source stop;
  stop.cancel();
  upgrade_body body;
  auto options = quick();
  options.cancel = stop.token();
  EXPECT_EQ(start_body(body, options)->get(), outcome::cancelled);
  EXPECT_EQ(body.calls->load(), 0u);
}

TEST_F(transact_test, a_cancel_inside_the_body_waits_until_it_has_returned) {
  cancel_source stop;
  auto options = quick();
  options.cancel = stop.token();
  auto held_then = std::make_shared<std::atomic<bool>>(false);
  auto out = start_body(
    [=, this](transaction tx) {
      tx.lock("a", exclusive).then([=, this](lock a) {
        stop.cancel();
        *held_then = a.still_held();
        tx.lock("b", exclusive).then([](lock) { FAIL(); });
      });
    },
    options);
  EXPECT_EQ(out->get(), outcome::cancelled);
  EXPECT_TRUE(*held_then);
}

// -- exceptions ---------------------------------------------------------------

TEST_F(transact_test, an_exception_of_the_body_arrives_where_it_was_started) {
  auto out
    = start_body([](transaction) { throw std::runtime_error("on purpose"); });
  EXPECT_EQ(out->get(), outcome::body_failed);
  EXPECT_EQ(out->thrown, "on purpose");
  EXPECT_EQ(out->message, "an exception: on purpose");
}

TEST_F(transact_test, so_does_one_of_its_continuations_also_after_a_wait) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto out = start_body([](transaction tx) {
    tx.lock("a", exclusive).then([tx](lock a) {
      tx.lock("b", exclusive).then([tx, a = std::move(a)](lock) {
        tx.finish(); // what comes after it counts more
        throw std::runtime_error("on purpose");
      });
    });
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  held->release();
  EXPECT_EQ(out->get(), outcome::body_failed);
  EXPECT_EQ(out->thrown, "on purpose");
  EXPECT_TRUE(free("a"));
}

TEST_F(transact_test, without_a_failure_continuation_it_goes_to_the_actor) {
  std::promise<std::string> what;
  tell(me_, [&](caf::event_based_actor* self) {
    self->set_exception_handler([&](std::exception_ptr& x) -> caf::error {
      try {
        std::rethrow_exception(x);
      } catch (const std::exception& y) {
        what.set_value(y.what());
      }
      return caf::make_error(caf::sec::runtime_error);
    });
    transact(*tags_, self, [](transaction tx) {
      tx.lock("a", exclusive).then([](lock) {
        throw std::runtime_error("on purpose");
      });
    }).then([] {});
  });
  EXPECT_EQ(what.get_future().get(), "on purpose");
  EXPECT_TRUE(free("a"));
}

// -- the end of the actor -----------------------------------------------------

TEST_F(transact_test, an_actor_that_quits_in_its_body_leaves_nothing) {
  auto quits = std::make_shared<std::promise<void>>();
  auto out = start([=, this](caf::event_based_actor* self) {
    return transact(*tags_, self, [=](transaction tx) {
      tx.lock("a", exclusive).then([=](lock a) {
        self->quit();
        quits->set_value();
        tx.lock("b", exclusive).then([tx, a = std::move(a)](lock) {});
      });
    });
  });
  ASSERT_EQ(quits->get_future().wait_for(20s), std::future_status::ready);
  EXPECT_TRUE(eventually([&] { return tags_->residue() == residue{}; }));
  EXPECT_LE(out->times, 1);
}

TEST_F(transact_test, an_actor_that_is_killed_while_it_waits_leaves_nothing) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto life = std::make_shared<int>(0);
  std::weak_ptr<int> alive = life;
  auto out = start_body([life](transaction tx) {
    tx.lock("a", exclusive).then([tx](lock a) {
      tx.lock("b", exclusive).then([a = std::move(a)](lock) {});
    });
  });
  life.reset();
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  compat::anon_send_exit(me_, caf::exit_reason::kill);
  EXPECT_TRUE(free("a"));
  EXPECT_TRUE(eventually([&] { return waiting_for("b") == 0; }));
  puppets_.clear();
  me_ = nullptr;
  EXPECT_TRUE(eventually([&] { return alive.expired(); }));
  EXPECT_EQ(out->times, 0);
}

TEST_F(transact_test, an_actor_that_ends_in_back_off_leaves_nothing) {
  upgrade_body body;
  auto options = quick();
  options.first_delay = options.most_delay = 2s;
  auto life = std::weak_ptr{body.calls};
  auto out = trapped(body, options);
  EXPECT_TRUE(free("side"));
  compat::anon_send_exit(me_, caf::exit_reason::kill);
  EXPECT_TRUE(eventually([&] {
    return compat::is_terminated(caf::actor_cast<caf::abstract_actor*>(me_));
  }));
  EXPECT_EQ(body.calls->load(), 1u);
  body.calls.reset();
  // The alarm rings for nobody: then the last of it goes.
  EXPECT_TRUE(eventually([&] { return life.expired(); }));
  EXPECT_EQ(out->times, 0);
}

TEST_F(transact_test, an_actor_without_a_behavior_lives_until_it_is_over) {
  auto out = std::make_shared<ending>();
  share(older_);
  upgrade_body body;
  auto a = system_->spawn([=, this](caf::event_based_actor* self) {
    begin(transact(*tags_, self, body, quick()), out);
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  drop(older_);
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_TRUE(eventually([&] {
    return compat::is_terminated(caf::actor_cast<caf::abstract_actor*>(a));
  }));
}

TEST_F(transact_test, the_end_of_its_scope_ends_a_back_off) {
  upgrade_body body;
  auto out = trapped(body, slow());
  EXPECT_TRUE(free("side"));
  tags_->close();
  EXPECT_EQ(out->get(), outcome::scope_closed);
  EXPECT_EQ(body.calls->load(), 1u);
}

// -- misuse -------------------------------------------------------------------

TEST_F(transact_test, what_cannot_be_right_is_refused) {
  std::promise<pawl::task> made;
  std::promise<bool> refused;
  tell(me_, [&](caf::event_based_actor* self) {
    auto none = quick();
    none.tries = 0;
    try {
      static_cast<void>(transact(
        *tags_, self, [](transaction) {}, none));
      refused.set_value(false);
    } catch (const misuse&) {
      refused.set_value(true);
    }
    made.set_value(transact(*tags_, self, [](transaction) {}));
  });
  EXPECT_TRUE(refused.get_future().get());
  auto foreign = made.get_future().get();
  EXPECT_THROW(pawl::task{foreign}.then([] {}), misuse);
  // Started by the combination of another actor: its failure.
  auto other = start(make_puppet(), [=, this](caf::event_based_actor* self) {
    return serial(*tags_, self, {foreign});
  });
  EXPECT_EQ(other->get(), outcome::body_failed);
  // Twice.
  auto out = start([=, this](caf::event_based_actor* self) {
    return serial(*tags_, self, {foreign, foreign});
  });
  EXPECT_EQ(out->get(), outcome::body_failed);
}

// -- combinations -------------------------------------------------------------

TEST_F(transact_test, serial_tasks_run_in_order_until_one_fails) {
  auto text = std::make_shared<std::string>();
  auto out = start([=, this](caf::event_based_actor* self) {
    auto one = [=, this](char name, bool fails) {
      return transact(*tags_, self, [=](transaction tx) {
        tx.lock("a", exclusive).then([=](lock) {
          *text += name;
          if (fails)
            throw std::runtime_error("on purpose");
        });
      });
    };
    return serial(*tags_, self,
                  {one('1', false), serial(*tags_, self, {one('2', false)}),
                   serial(*tags_, self, {}), one('3', true), one('4', false)});
  });
  EXPECT_EQ(out->get(), outcome::body_failed);
  EXPECT_EQ(out->thrown, "on purpose");
  EXPECT_EQ(*text, "123");
}

TEST_F(transact_test, parallel_tasks_wait_for_their_locks_side_by_side) {
  auto blocker = tags_->attach();
  auto held = blocker.lock_all({term{"a"}, term{"b"}}, exclusive).wait();
  ASSERT_TRUE(held);
  auto out = start([this](caf::event_based_actor* self) {
    auto one = [=, this](const char* what) {
      return transact(*tags_, self, [what](transaction tx) {
        tx.lock(what, exclusive).then([](lock) {});
      });
    };
    return parallel(*tags_, self, {one("a"), one("b")});
  });
  ASSERT_TRUE(
    eventually([&] { return waiting_for("a") == 1 && waiting_for("b") == 1; }));
  (*held)[1].release();
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 0; }));
  EXPECT_EQ(out->how, outcome::pending);
  held->release();
  EXPECT_EQ(out->get(), outcome::granted);
}

TEST_F(transact_test, the_first_failure_cancels_the_others_and_arrives_last) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto kept = std::make_shared<std::optional<transaction>>();
  auto out = start([=, this](caf::event_based_actor* self) {
    return parallel(
      *tags_, self,
      {transact(*tags_, self, [kept](transaction tx) { kept->emplace(tx); }),
       transact(*tags_, self, [](transaction tx) {
         tx.lock("a", exclusive).then([tx](lock a) {
           tx.lock("b", exclusive).then([a = std::move(a)](lock) {});
         });
       })});
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  std::promise<std::size_t> left;
  tell(me_, [&](caf::event_based_actor*) {
    (*kept)->fail("on purpose");
    auto rest = tags_->holders("a").size() + waiting_for("b");
    kept->reset();
    left.set_value(rest);
  });
  EXPECT_EQ(left.get_future().get(), 0u);
  EXPECT_EQ(out->get(), outcome::body_failed);
  EXPECT_EQ(out->message, "on purpose");
  EXPECT_EQ(out->times, 1);
}

TEST_F(transact_test, for_each_runs_so_many_at_a_time_as_it_is_told) {
  auto blocker = tags_->attach();
  std::vector<int> terms(10);
  std::iota(terms.begin(), terms.end(), 0);
  std::vector<lock> held;
  for (auto x : terms) {
    auto got = blocker.lock(x, exclusive).wait();
    ASSERT_TRUE(got);
    held.push_back(std::move(*got));
  }
  auto sum = std::make_shared<std::atomic<int>>(0);
  auto out = start([=, this](caf::event_based_actor* self) {
    return for_each(*tags_, self, terms, 3, [=, this](int x) {
      return transact(*tags_, self, [=](transaction tx) {
        tx.lock(x, exclusive).then([=](lock) { *sum += x; });
      });
    });
  });
  for (std::size_t i = 0; i < held.size(); ++i) {
    auto expected = std::min<std::size_t>(3, held.size() - i);
    ASSERT_TRUE(eventually([&] { return tags_->residue().waits == expected; }));
    held[i].release();
  }
  EXPECT_EQ(out->get(), outcome::granted);
  EXPECT_EQ(sum->load(), 45);
}

TEST_F(transact_test, an_exception_of_the_function_of_for_each_arrives) {
  auto out = start([this](caf::event_based_actor* self) {
    return for_each(*tags_, self, std::vector<int>{1, 2}, 2,
                    [=, this](int x) -> pawl::task {
                      if (x == 2)
                        throw std::runtime_error("on purpose");
                      return transact(*tags_, self, [](transaction tx) {
                        tx.lock("a", exclusive).then([](lock) {});
                      });
                    });
  });
  EXPECT_EQ(out->get(), outcome::body_failed);
  EXPECT_EQ(out->thrown, "on purpose");
}

TEST_F(transact_test, a_cancel_of_a_combination_ends_all_of_it) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  cancel_source stop;
  auto started = std::make_shared<std::atomic<int>>(0);
  auto out = start([&, started](caf::event_based_actor* self) {
    return for_each(*tags_, self, std::vector<int>(10), 2,
                    [=, this](int) {
                      ++*started;
                      return transact(*tags_, self, [](transaction tx) {
                        tx.lock("b", exclusive).then([](lock) {});
                      });
                    })
      .cancel_with(stop.token());
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 2; }));
  stop.cancel();
  EXPECT_EQ(out->get(), outcome::cancelled);
  EXPECT_EQ(waiting_for("b"), 0u);
  EXPECT_EQ(started->load(), 2);
  held->release();
}

TEST_F(transact_test, a_combination_whose_actor_ends_leaves_no_memory) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  auto life = std::make_shared<int>(0);
  std::weak_ptr<int> alive = life;
  auto out = start([life, this](caf::event_based_actor* self) {
    return parallel(
      *tags_, self,
      {serial(*tags_, self, {transact(*tags_, self, [life](transaction tx) {
        tx.lock("b", exclusive).then([](lock) {});
      })})});
  });
  life.reset();
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  puppets_.clear();
  me_ = nullptr; // it ends
  EXPECT_TRUE(eventually([&] { return waiting_for("b") == 0; }));
  EXPECT_TRUE(eventually([&] { return alive.expired(); }));
  EXPECT_EQ(out->times, 0);
}

TEST_F(transact_test, a_hundred_thousand_tasks_in_a_row_need_no_stack) {
  auto deepest = std::make_shared<std::size_t>(0);
  std::promise<bool> done;
  tell(me_, [&, deepest](caf::event_based_actor* self) {
    auto* bottom = stack_place();
    for_each(*tags_, self, std::vector<int>(100'000), 1, [=, this](int) {
      return transact(*tags_, self, [=](transaction tx) {
        tx.lock("a", exclusive).then([=](lock) {
          *deepest = std::max(*deepest, stack_since(bottom));
        });
      });
    }).then([&] { done.set_value(true); });
  });
  EXPECT_TRUE(done.get_future().get());
  EXPECT_LT(*deepest, 16u * 1024);
}

// -- the blocking form --------------------------------------------------------

TEST_F(transact_test, a_threads_body_returns_its_result_and_keeps_nothing) {
  lock kept;
  auto sum = transact(*tags_, [&](blocking_transaction& tx) -> expected<int> {
    auto a = tx.lock("a", exclusive).wait();
    if (!a)
      return a.error();
    auto all = tx.lock_all({term{"b"}, term{"c"}}, shared).within(20s).wait();
    if (!all)
      return all.error();
    kept = std::move(*a);
    return static_cast<int>(tags_->holders("a").size() + all->size());
  });
  ASSERT_TRUE(sum);
  EXPECT_EQ(*sum, 3);
  EXPECT_TRUE(tags_->holders("a").empty());
  EXPECT_EQ(kept.mode(), lock_mode::none);
  EXPECT_EQ(transact(*tags_, [](blocking_transaction&) {}).value(), done{});
  EXPECT_EQ(transact(*tags_, [](blocking_transaction&) { return 7; }).value(),
            7);
}

TEST_F(transact_test, a_threads_body_throws_where_it_was_started) {
  auto throws = [](blocking_transaction& tx) {
    auto a = tx.lock("a", exclusive).wait();
    EXPECT_TRUE(a);
    throw std::runtime_error("on purpose");
  };
  EXPECT_THROW(static_cast<void>(transact(*tags_, throws)), std::runtime_error);
  EXPECT_TRUE(tags_->holders("a").empty());
}

TEST_F(transact_test, a_threads_body_is_run_again_after_a_deadlock) {
  share(older_);
  std::atomic<unsigned> calls{0};
  auto got = std::async(std::launch::async, [&] {
    return transact(
      *tags_,
      [&](blocking_transaction& tx) -> expected<unsigned> {
        calls = tx.number();
        auto first = tx.lock("t", shared).wait();
        if (!first)
          return first.error();
        auto second = tx.lock("t", exclusive).wait();
        if (!second) {
          EXPECT_EQ(second.error().why, outcome::deadlock);
          // It says so for the rest of this try.
          EXPECT_FALSE(tx.lock("other", shared).wait());
          throw std::runtime_error("dropped: the try does not count");
        }
        return tx.number();
      },
      quick());
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  ASSERT_TRUE(eventually([&] { return calls == 2; }));
  drop(older_);
  auto result = got.get();
  ASSERT_TRUE(result);
  EXPECT_EQ(*result, 2u);
  EXPECT_EQ(restarts(), 1u);
}

TEST_F(transact_test, the_deadlock_of_a_threads_last_try_is_returned) {
  share(older_);
  auto options = quick();
  options.tries = 1;
  auto got = std::async(std::launch::async, [&] {
    return transact(
      *tags_,
      [&](blocking_transaction& tx) {
        auto first = tx.lock("t", shared).wait();
        auto second = tx.lock("t", exclusive).wait();
      },
      options);
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  auto result = got.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().why, outcome::deadlock);
}

TEST_F(transact_test, a_cancel_ends_a_threads_wait_and_its_back_off) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("b", exclusive).wait();
  ASSERT_TRUE(held);
  cancel_source first;
  auto options = slow();
  options.cancel = first.token();
  auto waiting = std::async(std::launch::async, [&] {
    return transact(
      *tags_,
      [&](blocking_transaction& tx) -> expected<done> {
        auto b = tx.lock("b", exclusive).wait();
        EXPECT_TRUE(tx.cancelled());
        return b ? expected<done>{done{}} : b.error();
      },
      options);
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("b") == 1; }));
  first.cancel();
  EXPECT_EQ(waiting.get().error().why, outcome::cancelled);

  cancel_source second;
  options.cancel = second.token();
  share(older_);
  auto backing_off = std::async(std::launch::async, [&] {
    return transact(
      *tags_,
      [&](blocking_transaction& tx) {
        auto side = tx.lock("side", shared).wait();
        auto x = tx.lock("t", shared).wait();
        auto y = tx.lock("t", exclusive).wait();
      },
      options);
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  EXPECT_TRUE(free("side"));
  second.cancel();
  EXPECT_EQ(backing_off.get().error().why, outcome::cancelled);
  held->release();
}

TEST_F(transact_test, a_blocking_actor_told_to_exit_in_back_off_is_told_so) {
  share(older_);
  std::promise<outcome> how;
  auto a = system_->spawn([&](caf::blocking_actor* self) {
    auto result = transact(
      *tags_, self,
      [&](blocking_transaction& tx) {
        auto side = tx.lock("side", shared).wait();
        auto x = tx.lock("t", shared).wait();
        auto y = tx.lock("t", exclusive).wait();
      },
      slow());
    how.set_value(result ? outcome::granted : result.error().why);
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  EXPECT_TRUE(free("side"));
  compat::anon_send_exit(a, caf::exit_reason::user_shutdown);
  EXPECT_EQ(how.get_future().get(), outcome::session_ended);
}

TEST_F(transact_test, the_end_of_its_scope_ends_a_blocking_back_off) {
  auto body = [](blocking_transaction& tx) {
    auto side = tx.lock("side", shared).wait();
    auto x = tx.lock("t", shared).wait();
    auto y = tx.lock("t", exclusive).wait();
  };
  for (auto in_actor : {false, true}) {
    auto where = open_local_scope(*system_, in_actor ? "actor" : "thread");
    ASSERT_TRUE(where.wait_ready(20s));
    // Older than the body, and waiting for it.
    auto older = where.attach();
    auto reading = older.lock("t", shared).wait();
    ASSERT_TRUE(reading);
    std::promise<outcome> how;
    auto told = [&](const auto& result) {
      how.set_value(result ? outcome::granted : result.error().why);
    };
    std::thread thread;
    caf::actor actor;
    if (in_actor)
      actor = system_->spawn([&](caf::blocking_actor* self) {
        told(transact(where, self, body, slow()));
      });
    else
      thread = std::thread{[&] { told(transact(where, body, slow())); }};
    ASSERT_TRUE(eventually([&] { return where.waiters("t").size() == 1; }));
    // Of two upgraders the younger is told, and gives back what it has.
    auto writing = older.lock("t", exclusive).within(20s).wait();
    EXPECT_TRUE(writing);
    ASSERT_TRUE(eventually([&] { return where.holders("side").empty(); }));
    where.close();
    auto verdict = how.get_future();
    ASSERT_EQ(verdict.wait_for(20s), std::future_status::ready);
    EXPECT_EQ(verdict.get(), outcome::scope_closed);
    if (thread.joinable())
      thread.join();
  }
}

TEST_F(transact_test, a_task_that_runs_is_given_no_other_token) {
  std::promise<bool> refused;
  auto blocker = tags_->attach();
  auto held = blocker.lock("t", exclusive).wait();
  ASSERT_TRUE(held);
  cancel_source first;
  tell(me_, [&](caf::event_based_actor* self) {
    auto x = transact(*tags_, self, [](transaction tx) {
               tx.lock("t", exclusive).then([](lock) {});
             }).cancel_with(first.token());
    auto copy = x;
    std::move(x).then([] {}, [](const task_failure&) {});
    try {
      static_cast<void>(std::move(copy).cancel_with(cancel_source{}.token()));
      refused.set_value(false);
    } catch (const misuse&) {
      refused.set_value(true);
    }
  });
  EXPECT_TRUE(refused.get_future().get());
  first.cancel();
  EXPECT_TRUE(eventually([&] { return waiting_for("t") == 0; }));
}

TEST_F(transact_test, a_scoped_actor_transacts_and_is_cancelled_in_back_off) {
  share(older_);
  cancel_source stop;
  auto options = slow();
  options.cancel = stop.token();
  auto how = std::async(std::launch::async, [&] {
    caf::scoped_actor self{*system_};
    return transact(
      *tags_, self.ptr(),
      [&](blocking_transaction& tx) {
        auto side = tx.lock("side", shared).wait();
        auto x = tx.lock("t", shared).wait();
        auto y = tx.lock("t", exclusive).wait();
      },
      options);
  });
  ASSERT_TRUE(waits());
  EXPECT_EQ(ask_in_session(older_, exclusive)->get(), outcome::granted);
  EXPECT_TRUE(free("side"));
  stop.cancel();
  EXPECT_EQ(how.get().error().why, outcome::cancelled);
}

TEST_F(transact_test, a_thread_that_would_wait_for_itself_is_told_at_once) {
  auto outer = tags_->attach();
  auto held = outer.lock("a", exclusive).wait();
  ASSERT_TRUE(held);
  unsigned calls = 0;
  auto got = transact(*tags_, [&](blocking_transaction& tx) {
    ++calls;
    auto a = tx.lock("a", exclusive).wait();
  });
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().why, outcome::deadlock);
  EXPECT_EQ(calls, 1u);
}

} // namespace pawl::testing
