#include "pawl/net/link_machine.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>

using namespace pawl;
using namespace std::chrono_literals;

namespace {

using time_point = link_machine::time_point;
using duration = link_machine::duration;

template <class T>
std::vector<T> all_of(const link_machine::effects& xs) {
  std::vector<T> result;
  for (const auto& x : xs)
    if (const auto* y = std::get_if<T>(&x))
      result.push_back(*y);
  return result;
}

link_machine::config config_of(std::string_view self, std::string_view peer,
                               std::uint64_t seed = 1) {
  link_machine::config result;
  result.names = {"a", "b"};
  result.self = static_cast<node_slot>(self == "a" ? 0 : 1);
  result.peer = static_cast<node_slot>(peer == "a" ? 0 : 1);
  result.who = {seed, to_index(result.self)};
  result.address = fmt::format("{}.host:{}", self, seed);
  result.peer_address = fmt::format("{}.host:1", peer);
  result.random
    = [random = std::mt19937_64{seed * 2 + to_index(result.self)}]() mutable {
        return random();
      };
  return result;
}

// -- a world of machines, connections and time --------------------------------

/// Connections deliver in order, each after its own delays. They end on both
/// sides, or go silent. Nodes freeze and wake: what came meanwhile is read
/// then.
class world {
public:
  explicit world(std::uint64_t seed = 1) : random(seed) {
    // nop
  }

  struct node {
    std::unique_ptr<link_machine> machine;
    /// Where its dials arrive; null: refused.
    node* looks_for = nullptr;
    bool frozen = false;
    bool dead = false;
    std::vector<std::function<void()>> backlog;
    time_point tick_due = time_point::min();
    bool pending = false;
    // What it was told, and what it sent and received, per epoch.
    link_epoch up = 0;
    std::set<link_epoch> over;
    std::vector<std::string> log;
    std::vector<std::string> rejects;
    std::vector<std::string> notes;
    std::size_t ups = 0;
    std::size_t gaps = 0;
    std::vector<message> received;
    std::function<void(link_epoch)> on_up;
    std::function<void(const message&)> on_message;
  };

  struct connection {
    node* end[2] = {nullptr, nullptr};
    link_machine::transport way[2] = {0, 0};
    time_point last[2] = {time_point::min(), time_point::min()};
    bool met = false;
    bool silent = false;
    bool closed = false;
  };

  node& add(link_machine::config cfg) {
    auto x = std::make_unique<node>();
    x->machine = std::make_unique<link_machine>(std::move(cfg));
    nodes.push_back(std::move(x));
    auto& result = *nodes.back();
    schedule_tick(result);
    return result;
  }

  void run_for(duration x) {
    auto end = now + x;
    while (!events.empty() && events.top().at <= end)
      step();
    now = end;
  }

  template <class Condition>
  bool run_until(Condition condition, duration bound = 20s) {
    auto end = now + bound;
    while (!condition() && !events.empty() && events.top().at <= end)
      step();
    return condition();
  }

  void step() {
    auto next = events.top();
    events.pop();
    now = std::max(now, next.at);
    next.what();
  }

  void at(time_point when, std::function<void()> what) {
    events.push({when, ++serial, std::move(what)});
  }

  /// Runs `what` in the node: now, or when it wakes.
  void in(node& x, std::function<void()> what) {
    if (x.dead)
      return;
    if (x.frozen)
      x.backlog.push_back(std::move(what));
    else
      what();
  }

  void freeze(node& x) {
    x.frozen = true;
  }

  void wake(node& x) {
    x.frozen = false;
    auto todo = std::exchange(x.backlog, {});
    // The timer may be seen before the input.
    if (todo.size() > 1 && random() % 2 == 0)
      std::rotate(todo.begin(), todo.begin() + 1, todo.end());
    for (auto& f : todo)
      in(x, std::move(f));
  }

  void kill(node& x) {
    x.dead = true;
    for (auto& c : connections)
      if (c->end[0] == &x || c->end[1] == &x)
        cut(*c);
  }

  void cut(connection& c) {
    if (std::exchange(c.closed, true))
      return;
    for (int i : {0, 1}) {
      auto* x = c.end[i];
      auto way = c.way[i];
      if (way != 0)
        at(now + delay(), [this, x, way] {
          in(*x, [this, x, way] {
            call(*x, [&](auto& m, auto& out) { m.closed(way, now, out); });
          });
        });
    }
  }

  void cut_all() {
    for (auto& c : connections)
      cut(*c);
  }

  /// From now on nothing arrives on the connections that exist.
  void silence_all() {
    for (auto& c : connections)
      c->silent = true;
  }

  template <class F>
  void call(node& x, F f) {
    link_machine::effects out;
    f(*x.machine, out);
    x.machine->flush(now, out);
    x.machine->check_invariants();
    perform(x, out);
    schedule_tick(x);
  }

