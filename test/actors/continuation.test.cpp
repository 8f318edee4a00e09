// Where, when and how often continuations run, and what they may do.

#include "fixture.hpp"

#include <stdexcept>

namespace pawl::testing {

using continuation_test = actors_test;

namespace {

/// Locks again and again, each time from inside the last continuation.
void chain(caf::event_based_actor* self, const scope& where, int left,
           std::promise<std::size_t>* done, const char* bottom,
           std::size_t deepest) {
  deepest = std::max(deepest, stack_since(bottom));
  if (left == 0) {
    done->set_value(deepest);
    return;
  }
  where.activity(self).lock(left, exclusive).then([=](lock) {
    chain(self, where, left - 1, done, bottom, deepest);
  });
}

} // namespace

TEST_F(continuation_test, a_million_immediate_continuations_need_no_stack) {
  auto a = make_puppet();
  std::promise<std::size_t> deepest;
  tell(a, [&](caf::event_based_actor* self) {
    chain(self, *tags_, 1'000'000, &deepest, stack_place(), 0);
  });
  EXPECT_LT(deepest.get_future().get(), 16u * 1024);
}

TEST_F(continuation_test, nested_continuations_run_afterwards_and_in_order) {
  auto a = make_puppet();
  std::promise<std::string> order;
  tell(a, [&](caf::event_based_actor* self) {
    auto s = tags_->attach(self);
    std::string text;
    s.lock(1, exclusive).then([&](lock) {
      s.lock(2, exclusive).then([&](lock) { text += "c"; });
      s.lock(3, exclusive).then([&](lock) { text += "d"; });
      text += "a";
    });
    text += "e";
    s.lock(4, exclusive).then([&](lock) { text += "f"; });
    order.set_value(text);
  });
  EXPECT_EQ(order.get_future().get(), "acdef");
}

TEST_F(continuation_test, an_actor_may_quit_inside_its_continuation) {
  auto a = make_puppet();
  tell_puppet(a, [this](puppet* self) {
    self->own.emplace(tags_->attach(self));
    self->own->lock("t", exclusive).then([self](lock x) {
      self->held.push_back(std::move(x));
      self->quit();
    });
  });
  EXPECT_TRUE(eventually([&] {
    return compat::is_terminated(caf::actor_cast<caf::abstract_actor*>(a));
  }));
  EXPECT_TRUE(eventually([&] { return tags_->holders("t").empty(); }));
}

TEST_F(continuation_test, a_continuation_may_destroy_its_session) {
  auto a = make_puppet();
  std::promise<lock_mode> still;
  tell_puppet(a, [&](puppet* self) {
    self->own.emplace(tags_->attach(self));
    self->own->lock("t", exclusive).then([&, self](lock x) {
      self->own.reset();
      still.set_value(x.mode()); // the lock keeps the session
    });
  });
  EXPECT_EQ(still.get_future().get(), exclusive);
  EXPECT_TRUE(eventually([&] { return tags_->residue() == residue{}; }));
}

TEST_F(continuation_test, an_exception_goes_to_the_actors_handler) {
  auto a = make_puppet();
  std::promise<std::string> what;
  tell(a, [&](caf::event_based_actor* self) {
    self->set_exception_handler([&](std::exception_ptr& x) -> caf::error {
      try {
        std::rethrow_exception(x);
      } catch (const std::exception& y) {
        what.set_value(y.what());
      }
      return caf::make_error(caf::sec::runtime_error);
    });
    tags_->activity(self).lock("t", exclusive).then(
      [](lock) { throw std::runtime_error("on purpose"); });
  });
  EXPECT_EQ(what.get_future().get(), "on purpose");
  EXPECT_TRUE(eventually([&] { return tags_->holders("t").empty(); }));
}

TEST_F(continuation_test, what_is_queued_behind_an_exception_still_runs) {
  auto a = make_puppet();
  std::promise<void> ran;
  tell(a, [&](caf::event_based_actor* self) {
    try {
      tags_->activity(self).lock(1, exclusive).then([&, self](lock) {
        tags_->activity(self).lock(2, exclusive).then(
          [&](lock) { ran.set_value(); });
        throw std::runtime_error("on purpose");
      });
    } catch (const std::runtime_error&) {
      // the actor lives on
    }
  });
  EXPECT_EQ(ran.get_future().wait_for(20s), std::future_status::ready);
}

TEST_F(continuation_test, then_from_a_foreign_thread_is_refused) {
  auto a = make_puppet();
  std::promise<session> made;
  tell(a, [&](caf::event_based_actor* self) {
    made.set_value(tags_->attach(self));
  });
  auto s = made.get_future().get();
  EXPECT_THROW(s.lock("t", exclusive).then([](lock) {}), misuse);
  EXPECT_THROW(static_cast<void>(s.lock("t", exclusive).wait()), misuse);
  EXPECT_TRUE(tags_->holders("t").empty());
}

TEST_F(continuation_test, then_of_a_threads_session_is_refused) {
  auto s = tags_->attach();
  EXPECT_THROW(s.lock("t", exclusive).then([](lock) {}), misuse);
}

TEST_F(continuation_test, wait_inside_an_event_based_actor_is_refused) {
  auto a = make_puppet();
  std::promise<bool> refused;
  tell(a, [&](caf::event_based_actor* self) {
    try {
      static_cast<void>(tags_->activity(self).lock("t", exclusive).wait());
      refused.set_value(false);
    } catch (const misuse&) {
      refused.set_value(true);
    }
  });
  EXPECT_TRUE(refused.get_future().get());
}

TEST_F(continuation_test, a_thread_that_would_wait_for_itself_is_told) {
  auto first = tags_->attach();
  auto second = tags_->attach();
  auto held = first.lock("t", exclusive).wait();
  ASSERT_TRUE(held);
  auto got = second.lock("t", exclusive).wait();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().why, outcome::deadlock);
  EXPECT_NE(got.error().message.find("use one session"), std::string::npos);
}

TEST_F(continuation_test, a_thread_waits_for_another_thread) {
  auto first = tags_->attach();
  auto held = first.lock("t", exclusive).wait();
  ASSERT_TRUE(held);
  std::promise<bool> got;
  std::thread other{[&] {
    auto s = tags_->attach();
    got.set_value(s.lock("t", exclusive).within(20s).wait().has_value());
  }};
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  held->release();
  EXPECT_TRUE(got.get_future().get());
  other.join();
}

TEST_F(continuation_test, a_response_finds_an_actor_that_changed_its_behavior) {
  auto a = make_puppet();
  auto blocker = tags_->attach();
  auto held = blocker.lock("t", exclusive).wait();
  ASSERT_TRUE(held);
  auto out = ask(a, *tags_, "t", exclusive);
  ASSERT_TRUE(eventually([&] { return waiting_for("t") == 1; }));
  tell(a, [](caf::event_based_actor* self) {
    self->become(caf::behavior{[](int) {}});
  });
  held->release();
  EXPECT_EQ(out->get(), outcome::granted);
}

} // namespace pawl::testing
