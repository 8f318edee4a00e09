// Every way in which an actor can end: nothing stays locked, nothing waits on.

#include "fixture.hpp"

#include <stdexcept>

namespace pawl::testing {

class lifetime_test : public actors_test {
protected:
  /// A puppet that holds h and waits for w, which this test holds.
  caf::actor entangled() {
    auto a = make_puppet();
    EXPECT_EQ(ask(a, *tags_, "h", exclusive)->get(), outcome::granted);
    EXPECT_EQ(ask(a, *tags_, [](const session& s) {
                return s.lock("wide", exclusive).on(every_node);
              })->get(),
              outcome::granted);
    blocker_.emplace(tags_->attach());
    auto got = blocker_->lock("w", exclusive).wait();
    EXPECT_TRUE(got);
    held_ = std::move(*got);
    waiting_ = ask(a, *tags_, "w", exclusive);
    EXPECT_TRUE(eventually([&] { return waiting_for("w") == 1; }));
    return a;
  }

  void expect_free() {
    EXPECT_TRUE(eventually([&] {
      return tags_->holders("h").empty() && tags_->holders("wide").empty()
             && waiting_for("w") == 0;
    }));
    held_.release();
    blocker_.reset();
    EXPECT_TRUE(eventually([&] { return tags_->residue() == residue{}; }));
  }