  void perform(node& x, link_machine::effects& out) {
    for (auto& e : out) {
      if (std::holds_alternative<link_machine::dial>(e)) {
        dial(x);
      } else if (auto* y = std::get_if<link_machine::transmit>(&e)) {
        transmit(x, y->to, std::move(y->frame));
      } else if (auto* y = std::get_if<link_machine::up>(&e)) {
        ASSERT_EQ(x.up, 0u) << "up twice";
        ASSERT_FALSE(x.over.contains(y->epoch)) << "an epoch came back";
        x.up = y->epoch;
        ++x.ups;
        x.log.push_back("up");
        if (x.on_up)
          x.on_up(y->epoch);
      } else if (auto* y = std::get_if<link_machine::down>(&e)) {
        ASSERT_EQ(x.up, y->epoch) << "another epoch than that of up";
        x.up = 0;
        x.over.insert(y->epoch);
        x.log.push_back("down: " + y->why);
      } else if (auto* y = std::get_if<link_machine::deliver>(&e)) {
        ASSERT_EQ(x.up, y->epoch) << "delivered outside of its epoch";
        for (auto& item : y->what.items) {
          x.received.push_back(item.what);
          if (x.on_message)
            x.on_message(item.what);
        }
      } else if (auto* y = std::get_if<link_machine::rejected>(&e)) {
        x.rejects.push_back(y->why);
      } else if (std::holds_alternative<link_machine::clock_gap>(e)) {
        ++x.gaps;
      } else if (auto* y = std::get_if<link_machine::note>(&e)) {
        x.notes.push_back(y->text);
      }
    }
  }

  void dial(node& x) {
    auto* target = x.looks_for;
    at(now + delay(), [this, &x, target] {
      if (target == nullptr || target->dead || refuse) {
        in(x, [this, &x] {
          call(x, [&](auto& m, auto& out) { m.connect_failed(now, out); });
        });
        return;
      }
      auto c = std::make_shared<connection>();
      c->end[0] = &x;
      c->end[1] = target;
      c->way[0] = ++ways;
      connections.push_back(c);
      in(x, [this, &x, c] {
        call(x, [&](auto& m, auto& out) { m.connected(c->way[0], now, out); });
      });
    });
  }

  void transmit(node& from, link_machine::transport way, wire::bytes frame) {
    for (auto& c : connections)
      for (int i : {0, 1})
        if (c->way[i] == way && c->end[i] == &from) {
          deliver(c, 1 - i, std::move(frame));
          return;
        }
  }

  void deliver(std::shared_ptr<connection> c, int to, wire::bytes frame) {
    if (c->silent || c->closed)
      return;
    auto when = std::max(now + delay(), c->last[to]);
    c->last[to] = when;
    if (c->way[to] == 0)
      c->way[to] = ++ways;
    at(when, [this, c, to, frame = std::move(frame)] {
      if (c->silent || c->closed)
        return;
      in(*c->end[to], [this, c, to, frame] {
        call(*c->end[to], [&](auto& m, auto& out) {
          auto x = wire::decode(frame);
          auto* whole = std::get_if<wire::frame>(&x);
          if (to == 1 && !c->met && whole != nullptr
              && std::holds_alternative<wire::hello>(*whole)) {
            c->met = true;
            m.receive_hello(c->way[to], std::get<wire::hello>(*whole), now,
                            out);
          } else {
            m.receive(c->way[to], frame, now, out);
          }
          if (!m.uses(c->way[to]) && to == 1 && !c->met)
            c->way[to] = 0;
        });
      });
    });
  }

  void schedule_tick(node& x) {
    auto due = std::max(now, x.machine->next_deadline());
    if (due == time_point::max() || (x.pending && x.tick_due <= due))
      return;
    x.pending = true;
    x.tick_due = due;
    at(due, [this, &x, due] {
      if (x.tick_due != due || !x.pending)
        return;
      in(x, [this, &x] {
        x.pending = false;
        call(x, [&](auto& m, auto& out) { m.tick(now, out); });
      });
    });
  }

  duration delay() {
    return std::chrono::microseconds{50 + random() % longest_delay_us};
  }

  struct event {
    time_point at;
    std::uint64_t serial;
    std::function<void()> what;
    bool operator<(const event& other) const {
      return std::tie(at, serial) > std::tie(other.at, other.serial);
    }
  };

  std::mt19937_64 random;
  time_point now = time_point{} + 1000s;
  std::uint64_t serial = 0;
  std::uint64_t longest_delay_us = 1000;
  std::uint64_t ways = 0;
  bool refuse = false;
  std::vector<std::unique_ptr<node>> nodes;
  std::vector<std::shared_ptr<connection>> connections;
  std::priority_queue<event> events;
};

/// Two nodes that look for each other.
struct pair : world {
  explicit pair(std::uint64_t seed = 1)
    : world(seed), a(add(config_of("a", "b", seed))),
      b(add(config_of("b", "a", seed))) {
    a.looks_for = &b;
    b.looks_for = &a;
  }

  bool linked() const {
    return a.up != 0 && a.up == b.up;
  }

