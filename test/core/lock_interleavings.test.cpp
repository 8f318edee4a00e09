// All interleavings of a few clients, deaths, deadlines and managers on the real
// lock machine, step by step; see interleavings.hpp. (All where the play is
// small; else all with two or three preemptions.) After each step the row is
// looked at; after each schedule nobody is stuck, each request has ended once,
// and nothing is left.

#include "interleavings.hpp"
#include "lock_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

using namespace pawl;
using namespace pawl::test;

#if defined(__SANITIZE_THREAD__)
#  define PAWL_SKIP_FIBERS() GTEST_SKIP() << "one thread, with fibers"
#else
#  define PAWL_SKIP_FIBERS() static_cast<void>(0)
#endif

namespace {

const term t{"t"};
const term u{"u"};

/// A world that is used for all schedules of a test: after each it is as empty
/// as before.
class stage {
public:
  /// A script's own session, waiters and handles.
  struct role {
    session_ptr session;
    std::vector<waiter_ptr> asks;
  };

  role& cast(std::size_t asks, lock_mode mode, const term& what = t) {
    return cast(std::vector<lock_mode>(asks, mode), what);
  }

  role& cast(const std::vector<lock_mode>& modes, const term& what = t) {
    roles_.push_back(std::make_unique<role>());
    auto& x = *roles_.back();
    x.session = world.session();
    for (auto mode : modes)
      x.asks.push_back(lock_world::waiter(x.session, what, mode));
    return x;
  }

  // -- what scripts do --------------------------------------------------------

  /// Asks, and waits for the end of it. True if granted.
  bool lock(role& x, std::size_t which = 0) {
    auto& w = *x.asks[which];
    interleavings::give_way();
    world.locks.lock(w);
    return wait(x, which);
  }

  static bool wait(role& x, std::size_t which = 0) {
    auto& w = *x.asks[which];
    if (!w.is_settled())
      interleavings::await([&w] { return w.is_settled(); });
    return w.state() == outcome::granted;
  }

  release_result release(role& x, std::size_t which = 0) {
    interleavings::give_way();
    return world.locks.release(*x.asks[which]->take_hold());
  }

  void lock_and_release(role& x, std::size_t which = 0) {
    if (lock(x, which))
      release(x, which);
  }

  bool end(role& x, std::size_t which = 0,
           outcome why = outcome::timeout) {
    interleavings::give_way();
    return world.locks.end(*x.asks[which], why);
  }

  void close(role& x) {
    interleavings::give_way();
    world.locks.close(*x.session, outcome::session_ended);
  }

  /// The managers: as many of these scripts as there are threads for them.
  void manage(std::size_t scripts = 1, std::uint32_t limit = 64) {
    for (;;) {
      interleavings::await([this, scripts] {
        return world.port.pending() > 0 || interleavings::only_left(scripts);
      });
      if (!world.port.pump(world.locks, 0, limit))
        return;
    }
  }

  // -- what is checked --------------------------------------------------------

  interleavings::play play(std::vector<interleavings::script> scripts,
                           std::size_t managers = 1,
                           std::uint32_t limit = 64) {
    for (std::size_t i = 0; i < managers; ++i)
      scripts.push_back([this, managers, limit] { manage(managers, limit); });
    return {std::move(scripts), [this] { look(t); look(u); },
            [this] { strike(); }};
  }

  lock_world world;

private:
  void look(const term& what) {
    auto view = world.locks.table().view(what);
    const session_ledger* first = nullptr;
    auto strangers = false;
    std::uint32_t holders = 0;
    world.locks.table().for_each_holder(what, [&](const hold_record& r) {
      strangers |= first != nullptr && first != r.session;
      first = r.session;
      ++holders;
    });
    EXPECT_EQ(view.holders, holders);
    EXPECT_FALSE(view.mode == exclusive && strangers) << "I1";
  }

