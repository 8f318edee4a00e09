#include <pawl/actors/caf_compat.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

namespace compat = pawl::compat;

namespace pawl_compat_test {

enum class color : std::uint8_t { red, green, blue };

inline std::string to_string(color x) {
  return std::to_string(static_cast<int>(x));
}

PAWL_ENUM(color, blue)

struct point {
  int x = 0;
  int y = 0;
};

PAWL_INSPECT(point, x, y)

struct nothing {};

PAWL_INSPECT(nothing)

} // namespace pawl_compat_test

CAF_BEGIN_TYPE_ID_BLOCK(pawl_compat_test, pawl::compat::next_type_id + 200)

CAF_ADD_TYPE_ID(pawl_compat_test, (pawl_compat_test::color))
CAF_ADD_TYPE_ID(pawl_compat_test, (pawl_compat_test::point))
CAF_ADD_TYPE_ID(pawl_compat_test, (pawl_compat_test::nothing))

CAF_END_TYPE_ID_BLOCK(pawl_compat_test)

namespace {

using namespace std::chrono_literals;
using namespace pawl_compat_test;

using test_block = caf::id_block::pawl_compat_test;

struct number : compat::deliverable {
  explicit number(int x) : value(x) {
    // nop
  }

  int value;
};

compat::deliverable_ptr make_number(int x) {
  return std::make_shared<number>(x);
}

int value_of(const compat::deliverable_ptr& ptr) {
  return static_cast<const number&>(*ptr).value;
}

struct config : caf::actor_system_config {
  config() {
    compat::init_meta<test_block>();
    compat::add_types<test_block>(*this);
    compat::use_sharing_scheduler(*this);
    compat::max_threads(*this, 2);
  }
};

caf::local_actor* raw(const caf::actor& hdl) {
  return static_cast<caf::local_actor*>(
    caf::actor_cast<caf::abstract_actor*>(hdl));
}

// Waits for a value, but not for ever.
template <class T>
T get(std::future<T>&& x) {
  if (x.wait_for(10s) != std::future_status::ready)
    throw std::runtime_error("nothing came");
  return x.get();
}

template <class T>
void wait(std::future<T>&& x) {
  static_cast<void>(get(std::move(x)));
}

class caf_compat : public ::testing::Test {
public:
  // Spawns an actor that opens one response and calls `f` on it.
  template <class F>
  caf::actor spawn_receiver(F f) {
    auto hdl = sys.spawn([this, f](caf::event_based_actor* self) {
      opened.set_value(compat::open_response(
        self, [self, f](const compat::deliverable_ptr& x) { f(self, x); }));
      return caf::behavior{[](int x) { return x; }};
    });
    where = get(opened.get_future());
    return hdl;
  }

  // The reason for which an actor ends.
  static std::future<caf::error> end_of(const caf::actor& hdl) {
    auto result = std::make_shared<std::promise<caf::error>>();
    compat::on_terminate(hdl, [result](const caf::error& reason) noexcept {
      result->set_value(reason);
    });
    return result->get_future();
  }

  config cfg;
  caf::actor_system sys{cfg};
  std::promise<compat::responder> opened;
  compat::responder where;
  std::promise<int> got;
};

// -- responses in event-based actors ------------------------------------------

TEST_F(caf_compat, a_response_from_another_thread_runs_the_continuation) {
  auto hdl = spawn_receiver(
    [this](caf::event_based_actor* self, const compat::deliverable_ptr& x) {
      EXPECT_TRUE(compat::runs_here(self));
      got.set_value(value_of(x));
    });
  std::thread{[this] { EXPECT_TRUE(where.deliver(make_number(7))); }}.join();
  EXPECT_EQ(get(got.get_future()), 7);
}

TEST_F(caf_compat, a_response_reaches_an_actor_with_another_behavior) {
  std::promise<void> changed;
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    opened.set_value(
      compat::open_response(self, [this](const compat::deliverable_ptr& x) {
        got.set_value(value_of(x));
      }));
    return caf::behavior{[self, &changed](int) {
      self->become(caf::behavior{[](const std::string&) {}});
      changed.set_value();
    }};
  });
  where = get(opened.get_future());
  compat::anon_send(hdl, 1);
  get(changed.get_future());
  EXPECT_TRUE(where.deliver(make_number(8)));
  EXPECT_EQ(get(got.get_future()), 8);
}