  void send(node& from, message x, std::string_view scope = "s") {
    call(from, [&](auto& m, auto&) {
      EXPECT_TRUE(m.send(m.epoch(), scope, std::move(x)));
    });
  }

  node& a;
  node& b;
};

request_message request_of(std::uint64_t serial, attempt_number attempt = 0) {
  request_message x;
  x.id = {node_slot{0}, serial};
  x.attempt = attempt;
  x.session = {node_slot{0}, 1};
  return x;
}

/// A message that is no request, with a number in it.
raised_message other(std::uint64_t serial) {
  return {{node_slot{0}, serial}, 0};
}

std::string names_of(const std::vector<message>& xs) {
  std::string result;
  for (const auto& x : xs)
    result += std::string{name_of(x)} + " ";
  return result;
}

// -- two machines at one desk -------------------------------------------------

/// Frames go over one connection at once, or are held in the hand.
struct desk {
  explicit desk(link_machine::config x = config_of("a", "b"),
                link_machine::config y = config_of("b", "a"))
    : a(std::move(x)), b(std::move(y)) {
    a.tick(now, seen_a);
    a.connected(1, now, seen_a);
    carry();
  }

  /// Until nobody has anything to say.
  void carry() {
    while (take(a, seen_a, to_b) + take(b, seen_b, to_a) > 0) {
      for (auto& f : std::exchange(to_b, {}))
        hand(b, f, seen_b);
      for (auto& f : std::exchange(to_a, {}))
        hand(a, f, seen_a);
    }
  }

  void hand(link_machine& to, const wire::bytes& f, link_machine::effects& seen,
            link_machine::transport way = 1) {
    to.receive(way, f, now, seen);
    to.flush(now, seen);
    to.check_invariants();
  }

  /// Moves what was to be transmitted into a hand.
  std::size_t take(link_machine& from, link_machine::effects& seen,
                   std::vector<wire::bytes>& into) {
    from.flush(now, seen);
    std::size_t n = 0;
    for (auto& x : seen)
      if (auto* y = std::get_if<link_machine::transmit>(&x);
          y != nullptr && !y->frame.empty()) {
        last_way = y->to;
        history.push_back(y->frame);
        into.push_back(std::exchange(y->frame, {}));
        ++n;
      }
    return n;
  }

  void tick_both(duration x) {
    now += x;
    a.tick(now, seen_a);
    b.tick(now, seen_b);
  }

  time_point now = time_point{} + 1000s;
  link_machine a;
  link_machine b;
  link_machine::effects seen_a;
  link_machine::effects seen_b;
  std::vector<wire::bytes> to_a;
  std::vector<wire::bytes> to_b;
  std::vector<wire::bytes> history;
  link_machine::transport last_way = 0;
};

template <class T>
T last(const link_machine::effects& xs) {
  auto ys = all_of<T>(xs);
  return ys.empty() ? T{} : ys.back();
}

std::vector<message> delivered(const link_machine::effects& xs) {
  std::vector<message> result;
  for (auto& x : all_of<link_machine::deliver>(xs))
    for (auto& y : x.what.items)
      result.push_back(y.what);
  return result;
}

template <class T>
T frame_of(const wire::bytes& x) {
  return std::get<T>(std::get<wire::frame>(wire::decode(x)));
}

} // namespace

// -- up -----------------------------------------------------------------------

TEST(link_machine, two_nodes_that_dial_at_the_same_moment_get_one_link) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    pair w{seed};
    ASSERT_TRUE(w.run_until([&] { return w.linked(); }, 1s)) << seed;
    w.run_for(5s);
    EXPECT_TRUE(w.linked());
    EXPECT_EQ(w.a.ups, 1u) << seed;
    EXPECT_EQ(w.b.ups, 1u) << seed;
  }
}

TEST(link_machine, one_way_of_dialling_is_enough_whichever) {
  for (auto only : {0, 1}) {
    pair w;
    (only == 0 ? w.b : w.a).looks_for = nullptr;
    EXPECT_TRUE(w.run_until([&] { return w.linked(); }, 1s)) << only;
    w.run_for(5s);
    EXPECT_EQ(w.a.ups, 1u) << only;
  }
}

TEST(link_machine, a_refused_connect_is_tried_again_with_back_off) {
  pair w;
  w.refuse = true;
  w.run_for(10s);
  EXPECT_EQ(w.a.ups, 0u);
  w.refuse = false;
  EXPECT_TRUE(w.run_until([&] { return w.linked(); }, 1100ms));
}

TEST(link_machine, both_sides_learn_floor_and_lamport_time_of_the_other) {
  pair w;
  w.a.machine->vitals(1000, 5);
  w.b.machine->vitals(2000, 7);
  ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
  EXPECT_EQ(w.a.machine->peer_floor(), 2000u);
  EXPECT_EQ(w.b.machine->peer_lamport(), 5u);
  w.a.machine->vitals(9000, 50);
  w.run_for(300ms);
  EXPECT_EQ(w.b.machine->peer_floor(), 9000u);
  EXPECT_EQ(w.b.machine->peer_lamport(), 50u);
}