  void strike() {
    for (auto& x : roles_) {
      for (auto& w : x->asks) {
        EXPECT_EQ(w->settlements(), w->state() == outcome::pending ? 0 : 1);
        EXPECT_FALSE(w->entered);
        EXPECT_EQ(w->queue, nullptr);
        if (w->state() == outcome::granted && w->hold != nullptr)
          world.locks.release(*w->take_hold()); // after the session's end
      }
      EXPECT_EQ(x->session->waits(), 0u);
      EXPECT_EQ(x->session->holds(), 0u);
      x->session->check_invariants();
    }
    for (const auto& what : {t, u})
      EXPECT_EQ(world.row(what), "-");
    // Every bucket is looked at now and then: it is most of the time.
    if (++strikes_ % 64 == 0) {
      world.check();
      EXPECT_EQ(world.locks.table().rows(), 0u);
    }
    EXPECT_EQ(world.locks.table().waiters(), 0u);
    EXPECT_EQ(world.port.pending(), 0u);
    EXPECT_EQ(world.port.busy(), 0u);
    roles_.clear();
    EXPECT_EQ(test_waiter::live, 0);
    EXPECT_EQ(test_session::live, 0);
  }

  std::vector<std::unique_ptr<role>> roles_;
  std::size_t strikes_ = 0;
};

using play = interleavings::play;

void report(std::size_t schedules) {
  if (std::getenv("PAWL_SHOW") != nullptr)
    std::printf("%zu schedules\n", schedules);
  ::testing::Test::RecordProperty("schedules", std::to_string(schedules));
  EXPECT_GT(schedules, 10u);
}

} // namespace

TEST(lock_interleavings, lock_and_release_meet_lock_and_release) {
  PAWL_SKIP_FIBERS();
  for (auto mode : {shared, exclusive}) {
    stage s;
    report(interleavings{6}.explore([&]() -> play {
      auto& a = s.cast(1, exclusive);
      auto& b = s.cast(1, mode);
      return s.play({[&] { s.lock_and_release(a); },
                     [&] { s.lock_and_release(b); }});
    }));
  }
}

TEST(lock_interleavings, a_fast_lock_meets_a_waiter) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{8}.explore([&]() -> play {
    auto& a = s.cast(0, exclusive);
    auto& b = s.cast(1, exclusive);
    return s.play({[&] {
                     interleavings::give_way();
                     if (auto* r = s.world.take(a.session, t, exclusive))
                       s.world.locks.release(*r);
                   },
                   [&] { s.lock_and_release(b); }});
  }));
}

TEST(lock_interleavings, an_end_meets_its_request_at_any_point) {
  // Cancelled before it is listed, before it hangs, while it waits, while it
  // is granted, when it was granted.
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, exclusive);
    s.world.locks.lock(*a.asks[0]);
    return s.play({[&] { s.release(a); },
                   [&] { s.lock_and_release(b); },
                   [&] { s.end(b, 0, outcome::cancelled); }});
  }));
}

TEST(lock_interleavings, an_end_meets_its_request_alone) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    return s.play({[&] { s.lock_and_release(a); },
                   [&] { s.end(a, 0, outcome::cancelled); }});
  }));
}

TEST(lock_interleavings, a_death_meets_a_request_and_its_grant) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, exclusive);
    s.world.locks.lock(*a.asks[0]);
    return s.play({[&] { s.release(a); },
                   [&] { s.lock_and_release(b); },
                   [&] { s.close(b); }});
  }));
}

TEST(lock_interleavings, a_death_meets_an_end_and_a_grant) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, exclusive);
    s.world.locks.lock(*a.asks[0]);
    s.world.locks.lock(*b.asks[0]);
    return s.play({[&] { s.release(a); }, [&] { s.end(b); },
                   [&] { s.close(b); }});
  }));
}

TEST(lock_interleavings, a_release_by_handle_meets_the_end_of_the_session) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, exclusive);
    s.world.locks.lock(*a.asks[0]);
    s.world.locks.lock(*b.asks[0]);
    return s.play({[&] { s.release(a); }, [&] { s.close(a); },
                   [&] {
                     if (stage::wait(b))
                       s.release(b);
                   }});
  }));
}

TEST(lock_interleavings, a_revocation_meets_release_and_death) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{4}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    s.world.locks.lock(*a.asks[0]);
    auto* r = a.asks[0]->hold;
    local_locks::pin(*r);
    return s.play({[&] { s.release(a); }, [&] { s.close(a); },
                   [&, r] {
                     interleavings::give_way();
                     s.world.locks.revoke(*r);
                   }});
  }));
}