TEST_F(caf_compat, a_response_to_a_dead_actor_is_refused) {
  auto hdl = spawn_receiver(
    [](caf::event_based_actor*, const compat::deliverable_ptr&) { FAIL(); });
  auto end = end_of(hdl);
  compat::anon_send_exit(hdl, caf::exit_reason::kill);
  wait(std::move(end));
  // Still held by `hdl`, but ended.
  EXPECT_FALSE(where.deliver(make_number(1)));
  hdl = nullptr;
  EXPECT_FALSE(where.deliver(make_number(1)));
}

TEST_F(caf_compat, a_pending_response_does_not_keep_its_actor_alive) {
  auto hdl = spawn_receiver(
    [](caf::event_based_actor*, const compat::deliverable_ptr&) { FAIL(); });
  auto end = end_of(hdl);
  hdl = nullptr;
  EXPECT_EQ(get(std::move(end)), caf::exit_reason::unreachable);
  EXPECT_FALSE(where.deliver(make_number(1)));
}

TEST_F(caf_compat, a_response_that_nobody_takes_is_destroyed) {
  std::promise<void> blocked;
  std::promise<void> go_on;
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    opened.set_value(compat::open_response(
      self, [](const compat::deliverable_ptr&) { FAIL(); }));
    return caf::behavior{[&, self](int) {
      blocked.set_value();
      go_on.get_future().wait();
      self->quit();
    }};
  });
  where = get(opened.get_future());
  compat::anon_send(hdl, 1);
  get(blocked.get_future());
  auto end = end_of(hdl);
  auto what = make_number(1);
  auto weak = std::weak_ptr<compat::deliverable>{what};
  EXPECT_TRUE(where.deliver(std::move(what)));
  go_on.set_value();
  wait(std::move(end));
  for (int i = 0; i < 1000 && !weak.expired(); ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(weak.expired());
}

TEST_F(caf_compat, an_exception_in_a_continuation_is_the_actors) {
  std::promise<std::string> caught;
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    self->set_exception_handler([&](std::exception_ptr& x) -> caf::error {
      try {
        std::rethrow_exception(x);
      } catch (const std::exception& e) {
        caught.set_value(e.what());
      }
      return caf::make_error(caf::sec::runtime_error);
    });
    opened.set_value(
      compat::open_response(self, [](const compat::deliverable_ptr&) {
        throw std::runtime_error("from the continuation");
      }));
    return caf::behavior{[](int) {}};
  });
  where = get(opened.get_future());
  auto end = end_of(hdl);
  EXPECT_TRUE(where.deliver(make_number(1)));
  EXPECT_EQ(get(caught.get_future()), "from the continuation");
  EXPECT_EQ(get(std::move(end)), caf::sec::runtime_error);
}

TEST_F(caf_compat, an_actor_without_a_behavior_lives_until_its_response_came) {
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    opened.set_value(
      compat::open_response(self, [this](const compat::deliverable_ptr& x) {
        got.set_value(value_of(x));
      }));
  });
  where = get(opened.get_future());
  auto end = end_of(hdl);
  EXPECT_EQ(end.wait_for(20ms), std::future_status::timeout);
  EXPECT_TRUE(where.deliver(make_number(3)));
  EXPECT_EQ(get(got.get_future()), 3);
  EXPECT_FALSE(get(std::move(end)));
}

TEST_F(caf_compat, a_detached_actor_takes_a_response_too) {
  auto hdl = sys.spawn<caf::detached>([&](caf::event_based_actor* self) {
    EXPECT_TRUE(compat::runs_here(self));
    opened.set_value(compat::open_response(
      self, [this, self](const compat::deliverable_ptr& x) {
        EXPECT_TRUE(compat::runs_here(self));
        got.set_value(value_of(x));
      }));
    return caf::behavior{[](int) {}};
  });
  where = get(opened.get_future());
  EXPECT_TRUE(where.deliver(make_number(9)));
  EXPECT_EQ(get(got.get_future()), 9);
}

TEST_F(caf_compat, a_port_takes_as_many_responses_as_are_due) {
  constexpr int n = 1000;
  std::shared_ptr<compat::response_port> port;
  std::promise<void> done;
  int sum = 0;
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    port = std::make_shared<compat::response_port>(
      self, [&](const compat::deliverable_ptr& x) {
        sum += value_of(x);
        if (port->due() == 0)
          done.set_value();
      });
    for (int i = 0; i < n; ++i)
      port->expect();
    opened.set_value(port->where());
    return caf::behavior{[](int) {}};
  });
  where = get(opened.get_future());
  // One of them has become pointless.
  EXPECT_TRUE(where.deliver(nullptr));
  for (int i = 1; i < n; ++i)
    EXPECT_TRUE(where.deliver(make_number(1)));
  get(done.get_future());
  EXPECT_EQ(sum, n - 1);
}