// -- down ---------------------------------------------------------------------

TEST(link_machine, a_closed_connection_is_down_at_once_and_comes_back) {
  pair w;
  ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
  w.cut_all();
  w.refuse = true;
  w.run_for(10ms);
  EXPECT_EQ(w.a.log.back(), "down: the connection was closed");
  EXPECT_EQ(w.b.log.back(), "down: the connection was closed");
  w.refuse = false;
  EXPECT_TRUE(w.run_until([&] { return w.linked(); }, 1s));
}

TEST(link_machine, silence_is_down_after_the_node_timeout_and_not_before) {
  pair w;
  ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
  w.run_for(3s);
  w.silence_all();
  w.refuse = true;
  w.run_for(1700ms);
  EXPECT_NE(w.a.up, 0u);
  w.run_for(600ms);
  EXPECT_EQ(w.a.log.back(), "down: silent for 2000 ms");
  EXPECT_EQ(w.b.log.back(), "down: silent for 2000 ms");
}

TEST(link_machine, a_node_that_shuts_down_says_goodbye) {
  pair w;
  ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
  w.call(w.a, [&](auto& m, auto& out) { m.shut_down(w.now, out); });
  w.run_for(10ms);
  EXPECT_EQ(w.b.log.back(),
            "down: the peer says goodbye: the node is shutting down");
  EXPECT_EQ(w.a.machine->state(), "ended");
}

TEST(link_machine, a_frame_of_a_closed_epoch_is_refused_and_closes_its_sender) {
  desk d;
  auto old = d.a.epoch();
  ASSERT_NE(old, 0u);
  ASSERT_EQ(d.b.epoch(), old);
  d.a.closed(1, d.now, d.seen_a);
  EXPECT_EQ(d.a.epoch(), 0u);
  EXPECT_TRUE(d.b.send(old, "s", other(1)));
  d.take(d.b, d.seen_b, d.to_a);
  d.hand(d.a, d.to_a.back(), d.seen_a);
  EXPECT_TRUE(delivered(d.seen_a).empty());
  EXPECT_EQ(last<link_machine::note>(d.seen_a).text,
            "refused a batch of a closed epoch");
  d.to_a.clear();
  d.carry();
  EXPECT_EQ(last<link_machine::down>(d.seen_b).why,
            "the peer says goodbye: this epoch is closed");
  EXPECT_FALSE(d.b.send(old, "s", other(2)));
}

TEST(link_machine, no_frame_of_an_old_epoch_has_any_effect_on_a_new_one) {
  desk d;
  d.b.send(d.b.epoch(), "s", other(1));
  d.carry();
  auto old = d.history;
  d.a.closed(1, d.now, d.seen_a);
  d.b.closed(1, d.now, d.seen_b);
  d.tick_both(50ms);
  d.a.connected(1, d.now, d.seen_a);
  d.carry();
  ASSERT_NE(d.a.epoch(), 0u);
  ASSERT_EQ(d.a.epoch(), d.b.epoch());
  auto ups = all_of<link_machine::up>(d.seen_b).size();
  auto epoch = d.a.epoch();
  for (auto& frame : old) {
    d.hand(d.a, frame, d.seen_a);
    d.hand(d.b, frame, d.seen_b);
    d.carry();
  }
  d.tick_both(250ms);
  d.carry();
  EXPECT_EQ(d.a.epoch(), epoch);
  EXPECT_EQ(d.b.epoch(), epoch);
  EXPECT_EQ(all_of<link_machine::up>(d.seen_b).size(), ups);
  EXPECT_EQ(delivered(d.seen_a).size(), 1u);
}

TEST(link_machine, a_batch_that_comes_twice_is_taken_once) {
  desk d;
  d.a.send(d.a.epoch(), "s", other(1));
  d.carry();
  auto again = d.history.back();
  d.hand(d.b, again, d.seen_b);
  EXPECT_EQ(delivered(d.seen_b).size(), 1u);
  EXPECT_EQ(d.b.epoch(), d.a.epoch());
}

TEST(link_machine, a_batch_that_is_missing_closes_the_epoch) {
  desk d;
  d.a.send(d.a.epoch(), "s", other(1));
  d.take(d.a, d.seen_a, d.to_b);
  d.to_b.clear();
  d.a.send(d.a.epoch(), "s", other(2));
  d.carry();
  EXPECT_TRUE(delivered(d.seen_b).empty());
  EXPECT_EQ(last<link_machine::down>(d.seen_b).why,
            "batch 2 came where batch 1 was due");
  EXPECT_EQ(last<link_machine::down>(d.seen_a).why,
            "the peer says goodbye: batch 2 came where batch 1 was due");
}