  std::optional<session> blocker_;
  lock held_;
  result_ptr waiting_;
};

TEST_F(lifetime_test, an_actor_that_quits_leaves_nothing) {
  auto a = entangled();
  tell(a, [](caf::event_based_actor* self) { self->quit(); });
  expect_free();
}

TEST_F(lifetime_test, an_actor_that_quits_with_an_error_leaves_nothing) {
  auto a = entangled();
  tell(a, [](caf::event_based_actor* self) {
    self->quit(caf::make_error(caf::sec::runtime_error));
  });
  expect_free();
}

TEST_F(lifetime_test, an_actor_that_throws_leaves_nothing) {
  auto a = entangled();
  tell(a, [](caf::event_based_actor*) { throw std::runtime_error("on purpose"); });
  expect_free();
}

TEST_F(lifetime_test, a_killed_actor_leaves_nothing) {
  auto a = entangled();
  compat::anon_send_exit(a, caf::exit_reason::kill);
  expect_free();
}

TEST_F(lifetime_test, an_actor_that_is_told_to_exit_leaves_nothing) {
  auto a = entangled();
  compat::anon_send_exit(a, caf::exit_reason::user_shutdown);
  expect_free();
}

TEST_F(lifetime_test, an_actor_whose_last_handle_goes_leaves_nothing) {
  auto a = entangled();
  puppets_.clear();
  a = nullptr;
  expect_free();
}

TEST_F(lifetime_test, a_detached_actor_that_is_killed_leaves_nothing) {
  auto a = system_->spawn<puppet, caf::detached>();
  ASSERT_EQ(ask(a, *tags_, "h", exclusive)->get(), outcome::granted);
  compat::anon_send_exit(a, caf::exit_reason::kill);
  a = nullptr;
  EXPECT_TRUE(eventually([&] { return tags_->holders("h").empty(); }));
}

TEST_F(lifetime_test, a_blocking_actor_that_returns_leaves_nothing) {
  std::promise<bool> got;
  system_->spawn([&](caf::blocking_actor* self) {
    auto s = tags_->attach(self);
    auto x = s.lock("h", exclusive).wait();
    got.set_value(x.has_value());
    x->release();
    auto y = s.lock("i", exclusive).wait();
    static lock leaked; // outlives the actor on purpose
    leaked = std::move(*y);
  });
  EXPECT_TRUE(got.get_future().get());
  EXPECT_TRUE(eventually([&] { return tags_->holders("i").empty(); }));
  EXPECT_TRUE(eventually([&] { return tags_->residue().rows == 0; }));
}

TEST_F(lifetime_test, a_blocking_actor_killed_while_it_waits_is_told_so) {
  auto blocker = tags_->attach();
  auto held = blocker.lock("w", exclusive).wait();
  ASSERT_TRUE(held);
  std::promise<outcome> how;
  auto a = system_->spawn([&](caf::blocking_actor* self) {
    auto s = tags_->attach(self);
    auto x = s.lock("w", exclusive).wait();
    how.set_value(x ? outcome::granted : x.error().why);
  });
  ASSERT_TRUE(eventually([&] { return waiting_for("w") == 1; }));
  compat::anon_send_exit(a, caf::exit_reason::kill);
  EXPECT_EQ(how.get_future().get(), outcome::session_ended);
  EXPECT_TRUE(eventually([&] { return waiting_for("w") == 0; }));
}

TEST_F(lifetime_test, an_actor_that_never_starts_can_hold_a_lock) {
  // Locks taken for it in its constructor go with it.
  struct sleeper : caf::event_based_actor {
    sleeper(caf::actor_config& cfg, const scope& where)
      : caf::event_based_actor(cfg) {
      where.activity(this).lock("h", exclusive).then(
        [this](lock x) { held = std::move(x); });
    }
    caf::behavior make_behavior() override {
      return {[](int) {}};
    }
    lock held;
  };
  auto a = system_->spawn<sleeper, caf::lazy_init>(*tags_);
  EXPECT_EQ(tags_->holders("h").size(), 1u);
  a = nullptr;
  EXPECT_TRUE(eventually([&] { return tags_->holders("h").empty(); }));
}

TEST_F(lifetime_test, an_activity_opened_after_the_end_is_born_ended) {
  struct undead : caf::event_based_actor {
    undead(caf::actor_config& cfg, scope where, std::promise<outcome>& out)
      : caf::event_based_actor(cfg), where_(std::move(where)), out_(out) {
      // nop
    }
    caf::behavior make_behavior() override {
      session_.emplace(where_.attach(this));
      return {[this](int) { quit(); }};
    }
    ~undead() override {
      session_.reset();
      auto s = where_.activity(this);
      out_.set_value(s.ended() ? outcome::session_ended : outcome::granted);
    }
    scope where_;
    std::promise<outcome>& out_;
    std::optional<session> session_;
  };
  std::promise<outcome> how;
  auto a = system_->spawn<undead>(*tags_, how);
  compat::anon_send(a, 1);
  a = nullptr;
  EXPECT_EQ(how.get_future().get(), outcome::session_ended);
}

TEST_F(lifetime_test, an_actor_may_ask_a_scope_that_was_closed_under_it) {
  for (int i = 0; i < 20; ++i) {
    auto other = open_local_scope(*system_, "other");
    ASSERT_TRUE(other.wait_ready(20s));
    auto a = make_puppet();
    EXPECT_EQ(ask(a, other, "t", exclusive)->get(), outcome::granted);
    tell_puppet(a, [](puppet* self) { self->held.clear(); });
    other.close();
    EXPECT_EQ(ask(a, other, "t", exclusive)->get(), outcome::scope_closed);
  }
}

TEST_F(lifetime_test, a_session_ends_what_it_has_when_told) {
  auto a = entangled();
  auto s = tags_->attach();
  auto x = s.lock("mine", exclusive).wait();
  ASSERT_TRUE(x);
  s.end();
  EXPECT_EQ(x->release(), release_result::already_released);
  auto y = s.lock("mine", exclusive).wait();
  ASSERT_FALSE(y);
  EXPECT_EQ(y.error().why, outcome::session_ended);
  compat::anon_send_exit(a, caf::exit_reason::kill);
  expect_free();
}

TEST_F(lifetime_test, ten_thousand_actors_killed_while_acquiring_leave_nothing) {
  constexpr int count = 10'000;
  std::vector<caf::actor> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(system_->spawn<puppet>());
    auto name = "t" + std::to_string(i % 100);
    tell_puppet(all.back(), [this, name](puppet* self) {
      tags_->activity(self).lock(name, exclusive).then(
        [self](lock x) { self->held.push_back(std::move(x)); });
    });
    if (i % 3 == 0)
      compat::anon_send_exit(all[i / 2], caf::exit_reason::kill);
  }
  for (auto& a : all)
    compat::anon_send_exit(a, caf::exit_reason::kill);
  all.clear();
  EXPECT_TRUE(eventually([&] { return tags_->residue() == residue{}; }, 60s));
}

TEST_F(lifetime_test, death_with_many_locks_releases_them_all) {
  auto a = make_puppet();
  std::promise<void> done;
  tell_puppet(a, [&](puppet* self) {
    self->own.emplace(tags_->attach(self));
    for (int i = 0; i < 20'000; ++i)
      self->own->lock(i, shared).then(
        [self](lock x) { self->held.push_back(std::move(x)); });
    done.set_value();
  });
  done.get_future().get();
  EXPECT_EQ(tags_->residue().rows, 20'000u);
  compat::anon_send_exit(a, caf::exit_reason::kill);
  EXPECT_TRUE(eventually([&] { return tags_->residue() == residue{}; }));
}

} // namespace pawl::testing