TEST_F(caf_compat, a_port_may_be_destroyed_by_its_own_callback) {
  std::shared_ptr<compat::response_port> port;
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    port = std::make_shared<compat::response_port>(
      self, [&](const compat::deliverable_ptr& x) {
        port.reset();
        got.set_value(value_of(x));
      });
    port->expect();
    port->expect();
    opened.set_value(port->where());
    return caf::behavior{[](int x) { return x; }};
  });
  where = get(opened.get_future());
  EXPECT_TRUE(where.deliver(make_number(4)));
  EXPECT_EQ(get(got.get_future()), 4);
  EXPECT_TRUE(where.deliver(make_number(5)));
  caf::scoped_actor self{sys};
  compat::request(self, hdl, 10s, 1)
    .receive([](int x) { EXPECT_EQ(x, 1); },
             [](const caf::error&) { FAIL() << "the actor is gone"; });
}

// -- waiting in blocking actors -----------------------------------------------

TEST_F(caf_compat, a_blocking_actor_waits_until_its_response_is_delivered) {
  auto hdl = sys.spawn([this](caf::blocking_actor* self) {
    auto slot = compat::make_responder(self);
    opened.set_value(slot);
    compat::deliverable_ptr x;
    EXPECT_EQ(compat::wait_response(self, slot, x),
              compat::wait_result::delivered);
    got.set_value(value_of(x));
  });
  where = get(opened.get_future());
  std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(where.deliver(make_number(5)));
  EXPECT_EQ(get(got.get_future()), 5);
}