TEST(link_machine, garbage_on_a_link_is_refused_with_a_sentence_and_no_more) {
  desk d;
  std::mt19937_64 random{7};
  d.a.send(d.a.epoch(), "s", other(1));
  d.carry();
  auto good = d.history.back();
  for (int i = 0; i < 10'000; ++i) {
    auto bad = good;
    if (i % 2 == 0)
      bad.resize(random() % bad.size());
    else
      for (auto& x : bad)
        x = static_cast<std::byte>(random());
    d.hand(d.b, bad, d.seen_b);
  }
  EXPECT_EQ(d.b.epoch(), d.a.epoch());
  d.a.send(d.a.epoch(), "s", other(2));
  d.carry();
  EXPECT_EQ(delivered(d.seen_b).size(), 2u);
}

// -- freezing -----------------------------------------------------------------

// The link's actor may find messages to be sent before anything else; who looks
// at the board then must not see that it runs before it sees that it had not.
TEST(link_machine, a_node_that_sends_first_after_a_sleep_tells_the_gap_too) {
  desk d;
  d.now += 1900ms;
  d.a.send(d.a.epoch(), "s", request_of(1));
  d.a.flush(d.now, d.seen_a);
  EXPECT_EQ(all_of<link_machine::clock_gap>(d.seen_a).size(), 1u);
  d.a.tick(d.now, d.seen_a);
  EXPECT_EQ(all_of<link_machine::clock_gap>(d.seen_a).size(), 1u) << "once";
}

TEST(link_machine, a_node_that_was_frozen_reads_its_input_before_it_judges) {
  desk d;
  for (int i = 0; i < 8; ++i) {
    d.tick_both(250ms);
    d.carry();
  }
  auto heard = d.a.last_heard();
  // a stops; b goes on for a while.
  std::vector<wire::bytes> waiting;
  for (int i = 0; i < 7; ++i) {
    d.now += 250ms;
    d.b.tick(d.now, d.seen_b);
    d.take(d.b, d.seen_b, waiting);
  }
  d.now += 500ms;
  d.a.tick(d.now, d.seen_a);
  EXPECT_NE(d.a.epoch(), 0u) << "did not judge";
  EXPECT_EQ(all_of<link_machine::clock_gap>(d.seen_a).size(), 1u);
  // What was on its way proves nothing about now.
  for (auto& x : waiting)
    d.hand(d.a, x, d.seen_a);
  EXPECT_LE(d.a.last_heard(), heard + 250ms);
  d.tick_both(10ms);
  d.carry();
  d.tick_both(250ms);
  d.carry();
  d.tick_both(250ms);
  d.carry();
  EXPECT_NE(d.a.epoch(), 0u);
  EXPECT_GT(d.a.last_heard(), d.now - 600ms);
}

TEST(link_machine,
     a_frozen_node_with_nothing_to_read_judges_an_interval_later) {
  desk d;
  d.now += 5s;
  d.a.tick(d.now, d.seen_a);
  EXPECT_NE(d.a.epoch(), 0u);
  d.now += 250ms;
  d.a.tick(d.now, d.seen_a);
  EXPECT_EQ(last<link_machine::down>(d.seen_a).why, "silent for 2000 ms");
}

TEST(link_machine, a_node_that_is_always_late_still_judges) {
  desk d;
  auto start = d.now;
  while (d.a.epoch() != 0 && d.now < start + 20s) {
    d.now += 700ms;
    d.a.tick(d.now, d.seen_a);
  }
  EXPECT_LE(d.now, start + 4s);
}

TEST(link_machine, last_heard_is_when_we_spoke_not_when_we_heard) {
  desk d;
  for (int i = 0; i < 8; ++i) {
    d.tick_both(250ms);
    d.carry();
  }
  // From now on b does not hear a, but a hears b.
  auto cut = d.now;
  for (int i = 0; i < 7; ++i) {
    d.now += 250ms;
    d.a.tick(d.now, d.seen_a);
    d.take(d.a, d.seen_a, d.to_b);
    d.to_b.clear();
    d.b.tick(d.now, d.seen_b);
    d.take(d.b, d.seen_b, d.to_a);
    for (auto& x : std::exchange(d.to_a, {}))
      d.hand(d.a, x, d.seen_a);
  }
  EXPECT_NE(d.a.epoch(), 0u);
  EXPECT_LE(d.a.last_heard(), cut);
}

// -- order and window ---------------------------------------------------------

TEST(link_machine, requests_go_last_and_all_else_keeps_its_order) {
  desk d;
  auto e = d.a.epoch();
  d.a.send(e, "s", request_of(1));
  d.a.send(e, "s", granted_message{{node_slot{1}, 7}, 0, {}});
  d.a.send(e, "s", request_of(2));
  d.a.send(e, "s", release_message{{node_slot{0}, 3}, {}});
  d.a.send(e, "s", hand_over_message{});
  d.carry();
  EXPECT_EQ(names_of(delivered(d.seen_b)),
            "granted release hand_over request request ");
  EXPECT_EQ(all_of<link_machine::deliver>(d.seen_b).size(), 1u) << "one batch";
}