TEST(lock_interleavings, who_finds_its_hold_gone_by_a_revocation_is_told_so) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, exclusive);
    s.world.locks.lock(*a.asks[0]);
    auto* r = a.asks[0]->hold;
    local_locks::pin(*r);
    return s.play({[&] {
                     EXPECT_NE(s.release(a), release_result::already_released);
                   },
                   [&, r] {
                     interleavings::give_way();
                     s.world.locks.revoke(*r);
                   },
                   [&] {
                     interleavings::give_way();
                     if (auto* y = s.world.take(b.session, t, exclusive))
                       s.world.locks.release(*y);
                     s.end(b);
                   }});
  }));
}

TEST(lock_interleavings, a_downgrade_meets_readers_that_hang) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{5}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, shared);
    s.world.locks.lock(*a.asks[0]);
    return s.play({[&] {
                     interleavings::give_way();
                     s.world.locks.downgrade(*a.asks[0]->hold);
                     // The reader gets in while the hold stays.
                     interleavings::await([&] {
                       return b.asks[0]->is_settled();
                     });
                     s.release(a);
                   },
                   [&] { s.lock_and_release(b); }});
  }));
}

TEST(lock_interleavings, of_two_upgraders_one_is_told_deadlock) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast({shared, exclusive});
    auto& b = s.cast({shared, exclusive});
    for (auto* x : {&a, &b})
      s.world.locks.lock(*x->asks[0]);
    auto upgrade = [&](stage::role& x) {
      if (s.lock(x, 1))
        s.release(x, 1);
      else
        EXPECT_EQ(x.asks[1]->state(), outcome::deadlock);
      s.release(x, 0);
    };
    auto p = s.play({[&, upgrade] { upgrade(a); }, [&, upgrade] { upgrade(b); }});
    p.at_end = [&, last = std::move(p.at_end)] {
      // A is the older; it loses only if it never met B.
      EXPECT_EQ(a.asks[1]->state(), outcome::granted);
      last();
    };
    return p;
  }));
}

TEST(lock_interleavings, an_upgrade_that_ends_condemns_nobody) {
  // A's upgrade times out while B's comes: B is told `deadlock` only if A's
  // was still pending.
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast({shared, exclusive});
    auto& b = s.cast({shared, exclusive});
    for (auto* x : {&a, &b})
      s.world.locks.lock(*x->asks[0]);
    s.world.locks.lock(*a.asks[1]);
    return s.play({[&] {
                     s.end(a, 1);
                     s.release(a, 0);
                   },
                   [&] {
                     interleavings::give_way();
                     auto ended = a.asks[1]->state() != outcome::pending;
                     s.world.locks.lock(*b.asks[1]);
                     if (stage::wait(b, 1))
                       s.release(b, 1);
                     else
                       EXPECT_FALSE(ended) << "a verdict for a dead request";
                     s.release(b, 0);
                   }});
  }));
}

TEST(lock_interleavings, an_upgrade_that_is_cancelled_falls_back_to_shared) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{2}.explore([&]() -> play {
    auto& a = s.cast({shared, exclusive});
    auto& b = s.cast(1, shared);
    s.world.locks.lock(*a.asks[0]);
    return s.play({[&] {
                     if (s.lock(a, 1))
                       s.release(a, 1);
                     else // then readers get in beside it
                       interleavings::await([&] {
                         return b.asks[0]->is_settled();
                       });
                     s.release(a, 0);
                   },
                   [&] { s.end(a, 1, outcome::cancelled); },
                   [&] { s.lock_and_release(b); }});
  }));
}

TEST(lock_interleavings, an_upgrader_releases_what_it_upgrades) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast({shared, exclusive});
    auto& b = s.cast({shared, exclusive});
    for (auto* x : {&a, &b})
      s.world.locks.lock(*x->asks[0]);
    s.world.locks.lock(*a.asks[1]);
    return s.play({[&] {
                     s.release(a, 0);
                     if (stage::wait(a, 1))
                       s.release(a, 1);
                   },
                   [&] {
                     if (s.lock(b, 1))
                       s.release(b, 1);
                     s.release(b, 0);
                   }});
  }));
}