TEST_F(caf_compat, a_wait_leaves_other_messages_in_the_mailbox_in_order) {
  caf::scoped_actor self{sys};
  auto me = caf::actor{self.ptr()};
  auto slot = compat::make_responder(self.ptr());
  compat::anon_send(me, 1);
  compat::anon_send(me, 2);
  std::thread other{[&] {
    std::this_thread::sleep_for(10ms);
    compat::anon_send(me, 3);
    EXPECT_TRUE(slot.deliver(make_number(6)));
    compat::anon_send(me, 4);
  }};
  compat::deliverable_ptr x;
  ASSERT_EQ(compat::wait_response(self.ptr(), slot, x),
            compat::wait_result::delivered);
  EXPECT_EQ(value_of(x), 6);
  other.join();
  std::vector<int> seen;
  for (int i = 0; i < 4; ++i)
    self->receive([&](int value) { seen.push_back(value); });
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(caf_compat, a_wait_ends_at_its_deadline_and_may_be_taken_up_again) {
  caf::scoped_actor self{sys};
  auto slot = compat::make_responder(self.ptr());
  compat::deliverable_ptr x;
  auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(compat::wait_response(self.ptr(), slot, x, start + 30ms),
            compat::wait_result::timed_out);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
  EXPECT_EQ(compat::wait_response(self.ptr(), slot, x, start),
            compat::wait_result::timed_out);
  EXPECT_TRUE(slot.deliver(make_number(2)));
  EXPECT_EQ(compat::wait_response(self.ptr(), slot, x, start),
            compat::wait_result::delivered);
  EXPECT_EQ(value_of(x), 2);
}

TEST_F(caf_compat, an_ordinary_receive_does_not_see_a_response) {
  caf::scoped_actor self{sys};
  auto me = caf::actor{self.ptr()};
  auto slot = compat::make_responder(self.ptr());
  EXPECT_TRUE(slot.deliver(make_number(2)));
  compat::anon_send(me, 1);
  self->receive([](int x) { EXPECT_EQ(x, 1); });
  compat::deliverable_ptr x;
  EXPECT_EQ(compat::wait_response(self.ptr(), slot, x),
            compat::wait_result::delivered);
}

TEST_F(caf_compat, two_responses_may_be_waited_for_in_any_order) {
  caf::scoped_actor self{sys};
  auto first = compat::make_responder(self.ptr());
  auto second = compat::make_responder(self.ptr());
  EXPECT_TRUE(first.deliver(make_number(1)));
  EXPECT_TRUE(second.deliver(make_number(2)));
  compat::deliverable_ptr x;
  EXPECT_EQ(compat::wait_response(self.ptr(), second, x),
            compat::wait_result::delivered);
  EXPECT_EQ(value_of(x), 2);
  EXPECT_EQ(compat::wait_response(self.ptr(), first, x),
            compat::wait_result::delivered);
  EXPECT_EQ(value_of(x), 1);
}

TEST_F(caf_compat, a_blocking_actor_that_is_killed_wakes_from_its_wait) {
  for (auto reason :
       {caf::exit_reason::kill, caf::exit_reason::user_shutdown}) {
    std::promise<compat::responder> ready;
    std::promise<caf::error> seen;
    auto hdl = sys.spawn([&](caf::blocking_actor* self) {
      auto slot = compat::make_responder(self);
      ready.set_value(slot);
      compat::deliverable_ptr x;
      EXPECT_EQ(compat::wait_response(self, slot, x),
                compat::wait_result::exiting);
      // Still exiting, and the message is where it always was.
      EXPECT_EQ(compat::wait_response(self, slot, x),
                compat::wait_result::exiting);
      self->receive([&](const caf::exit_msg& msg) {
        self->fail_state(msg.reason);
        seen.set_value(msg.reason);
      });
    });
    auto end = end_of(hdl);
    get(ready.get_future());
    std::this_thread::sleep_for(10ms);
    compat::anon_send_exit(hdl, reason);
    EXPECT_EQ(get(seen.get_future()), reason);
    EXPECT_EQ(get(std::move(end)), reason);
  }
}

TEST_F(caf_compat, a_normal_exit_message_does_not_end_a_wait) {
  caf::scoped_actor self{sys};
  auto slot = compat::make_responder(self.ptr());
  compat::anon_send_exit(caf::actor{self.ptr()}, caf::exit_reason::normal);
  compat::deliverable_ptr x;
  EXPECT_EQ(compat::wait_response(self.ptr(), slot, x,
                                  std::chrono::steady_clock::now() + 20ms),
            compat::wait_result::timed_out);
}

TEST_F(caf_compat, a_response_that_is_there_wins_over_an_exit) {
  caf::scoped_actor self{sys};
  auto slot = compat::make_responder(self.ptr());
  compat::anon_send_exit(caf::actor{self.ptr()}, caf::exit_reason::kill);
  EXPECT_TRUE(slot.deliver(make_number(1)));
  compat::deliverable_ptr x;
  EXPECT_EQ(compat::wait_response(self.ptr(), slot, x),
            compat::wait_result::delivered);
}

TEST_F(caf_compat, a_response_to_a_blocking_actor_that_ended_is_refused) {
  std::promise<void> go_on;
  auto hdl = sys.spawn([&](caf::blocking_actor* self) {
    opened.set_value(compat::make_responder(self));
    go_on.get_future().wait();
  });
  where = get(opened.get_future());
  auto end = end_of(hdl);
  go_on.set_value();
  wait(std::move(end));
  EXPECT_FALSE(where.deliver(make_number(1)));
}

// -- where one runs -----------------------------------------------------------

struct eager : caf::event_based_actor {
  explicit eager(caf::actor_config& conf) : event_based_actor(conf) {
    in_constructor = compat::runs_here(this);
  }

  caf::behavior make_behavior() override {
    return {[this](int) { return compat::runs_here(this); }};
  }

  bool in_constructor = false;
};

TEST_F(caf_compat, an_actor_runs_in_its_handlers_and_its_constructor_only) {
  auto hdl = sys.spawn<eager>();
  caf::scoped_actor self{sys};
  compat::request(self, hdl, 10s, 1)
    .receive([](bool here) { EXPECT_TRUE(here); },
             [](const caf::error&) { FAIL(); });
  EXPECT_TRUE(static_cast<eager*>(raw(hdl))->in_constructor);
  EXPECT_FALSE(compat::runs_here(raw(hdl)));
  std::thread{[&] { EXPECT_FALSE(compat::runs_here(raw(hdl))); }}.join();
  // Nor does it run in the handler of another actor.
  auto other = sys.spawn([=](caf::event_based_actor*) {
    return caf::behavior{[=](int) { return compat::runs_here(raw(hdl)); }};
  });
  compat::request(self, other, 10s, 1)
    .receive([](bool here) { EXPECT_FALSE(here); },
             [](const caf::error&) { FAIL(); });
}

TEST_F(caf_compat, a_blocking_actor_runs_in_its_body) {
  std::promise<bool> body;
  std::promise<bool> nested;
  auto hdl = sys.spawn([&](caf::blocking_actor* self) {
    body.set_value(compat::runs_here(self));
    caf::scoped_actor inner{sys};
    nested.set_value(compat::runs_here(self) && compat::runs_here(inner.ptr()));
    self->receive([](int) {});
  });
  EXPECT_TRUE(get(body.get_future()));
  EXPECT_TRUE(get(nested.get_future()));
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(compat::runs_here(raw(hdl)));
  compat::anon_send(hdl, 1);
}

TEST_F(caf_compat, several_scoped_actors_of_a_thread_all_run_there) {
  caf::scoped_actor first{sys};
  caf::scoped_actor second{sys};
  EXPECT_TRUE(compat::runs_here(first.ptr()));
  EXPECT_TRUE(compat::runs_here(second.ptr()));
}

TEST_F(caf_compat, an_actor_knows_whether_it_blocks) {
  caf::scoped_actor self{sys};
  EXPECT_TRUE(compat::is_blocking(self.ptr()));
  EXPECT_FALSE(compat::is_event_based(self.ptr()));
  auto hdl = sys.spawn<eager>();
  EXPECT_FALSE(compat::is_blocking(raw(hdl)));
  EXPECT_TRUE(compat::is_event_based(raw(hdl)));
}

// -- monitors -----------------------------------------------------------------

struct watcher : caf::event_based_actor {
  watcher(caf::actor_config& conf, std::function<void(caf::error)> f)
    : event_based_actor(conf), mons(this), on_down(std::move(f)) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {
      [this](const caf::actor& hdl) {
        return mons.add(hdl, [this](const caf::actor_addr&,
                                    const caf::error& why) { on_down(why); });
      },
      [this](const caf::actor& hdl, int) {
        mons.remove(hdl);
        return mons.size() == 0;
      },
    };
  }

  compat::monitors mons;
  std::function<void(caf::error)> on_down;
};

