#include "pawl/net/link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace pawl {

namespace {

using clock = std::chrono::steady_clock;

/// How much longer a connect may take than the peer may be silent: for what CAF
/// says to CAF before it reports.
constexpr std::chrono::seconds handshake_time{5};

/// What one turn does at most, so that heartbeats keep their time under load.
constexpr std::size_t frames_per_turn = 4;
constexpr std::size_t items_per_turn
  = frames_per_turn * wire::max_batch_messages;

} // namespace

link::link(caf::actor_config& cfg, link_parts parts)
  : caf::event_based_actor(cfg), parts_(std::move(parts)),
    machine_(parts_.machine), monitors_(this) {
  connector_
    = make_connector(system(), parts_.machine.node_timeout, parts_.stop);
}

const char* link::name() const {
  return "pawl.link";
}

void link::on_exit() {
  // Only a kill ends a connector.
  if (connector_)
    compat::anon_send_exit(connector_, caf::exit_reason::kill);
  connector_ = nullptr;
  ways_.clear();
}

caf::behavior link::make_behavior() {
  return {
    [this](const compat::byte_vector& frame) { received(frame); },
    [this](const compat::local_ptr& x) { received(x); },
    [this](drain_atom) { drain(); },
    [this](wake_atom, std::uint64_t timer) {
      if (timer != timer_)
        return;
      timer_due_ = link_machine::time_point::max();
      step([this](auto now, auto& out) { machine_.tick(now, out); });
    },
  };
}

// -- events -------------------------------------------------------------------

template <class Event>
void link::step(Event event) {
  auto& board = *parts_.board;
  auto peer = parts_.machine.peer;
  link_machine::effects todo;
  auto now = clock::now();
  machine_.vitals(board.floor(), board.lamport());
  event(now, todo);
  machine_.flush(now, todo, frames_per_turn);
  board.raise_floor(machine_.peer_floor());
  board.raise_lamport(machine_.peer_lamport());
  auto is_gap = [](const link_machine::effect& x) {
    return std::holds_alternative<link_machine::clock_gap>(x);
  };
  if (std::any_of(todo.begin(), todo.end(), is_gap))
    board.gap(peer, now);
  board.ran(peer, machine_.epoch(), machine_.last_heard(), now);
  perform(todo);
  settle_ways();
  schedule(now);
  if (machine_.can_send() || moved_ < taken_.size())
    drain_again();
}

/// One timer is pending at a time, unless something earlier came up; the later
/// one is then known by its number and ignored.
void link::schedule(link_machine::time_point now) {
  auto due = machine_.next_deadline();
  if (due >= timer_due_)
    return;
  timer_due_ = due;
  compat::delayed_send(this, std::max(due - now, clock::duration{0}),
                       wake_atom_v, ++timer_);
}

void link::received(const compat::byte_vector& frame) {
  if (parts_.cut->load())
    return;
  auto from = way_of(current_sender());
  step([&](auto now, auto& out) {
    machine_.receive(from, frame.bytes, now, out);
  });
}

void link::received(const compat::local_ptr& x) {
  if (dynamic_cast<start_link*>(x.ptr.get()) != nullptr) {
    step([this](auto now, auto& out) { machine_.tick(now, out); });
  } else if (auto* hello = dynamic_cast<greeting*>(x.ptr.get())) {
    if (parts_.cut->load())
      return;
    auto from = way_of(hello->from);
    step([&](auto now, auto& out) {
      machine_.receive_hello(from, hello->what, now, out);
    });
  } else if (auto* stop = dynamic_cast<stop_link*>(x.ptr.get())) {
    if (!stop->quietly)
      step([this](auto now, auto& out) { machine_.shut_down(now, out); });
    quit();
  }
}

void link::drain() {
  draining_ = false;
  auto rest = moved_ < taken_.size();
  if (!rest) {
    moved_ = 0;
    parts_.box->take(taken_);
  }
  step([this](auto, auto&) {
    auto end = std::min(taken_.size(), moved_ + items_per_turn);
    for (; moved_ < end; ++moved_) {
      auto& x = taken_[moved_];
      machine_.send(x.epoch, x.scope, std::move(x.what));
    }
  });
  // This wake-up may have been a client's, for what is in the outbox now.
  if (rest)
    drain_again();
}

void link::drain_again() {
  if (!std::exchange(draining_, true))
    compat::send(this, caf::actor_cast<caf::actor>(this), drain_atom_v);
}

// -- effects ------------------------------------------------------------------

/// Frames go first: no acknowledgement or heartbeat waits for a listener.
void link::perform(link_machine::effects& todo) {
  for (auto& x : todo)
    if (auto* frame = std::get_if<link_machine::transmit>(&x))
      perform(*frame);
  for (auto& x : todo)
    if (!std::holds_alternative<link_machine::transmit>(x))
      std::visit([this](auto& y) { perform(y); }, x);
}