TEST(lock_interleavings, fast_locks_meet_a_queue_that_becomes_empty) {
  // A's release passes the row on to B, B's leaves an empty queue for the
  // manager; C comes at any point, without waiting, D with a request.
  PAWL_SKIP_FIBERS();
  for (auto mode : {shared, exclusive}) {
    stage s;
    report(interleavings{2}.explore([&]() -> play {
      auto& a = s.cast(1, exclusive);
      auto& b = s.cast(1, exclusive);
      auto& c = s.cast(0, exclusive);
      auto& d = s.cast(1, mode);
      s.world.locks.lock(*a.asks[0]);
      s.world.locks.lock(*b.asks[0]);
      return s.play({[&] {
                       s.release(a);
                       s.release(b);
                     },
                     [&, mode] {
                       interleavings::give_way();
                       if (auto* r = s.world.take(c.session, t, mode))
                         s.world.locks.release(*r);
                     },
                     [&] { s.lock_and_release(d); }});
    }));
  }
}

TEST(lock_interleavings, a_detach_meets_requests_that_hang) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{2}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive);
    auto& b = s.cast(1, exclusive);
    auto& c = s.cast(1, shared);
    s.world.locks.lock(*a.asks[0]);
    s.world.locks.lock(*b.asks[0]);
    return s.play({[&] { s.release(a); }, [&] { s.end(b); },
                   [&] { s.lock_and_release(c); },
                   [&] {
                     if (stage::wait(b))
                       s.release(b);
                   }});
  }));
}

TEST(lock_interleavings, the_end_of_the_head_lets_in_those_behind) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{5}.explore([&]() -> play {
    auto& a = s.cast(1, shared);
    auto& b = s.cast(1, exclusive);
    auto& c = s.cast(1, shared);
    s.world.locks.lock(*a.asks[0]);
    s.world.locks.lock(*b.asks[0]);
    return s.play({[&] { s.end(b); },
                   [&] {
                     s.lock(c);
                     s.release(c);
                     // Only now: nobody else may be needed to let C in.
                     s.release(a);
                   }});
  }));
}

TEST(lock_interleavings, managers_are_reused_with_looks_under_way) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{2}.explore([&]() -> play {
    auto& a = s.cast(1, exclusive, t);
    auto& b = s.cast(1, exclusive, t);
    auto& c = s.cast(1, exclusive, u);
    auto& d = s.cast(1, exclusive, u);
    s.world.locks.lock(*a.asks[0]);
    s.world.locks.lock(*b.asks[0]);
    s.world.locks.lock(*c.asks[0]);
    return s.play({[&] {
                     s.release(a);
                     if (stage::wait(b))
                       s.release(b);
                   },
                   [&] { s.lock_and_release(d); },
                   [&] { s.release(c); }},
                  1, 1);
  }));
}

TEST(lock_interleavings, two_requests_of_one_session_are_granted_together) {
  // Whatever the order, a session that holds the term does not end up behind
  // somebody who waits for it.
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{3}.explore([&]() -> play {
    auto& a = s.cast({shared, shared});
    auto& b = s.cast(1, exclusive);
    auto& c = s.cast(1, exclusive);
    s.world.locks.lock(*c.asks[0]);
    s.world.locks.lock(*a.asks[0]);
    s.world.locks.lock(*b.asks[0]);
    return s.play({[&] { s.release(c); },
                   [&] {
                     // The first is released when the second is granted.
                     stage::wait(a, 0);
                     stage::wait(a, 1);
                     s.release(a, 0);
                     s.release(a, 1);
                     if (stage::wait(b))
                       s.release(b);
                   },
                   [&] {
                     interleavings::give_way();
                     s.world.locks.lock(*a.asks[1]);
                   }});
  }));
}

TEST(lock_interleavings, a_session_with_two_requests_upgrades_and_dies) {
  PAWL_SKIP_FIBERS();
  stage s;
  report(interleavings{2}.explore([&]() -> play {
    auto& a = s.cast({shared, exclusive});
    auto& b = s.cast({shared, exclusive});
    return s.play({[&] {
                     if (s.lock(a, 0))
                       s.lock(a, 1);
                   },
                   [&] {
                     if (s.lock(b, 0)) {
                       s.lock_and_release(b, 1);
                       s.release(b, 0);
                     }
                   },
                   [&] { s.close(a); }});
  }));
}