struct caf_compat_monitors : caf_compat {
  template <class... Ts>
  bool ask(const caf::actor& hdl, const Ts&... xs) {
    bool result = false;
    caf::scoped_actor self{sys};
    compat::request(self, hdl, 10s, xs...)
      .receive([&](bool x) { result = x; },
               [](const caf::error&) { ADD_FAILURE(); });
    return result;
  }

  std::atomic<int> calls{0};
  std::promise<caf::error> down;
};

TEST_F(caf_compat_monitors, the_end_of_a_watched_actor_is_told_once) {
  auto target = sys.spawn<eager>();
  auto hdl = sys.spawn<watcher>([&](caf::error why) {
    ++calls;
    down.set_value(std::move(why));
  });
  EXPECT_TRUE(ask(hdl, target));
  EXPECT_FALSE(ask(hdl, target)); // watched already
  compat::anon_send_exit(target, caf::exit_reason::kill);
  EXPECT_EQ(get(down.get_future()), caf::exit_reason::kill);
  EXPECT_TRUE(ask(hdl, target, 0)); // nothing is left
  EXPECT_EQ(calls, 1);
}

TEST_F(caf_compat_monitors, an_actor_that_is_dead_already_is_told_too) {
  auto target = sys.spawn<eager>();
  auto end = end_of(target);
  compat::anon_send_exit(target, caf::exit_reason::kill);
  wait(std::move(end));
  auto hdl = sys.spawn<watcher>(
    [&](caf::error why) { down.set_value(std::move(why)); });
  EXPECT_TRUE(ask(hdl, target));
  EXPECT_EQ(get(down.get_future()), caf::exit_reason::kill);
}

TEST_F(caf_compat_monitors, an_actor_that_is_not_watched_any_more_is_not_told) {
  auto target = sys.spawn<eager>();
  auto hdl = sys.spawn<watcher>([&](caf::error) { ++calls; });
  EXPECT_TRUE(ask(hdl, target));
  EXPECT_TRUE(ask(hdl, target, 0));
  auto end = end_of(target);
  compat::anon_send_exit(target, caf::exit_reason::kill);
  wait(std::move(end));
  EXPECT_TRUE(ask(hdl, target, 0));
  EXPECT_EQ(calls, 0);
}

// -- sending, types -----------------------------------------------------------