TEST(link_machine, an_abandon_of_an_unsent_request_takes_it_out) {
  desk d;
  auto e = d.a.epoch();
  d.a.send(e, "s", request_of(1));
  d.a.send(e, "s", request_of(2, 1));
  d.a.send(e, "t", request_of(2, 1));
  d.a.send(e, "s", abandon_message{request_of(2).id, 0});
  d.a.send(e, "s", abandon_message{request_of(2).id, 1});
  d.a.send(e, "s", abandon_message{request_of(9).id, 0});
  EXPECT_EQ(d.a.queued(), 4u);
  d.carry();
  EXPECT_EQ(names_of(delivered(d.seen_b)), "abandon abandon request request ");
  d.a.send(e, "s", abandon_message{request_of(1).id, 0});
  d.carry();
  EXPECT_EQ(names_of({delivered(d.seen_b).back()}), "abandon ");
}

// It would arrive first, where nobody knows of the request.
TEST(link_machine, what_is_said_of_an_unsent_request_becomes_part_of_it) {
  desk d;
  auto e = d.a.epoch();
  auto patient = request_of(1);
  patient.patient = true;
  d.a.send(e, "s", patient);
  d.a.send(e, "s", request_of(2));
  d.a.send(e, "s", waits_elsewhere_message{request_of(1).id, 0});
  d.a.send(e, "s", waits_elsewhere_message{request_of(2).id, 1});
  d.carry();
  auto seen = delivered(d.seen_b);
  EXPECT_EQ(names_of(seen), "waits_elsewhere request request ");
  EXPECT_TRUE(std::get<request_message>(seen[1]).elsewhere);
  EXPECT_FALSE(std::get<request_message>(seen[1]).patient);
  EXPECT_FALSE(std::get<request_message>(seen[2]).elsewhere);
  d.a.send(e, "s", waits_elsewhere_message{request_of(1).id, 0});
  d.carry();
  EXPECT_EQ(names_of({delivered(d.seen_b).back()}), "waits_elsewhere ");
}

// They would reach a scope that is opened anew, and mean the old one.
TEST(link_machine, closing_a_scope_takes_its_unsent_requests_out) {
  message ends[]{scope_closed_message{}, scope_closed_ack_message{}};
  for (const auto& x : ends) {
    desk d;
    auto e = d.a.epoch();
    d.a.send(e, "s", request_of(1));
    d.a.send(e, "t", request_of(2));
    d.a.send(e, "s", request_of(3));
    d.a.send(e, "s", abandon_message{request_of(3).id, 0}); // indexes them
    d.a.send(e, "s", x);
    d.a.send(e, "s", request_of(4));
    EXPECT_EQ(d.a.queued(), 3u);
    d.carry();
    EXPECT_EQ(names_of(delivered(d.seen_b)),
              std::string{name_of(x)} + " request request ");
    d.a.send(e, "s", abandon_message{request_of(1).id, 0});
    d.carry();
    EXPECT_EQ(names_of({delivered(d.seen_b).back()}), "abandon ")
      << "what was taken out is not there to be taken out again";
  }
}

TEST(link_machine, an_acknowledged_hand_over_leaves_requests_alone) {
  desk d;
  d.a.send(d.a.epoch(), "s", request_of(1));
  d.a.send(d.a.epoch(), "s", hand_over_ack_message{0});
  d.carry();
  EXPECT_EQ(names_of(delivered(d.seen_b)), "hand_over_ack request ");
}

TEST(link_machine, no_more_batches_are_under_way_than_the_window_holds) {
  auto x = config_of("a", "b");
  x.window = 4;
  desk d{x};
  for (std::uint64_t i = 1; i <= 10; ++i) {
    d.a.send(d.a.epoch(), "s", other(i));
    d.take(d.a, d.seen_a, d.to_b);
  }
  EXPECT_EQ(d.to_b.size(), 4u);
  EXPECT_EQ(d.a.queued(), 6u);
  d.hand(d.b, d.to_b[0], d.seen_b);
  d.to_b.erase(d.to_b.begin());
  d.carry();
  EXPECT_EQ(d.a.queued(), 0u);
  for (auto& f : std::exchange(d.to_b, {}))
    d.hand(d.b, f, d.seen_b);
}