void link::perform(link_machine::dial&) {
  auto& to = parts_.address;
  compat::connect(
    this, connector_, to.host, to.port,
    parts_.machine.node_timeout + handshake_time,
    [this](const caf::node_id&, const caf::strong_actor_ptr& door) {
      if (door == nullptr) {
        connect_failed("nothing is published there");
        return;
      }
      last_failure_.clear();
      auto to = way_of(door);
      step([&](auto now, auto& out) { machine_.connected(to, now, out); });
    },
    [this](const caf::error& why) {
      connect_failed(compat::render(system(), why));
    });
}

void link::connect_failed(const std::string& why) {
  // Said once, until it is another reason or the peer was reached.
  if (why != last_failure_)
    log_.line(log_level::info, fmt::format("{}: {}", between(), why),
              clock::now());
  last_failure_ = why;
  step([this](auto now, auto& out) { machine_.connect_failed(now, out); });
}

void link::perform(link_machine::transmit& x) {
  auto i = ways_.find(x.to);
  if (i != ways_.end() && i->second.who != nullptr && !parts_.cut->load())
    compat::send(this, caf::actor_cast<caf::actor>(i->second.who),
                 compat::byte_vector{std::move(x.frame)});
}

void link::perform(link_machine::drop&) {
  // settle_ways() finds what is not used any more.
}

void link::perform(link_machine::up& x) {
  log_line(log_level::info, fmt::format("{}: linked", between()));
  tell([&](cluster_listener& y) {
    y.link_up(parts_.machine.peer, x.epoch, x.who, x.floor);
  });
}

void link::perform(link_machine::down& x) {
  log_line(log_level::warning, fmt::format("{}: down: {}", between(), x.why));
  tell([&](cluster_listener& y) {
    y.link_down(parts_.machine.peer, x.epoch, x.why);
  });
}

void link::perform(link_machine::deliver& x) {
  auto peer = parts_.machine.peer;
  tell([&](cluster_listener& y) {
    for (auto& item : x.what.items)
      y.receive(peer, x.epoch, x.what.scopes[item.scope], std::move(item.what));
    y.batch_received(peer);
  });
}

void link::perform(link_machine::rejected& x) {
  log_.line(log_level::error, fmt::format("{}: {}", between(), x.why),
            clock::now());
  tell([&](cluster_listener& y) {
    y.peer_rejected(parts_.machine.peer, x.kind, x.why);
  });
}

void link::perform(link_machine::clock_gap& x) {
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(x.length);
  log_.line(
    log_level::warning,
    fmt::format("{}: this node did not run for {} ms", between(), ms.count()),
    clock::now());
  tell([&](cluster_listener& y) { y.clock_gap(parts_.machine.peer); });
}

void link::perform(link_machine::note& x) {
  log_.line(log_level::warning, fmt::format("{}: {}", between(), x.text),
            clock::now());
}

/// What a listener throws must not end the link.
template <class Call>
void link::tell(Call call) {
  try {
    call(*parts_.listener);
  } catch (const std::exception& why) {
    log_.line(
      log_level::error,
      fmt::format("{}: an exception in a listener: {}", between(), why.what()),
      clock::now());
  } catch (...) {
    log_.line(log_level::error,
              fmt::format("{}: an exception in a listener", between()),
              clock::now());
  }
}

// -- transports ---------------------------------------------------------------

/// The number of a remote actor; a new one if it is not known. Told apart by
/// address in memory: a handle from before a reconnect compares equal to the
/// one after it, but is dead.
link::transport link::way_of(const caf::strong_actor_ptr& who) {
  for (auto& [number, x] : ways_)
    if (x.who.get() == who.get())
      return number;
  ways_.emplace(++last_way_, way{who, false});
  return last_way_;
}

/// Watches the transports that the machine uses, forgets the others.
void link::settle_ways() {
  for (auto i = ways_.begin(); i != ways_.end();) {
    auto number = i->first;
    auto& x = i->second;
    if (!machine_.uses(number)) {
      if (x.watched)
        monitors_.remove(x.who);
      i = ways_.erase(i);
      continue;
    }
    if (!x.watched && x.who != nullptr) {
      auto ended = [this, number](const caf::actor_addr&, const caf::error&) {
        if (auto j = ways_.find(number); j != ways_.end())
          j->second.watched = false;
        step([&](auto now, auto& out) { machine_.closed(number, now, out); });
      };
      monitors_.remove(x.who);
      x.watched = monitors_.add(x.who, ended);
    }
    ++i;
  }
}

/// For logs: who is linked with whom.
std::string link::between() const {
  const auto& cfg = parts_.machine;
  return fmt::format("node '{}', peer '{}' at {}",
                     cfg.names[to_index(cfg.self)],
                     cfg.names[to_index(cfg.peer)], cfg.peer_address);
}

} // namespace pawl