TEST_F(caf_compat, an_urgent_message_overtakes_ordinary_ones) {
  std::promise<void> blocked;
  std::promise<void> go_on;
  std::promise<void> done;
  std::vector<int> seen;
  auto hdl = sys.spawn([&](caf::event_based_actor*) {
    return caf::behavior{
      [&](const std::string&) {
        blocked.set_value();
        go_on.get_future().wait();
      },
      [&](int x) {
        seen.push_back(x);
        if (seen.size() == 3)
          done.set_value();
      },
    };
  });
  compat::anon_send(hdl, std::string{"block"});
  get(blocked.get_future());
  compat::anon_send(hdl, 1);
  compat::anon_send_urgent(hdl, 2);
  compat::anon_send_urgent(hdl, 3);
  go_on.set_value();
  get(done.get_future());
  EXPECT_EQ(seen, (std::vector<int>{2, 3, 1}));
}

TEST_F(caf_compat, a_delayed_message_arrives_later) {
  auto start = std::chrono::steady_clock::now();
  auto hdl = sys.spawn([&](caf::event_based_actor* self) {
    compat::delayed_send(self, 20ms, 5);
    return caf::behavior{[this](int x) { got.set_value(x); }};
  });
  EXPECT_EQ(get(got.get_future()), 5);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
}

template <class T>
T through_the_wire(caf::actor_system& sys, const T& value) {
  auto in = caf::make_message(value);
  T out{};
#if PAWL_CAF_1
  caf::byte_buffer buf;
  caf::binary_serializer sink{sys, buf};
  EXPECT_TRUE(sink.apply(in));
  caf::message copy;
  caf::binary_deserializer source{sys, buf};
  EXPECT_TRUE(source.apply(copy));
#else
  std::vector<char> buf;
  caf::binary_serializer sink{sys, buf};
  EXPECT_FALSE(sink(in));
  caf::message copy;
  caf::binary_deserializer source{sys, buf};
  EXPECT_FALSE(source(copy));
#endif
  EXPECT_TRUE(copy.match_elements<T>());
  if (copy.match_elements<T>())
    out = copy.get_as<T>(0);
  return out;
}

TEST_F(caf_compat, inspected_types_and_bytes_survive_the_wire) {
  auto p = through_the_wire(sys, point{1, -2});
  EXPECT_EQ(p.x, 1);
  EXPECT_EQ(p.y, -2);
  EXPECT_EQ(through_the_wire(sys, color::blue), color::blue);
  through_the_wire(sys, nothing{});
  compat::byte_vector empty;
  EXPECT_EQ(through_the_wire(sys, empty), empty);
  compat::byte_vector large;
  for (int i = 0; i < 200'000; ++i)
    large.bytes.push_back(static_cast<std::byte>(i * 7));
  EXPECT_EQ(through_the_wire(sys, large), large);
}

TEST_F(caf_compat, enum_values_can_be_checked) {
  EXPECT_TRUE(compat::valid_enum(color::blue));
  EXPECT_FALSE(compat::valid_enum(static_cast<color>(3)));
}

// -- configuration ------------------------------------------------------------

struct options : caf::actor_system_config {
  options() {
    opt_group{custom_options_, "pawl"}.add(level, "level,l", "how much");
  }

  int level = 0;
};

std::optional<std::string> parse(options& opts, std::vector<std::string> args) {
  std::vector<char*> argv;
  for (auto& arg : args)
    argv.push_back(arg.data());
  return compat::parse(opts, static_cast<int>(argv.size()), argv.data());
}

TEST(caf_compat_config, options_of_a_group_are_read) {
  options opts;
  EXPECT_EQ(parse(opts, {"prog", "--pawl.level=4"}), std::nullopt);
  EXPECT_EQ(opts.level, 4);
  EXPECT_FALSE(compat::helptext_printed(opts));
  EXPECT_TRUE(compat::remainder(opts).empty());
}

TEST(caf_compat_config, arguments_that_are_no_options_remain) {
  options opts;
  EXPECT_EQ(parse(opts, {"prog", "--pawl.level=4", "file"}), std::nullopt);
  EXPECT_EQ(compat::remainder(opts), std::vector<std::string>{"file"});
}

TEST(caf_compat_config, a_wrong_option_is_an_error_with_a_text) {
  options opts;
  auto err = parse(opts, {"prog", "--pawl.no-such-thing=4"});
  ASSERT_TRUE(err);
  EXPECT_NE(err->find("no-such-thing"), std::string::npos) << *err;
}

// CAF shows the groups of an application only in the long help.
TEST(caf_compat_config, the_long_help_text_knows_the_group) {
  options opts;
  testing::internal::CaptureStdout();
  auto err = parse(opts, {"prog", "--long-help"});
  auto text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(err, std::nullopt);
  EXPECT_TRUE(compat::helptext_printed(opts));
  EXPECT_NE(text.find("how much"), std::string::npos) << text;
}

} // namespace