TEST(link_machine, a_batch_holds_at_most_4096_messages_and_256_kilobytes) {
  desk d;
  for (std::uint64_t i = 1; i <= 10'000; ++i)
    d.a.send(d.a.epoch(), "s", other(i));
  d.carry();
  EXPECT_EQ(all_of<link_machine::deliver>(d.seen_b).size(), 3u);
  request_message large = request_of(1);
  large.terms.push_back({term{std::string(60'000, 'x')}, exclusive});
  large.carried.push_back(0);
  for (int i = 0; i < 10; ++i)
    d.a.send(d.a.epoch(), "s", large);
  d.carry();
  EXPECT_EQ(all_of<link_machine::deliver>(d.seen_b).size(), 5u);
}

TEST(link_machine, a_request_that_no_frame_can_hold_is_refused_on_the_spot) {
  desk d;
  request_message large = request_of(1);
  term longest{std::string(term::max_size - 1, 'x')};
  large.terms.assign(1000, {longest, shared});
  large.carried.assign(1000, 0);
  d.a.send(d.a.epoch(), "s", large);
  d.carry();
  ASSERT_EQ(delivered(d.seen_a).size(), 1u);
  EXPECT_EQ(delivered(d.seen_a)[0],
            (message{refused_message{large.id, 0, outcome::term_too_large}}));
  EXPECT_NE(d.a.epoch(), 0u);
}

TEST(link_machine, a_message_for_another_epoch_is_not_taken) {
  desk d;
  EXPECT_FALSE(d.a.send(d.a.epoch() + 1, "s", other(1)));
  EXPECT_FALSE(d.a.send(0, "s", other(1)));
  EXPECT_EQ(d.a.queued(), 0u);
}

// -- who may speak ------------------------------------------------------------

TEST(link_machine, what_does_not_fit_is_told_on_both_sides) {
  struct row {
    std::function<void(link_machine::config&)> spoil;
    std::string sentence;
  };
  std::vector<row> rows{
    {[](auto& x) {
       x.names = {"a", "b", "c"};
     },
     "node 'a' lists the nodes a, b; node 'b' lists the nodes a, b, c"},
    {[](auto& x) { x.node_timeout = 5000ms; },
     "node 'a' has a pawl.node-timeout of 2000 ms, node 'b' of 5000 ms"},
    {[](auto& x) { x.heartbeat = 100ms; },
     "node 'a' has a pawl.heartbeat-interval of 250 ms, node 'b' of 100 ms"},
    {[](auto& x) { x.fingerprint = 9; },
     "nodes 'a' and 'b' number their message types differently"},
  };
  for (auto& r : rows) {
    auto y = config_of("b", "a");
    r.spoil(y);
    desk d{config_of("a", "b"), y};
    EXPECT_EQ(d.a.epoch(), 0u);
    EXPECT_EQ(last<link_machine::rejected>(d.seen_a).why, r.sentence);
    EXPECT_EQ(last<link_machine::rejected>(d.seen_b).why, r.sentence);
  }
}

TEST(link_machine, two_versions_tell_each_other) {
  auto own = config_of("a", "b");
  wire::introduction other;
  other.version = wire::protocol_version + 1;
  other.name = "b";
  EXPECT_EQ(*mismatch(own, other),
            fmt::format("node 'a' speaks version {} of the protocol, node 'b' "
                        "speaks version {}",
                        wire::protocol_version, wire::protocol_version + 1));
  other.version = wire::protocol_version;
  other.called = "z";
  EXPECT_EQ(*mismatch(own, other),
            "node 'b' looks for a node 'z' where node 'a' is");
}

TEST(link_machine, a_mismatch_is_reported_once_not_at_every_try) {
  pair w;
  auto x = config_of("b", "a");
  x.node_timeout = 3000ms;
  w.b.machine = std::make_unique<link_machine>(std::move(x));
  w.run_for(30s);
  EXPECT_EQ(w.a.rejects.size(), 1u);
  EXPECT_EQ(w.b.rejects.size(), 1u);
  EXPECT_EQ(w.a.ups, 0u);
}

TEST(link_machine, a_second_node_with_a_name_in_use_is_refused) {
  for (std::string_view name : {"a", "b"}) {
    pair w;
    ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
    auto& peer = name == "a" ? w.b : w.a;
    auto& newcomer = w.add(config_of(name, name == "a" ? "b" : "a", 77));
    newcomer.looks_for = &peer;
    w.run_for(5s);
    EXPECT_TRUE(w.linked()) << name;
    EXPECT_EQ(w.a.ups, 1u) << name;
    EXPECT_EQ(newcomer.ups, 0u) << name;
    ASSERT_EQ(newcomer.rejects.size(), 1u) << name;
    EXPECT_EQ(newcomer.rejects[0],
              fmt::format("the name '{0}' is in use: the node at {0}.host:1 "
                          "answers under it, so the one at {0}.host:77 is "
                          "refused",
                          name));
  }
}

TEST(link_machine, a_newcomer_takes_the_name_of_a_node_that_does_not_answer) {
  for (std::string_view name : {"a", "b"}) {
    pair w;
    ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
    auto& old = name == "a" ? w.a : w.b;
    auto& peer = name == "a" ? w.b : w.a;
    w.freeze(old);
    auto& newcomer = w.add(config_of(name, name == "a" ? "b" : "a", 77));
    newcomer.looks_for = &peer;
    ASSERT_TRUE(w.run_until(
      [&] { return newcomer.up != 0 && newcomer.up == peer.up; }, 1900ms))
      << name << ": " << newcomer.machine->state() << " / "
      << peer.machine->state() << " / " << testing::PrintToString(peer.log)
      << testing::PrintToString(peer.notes)
      << testing::PrintToString(newcomer.notes)
      << testing::PrintToString(newcomer.rejects);
    // The old one wakes, learns that its epoch is closed, and is refused.
    w.wake(old);
    w.run_for(5s);
    EXPECT_EQ(old.up, 0u);
    EXPECT_EQ(newcomer.up, peer.up);
    ASSERT_FALSE(old.rejects.empty()) << name;
    EXPECT_EQ(newcomer.ups, 1u);
  }
}

TEST(link_machine, a_node_that_restarts_is_linked_again_at_once) {
  pair w;
  ASSERT_TRUE(w.run_until([&] { return w.linked(); }));
  w.kill(w.b);
  auto& again = w.add(config_of("b", "a", 2));
  again.looks_for = &w.a;
  w.a.looks_for = &again;
  EXPECT_TRUE(
    w.run_until([&] { return again.up != 0 && again.up == w.a.up; }, 500ms));
}

// -- whatever happens ---------------------------------------------------------

namespace {

/// Sends numbered messages and requests, abandons some, and checks what comes.
struct talker {
  talker(world& w, world::node& from, world::node& to) : w(w), from(from) {
    auto old = std::move(from.on_up);
    from.on_up = [this, old](link_epoch e) {
      if (old)
        old(e);
      sent_others = sent_requests = 0;
      abandoned.clear();
    };
    auto up = std::move(to.on_up);
    to.on_up = [this, up](link_epoch e) {
      if (up)
        up(e);
      seen_others = 0;
      seen_requests.clear();
      last_request = 0;
    };
    to.on_message = [this](const message& x) { check(x); };
  }

  void talk() {
    if (from.up == 0)
      return;
    w.call(from, [&](auto& m, auto&) {
      for (auto n = w.random() % 20; n > 0; --n) {
        auto dice = w.random() % 10;
        if (dice < 5) {
          m.send(from.up, "s", other(++sent_others));
        } else if (dice < 8 || sent_requests == 0) {
          m.send(from.up, "s", request_of(++sent_requests));
        } else {
          auto which
            = sent_requests
              - w.random() % std::min<std::uint64_t>(sent_requests, 30);
          if (abandoned.insert(which).second)
            m.send(from.up, "s", abandon_message{request_of(which).id, 0});
        }
      }
    });
  }

  void check(const message& x) {
    if (auto* y = std::get_if<raised_message>(&x)) {
      ASSERT_EQ(y->id.serial, ++seen_others);
    } else if (auto* y = std::get_if<request_message>(&x)) {
      ASSERT_GT(y->id.serial, last_request);
      for (auto i = last_request + 1; i < y->id.serial; ++i)
        ASSERT_TRUE(abandoned.contains(i)) << "a request got lost";
      last_request = y->id.serial;
      seen_requests.insert(y->id.serial);
    } else if (auto* y = std::get_if<abandon_message>(&x)) {
      ASSERT_TRUE(seen_requests.contains(y->id.serial))
        << "an abandon overtook its request";
    }
  }

  world& w;
  world::node& from;
  std::uint64_t sent_others = 0;
  std::uint64_t sent_requests = 0;
  std::set<std::uint64_t> abandoned;
  std::uint64_t seen_others = 0;
  std::uint64_t last_request = 0;
  std::set<std::uint64_t> seen_requests;
};

void storm(std::uint64_t seed) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  pair w{seed};
  talker there{w, w.a, w.b};
  talker back{w, w.b, w.a};
  w.longest_delay_us = 100 + w.random() % 50'000;
  auto calm = w.now + 40s;
  std::function<void()> chat = [&] {
    there.talk();
    back.talk();
    w.at(w.now + std::chrono::milliseconds{1 + w.random() % 60}, chat);
  };
  w.at(w.now, chat);
  std::function<void()> trouble = [&] {
    if (w.now >= calm)
      return;
    auto& victim = w.random() % 2 == 0 ? w.a : w.b;
    switch (w.random() % 5) {
      case 0:
        w.cut_all();
        break;
      case 1:
        w.silence_all();
        break;
      case 2:
        w.refuse = !w.refuse;
        break;
      case 3:
        w.freeze(victim);
        w.at(w.now + std::chrono::milliseconds{w.random() % 6000},
             [&] { w.wake(victim); });
        break;
      default:
        w.longest_delay_us = 100 + w.random() % 50'000;
    }
    w.at(w.now + std::chrono::milliseconds{w.random() % 4000}, trouble);
  };
  w.at(w.now + 1s, trouble);
  w.run_until([&] { return w.now >= calm || testing::Test::HasFailure(); },
              100s);
  w.refuse = false;
  w.run_for(15s);
  ASSERT_TRUE(w.linked()) << w.a.machine->state() << " / "
                          << w.b.machine->state();
  auto ups = w.a.ups;
  w.run_for(5s);
  EXPECT_EQ(w.a.ups, ups) << "the link does not hold";
  EXPECT_LT(w.a.machine->unacknowledged(), 32u);
  EXPECT_GT(there.seen_others, 0u);
}

} // namespace

TEST(link_machine, order_and_epochs_hold_in_any_weather) {
  for (std::uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed)
    storm(seed);
}
