#include "pawl/net/link_machine.hpp"

#include "pawl/core/ensure.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace pawl {

namespace {

constexpr std::chrono::milliseconds shortest_back_off{50};
constexpr std::chrono::milliseconds longest_back_off{1000};

/// Whether it is the last that this side says of a scope before one of the two
/// opens it anew.
bool ends_a_life(const message& x) noexcept {
  return std::holds_alternative<scope_closed_message>(x)
         || std::holds_alternative<scope_closed_ack_message>(x);
}

} // namespace

// -- do they fit --------------------------------------------------------------

/// Both sides come to the same words, whoever finds it.
std::optional<std::string> mismatch(const link_machine::config& own,
                                    const wire::introduction& peer) {
  const auto& self = own.names[to_index(own.self)];
  auto both = [&](std::string_view pattern, const auto& ours,
                  const auto& theirs) {
    return self < peer.name
             ? fmt::format(fmt::runtime(pattern), self, ours, peer.name, theirs)
             : fmt::format(fmt::runtime(pattern), peer.name, theirs, self,
                           ours);
  };
  if (peer.version != wire::protocol_version)
    return both("node '{}' speaks version {} of the protocol, node '{}' "
                "speaks version {}",
                wire::protocol_version, peer.version);
  if (peer.called != self)
    return fmt::format("node '{}' looks for a node '{}' where node '{}' is",
                       peer.name, peer.called, self);
  if (peer.names != own.names)
    return both("node '{}' lists the nodes {}; node '{}' lists the nodes {}",
                fmt::format("{}", fmt::join(own.names, ", ")),
                fmt::format("{}", fmt::join(peer.names, ", ")));
  if (peer.fingerprint != own.fingerprint)
    return both("nodes '{0}' and '{2}' number their message types differently",
                0, 0);
  auto timeout = static_cast<std::uint64_t>(own.node_timeout.count());
  if (peer.node_timeout_ms != timeout)
    return both("node '{}' has a pawl.node-timeout of {} ms, node '{}' of {} "
                "ms",
                timeout, peer.node_timeout_ms);
  auto interval = static_cast<std::uint64_t>(own.heartbeat.count());
  if (peer.heartbeat_ms != interval)
    return both("node '{}' has a pawl.heartbeat-interval of {} ms, node '{}' "
                "of {} ms",
                interval, peer.heartbeat_ms);
  return std::nullopt;
}

// -- constructors -------------------------------------------------------------

link_machine::link_machine(config cfg) : cfg_(std::move(cfg)) {
  ensure(cfg_.random != nullptr, "a link draws random numbers");
  ensure(cfg_.window > 0, "a link has a window");
  ensure(cfg_.self != cfg_.peer, "a link has two ends");
  ensure(to_index(cfg_.self) < cfg_.names.size()
           && to_index(cfg_.peer) < cfg_.names.size(),
         "a link knows the names of its ends");
}

// -- events: time -------------------------------------------------------------

void link_machine::tick(time_point now, effects& out) {
  if (ended_)
    return;
  observe(now, out);
  auto may_judge = now >= judge_after_;
  if (claim_ && now >= claim_->until && may_judge)
    settle_claim(false, now, out);
  if (current_ && may_judge
      && now - current_->last_received >= cfg_.node_timeout)
    close(fmt::format("silent for {} ms", cfg_.node_timeout.count()), true, now,
          out);
  if (offer_ && now - offer_->since >= cfg_.node_timeout) {
    auto way = offer_->way;
    offer_.reset();
    let_go(way, out);
  }
  if (current_) {
    if (now >= current_->next_heartbeat)
      send_heartbeat(false, now, out);
    return;
  }
  if (call_ == call_state::asked && may_judge
      && now >= (knock_ != 0 ? asked_at_ + cfg_.heartbeat : call_due_)) {
    if (asks() && knock_ == 0)
      out.push_back(note{"what is there does not answer our hello"});
    hang_up(now, out, false);
  }
  if (call_ == call_state::idle && now >= call_due_ && !offer_) {
    call_ = call_state::dialling;
    out.push_back(dial{});
  }
}

/// Each event begins here. Ticks come once per heartbeat, so a longer pause
/// between two events means that this side did not run; what the peer sent
/// meanwhile is still to be read. Excused once, not for ever.
void link_machine::observe(time_point now, effects& out) {
  if (!last_event_) {
    base_ = now;
  } else {
    auto pause = now - *last_event_;
    // The peer counts from what was sent before the pause: by a heartbeat or
    // two it finds this node silent earlier than this node itself does.
    if (pause >= cfg_.node_timeout / 2)
      out.push_back(clock_gap{pause});
    if (pause < 2 * cfg_.heartbeat) {
      if (now >= judge_after_)
        excused_ = false;
    } else if (!excused_ || pause >= cfg_.node_timeout) {
      excused_ = true;
      judge_after_ = now + cfg_.heartbeat;
    }
  }
  last_event_ = now;
}

link_machine::time_point link_machine::next_deadline() const noexcept {
  if (ended_)
    return time_point::max();
  auto last = last_event_.value_or(time_point::min());
  auto result = last + cfg_.heartbeat;
  if (current_)
    result = std::min(result, current_->next_heartbeat);
  else if (call_ == call_state::asked)
    result = std::min(
      result, std::max(knock_ != 0 ? asked_at_ + cfg_.heartbeat : call_due_,
                       judge_after_));
  else if (call_ == call_state::idle && !offer_)
    result = std::min(result, call_due_);
  if (claim_)
    result = std::min(result, std::max(claim_->until, judge_after_));
  return std::max(result, last);
}

// -- events: connections ------------------------------------------------------

void link_machine::connected(transport way, time_point now, effects& out) {
  if (ended_)
    return;
  observe(now, out);
  if (call_ == call_state::dialling && !current_)
    ask(way, now, out);
  else
    let_go(way, out);
}

void link_machine::connect_failed(time_point now, effects& out) {
  if (ended_)
    return;
  observe(now, out);
  if (call_ == call_state::dialling)
    hang_up(now, out, false);
}

void link_machine::closed(transport way, time_point now, effects& out) {
  if (ended_)
    return;
  observe(now, out);
  if (claim_ && claim_->way == way)
    claim_.reset();
  if (offer_ && offer_->way == way)
    offer_.reset();
  if (knock_ == way)
    knock_ = 0;
  if (call_ == call_state::asked && asked_ == way)
    hang_up(now, out, false);
  if (current_ && current_->way == way)
    close("the connection was closed", false, now, out);
}

void link_machine::shut_down(time_point now, effects& out) {
  if (ended_)
    return;
  constexpr auto why = "the node is shutting down";
  if (claim_)
    reject(claim_->way, claim_->what, wire::reject_kind::busy, why, out);
  claim_.reset();
  if (offer_)
    out.push_back(
      transmit{offer_->way, wire::encode(wire::goodbye{offer_->epoch, why})});
  offer_.reset();
  if (current_)
    close(why, true, now, out);
  ended_ = true;
}

// -- calling and answering ----------------------------------------------------

void link_machine::ask(transport way, time_point now, effects& out) {
  call_ = call_state::asked;
  asked_ = way;
  nonce_ = draw();
  asked_at_ = now;
  call_due_ = now + cfg_.node_timeout;
  out.push_back(
    transmit{way, wire::encode(wire::hello{introduction(), nonce_})});
}

/// Gives the call up. Asks over the connection of a knock, if there is one;
/// else tries again later: after a back-off that doubles, or after the longest
/// if nothing is likely to have changed before.
void link_machine::hang_up(time_point now, effects& out, bool hopeless) {
  auto way = std::exchange(asked_, 0);
  call_ = call_state::idle;
  nonce_ = 0;
  auto pause = longest_back_off;
  if (!hopeless && failures_ < 5)
    pause = std::min(pause, shortest_back_off * (1 << failures_++));
  auto jitter = cfg_.random() % 512; // of 1024: a half of the pause at most
  call_due_ = now + pause - pause * jitter / 1024;
  if (auto knock = std::exchange(knock_, 0))
    ask(knock, now, out);
  if (way != 0)
    let_go(way, out);
}

void link_machine::receive_hello(transport from, const wire::hello& x,
                                 time_point now, effects& out) {
  if (ended_)
    return;
  observe(now, out);
  receive(from, x, now, out);
}

void link_machine::receive(transport from, const wire::hello& x, time_point now,
                           effects& out) {
  auto why = mismatch(cfg_, x.self);
  if (!why && x.self.name != peer_name())
    why = fmt::format("node '{}' says hello in the place of node '{}'",
                      x.self.name, peer_name());
  if (why) {
    reject(from, x, wire::reject_kind::mismatch, *why, out);
    if (current_)
      out.push_back(note{fmt::format("rejected a hello: {}", *why)});
    else
      report(wire::reject_kind::mismatch, *why, out);
    return;
  }
  auto same = current_ && current_->who == x.self.who;
  if (!current_ || (same && !asks())) {
    answer(from, x, now, out);
    return;
  }
  if (claim_ && claim_->way != from) {
    if (!same)
      reject(from, x, wire::reject_kind::busy,
             fmt::format("node '{}' is still looking into the claim of {}",
                         cfg_.names[to_index(cfg_.self)],
                         claim_->what.self.address),
             out);
    return;
  }
  if (claim_) {
    claim_->what = x;
    return;
  }
  claim_ = claim{from, x, now, now + 2 * cfg_.heartbeat};
  send_heartbeat(true, now, out);
}

/// The hello is in order and no link stands in its way.
void link_machine::answer(transport way, const wire::hello& x, time_point now,
                          effects& out) {
  heard(x.self.floor, x.self.lamport);
  if (asks()) {
    // It may cross with a hello of our own, which is good enough if it gets an
    // answer soon.
    if (call_ != call_state::asked) {
      ask(way, now, out);
    } else if (way != asked_) {
      auto old = std::exchange(knock_, way);
      if (old != 0)
        let_go(old, out);
    }
    return;
  }
  if (!offer_ || offer_->asked.nonce != x.nonce
      || offer_->asked.self.who != x.self.who) {
    auto old = offer_ ? offer_->way : 0;
    offer_ = offer{way, x, draw(), now};
    if (old != 0)
      let_go(old, out);
  }
  out.push_back(transmit{
    way, wire::encode(wire::welcome{introduction(), x.nonce, offer_->epoch})});
}

void link_machine::receive(transport from, const wire::welcome& x,
                           time_point now, effects& out) {
  if (!asks() || call_ != call_state::asked || x.nonce != nonce_) {
    out.push_back(note{"refused a welcome that answers no hello of ours"});
    if (x.epoch != 0)
      out.push_back(transmit{
        from, wire::encode(wire::goodbye{x.epoch, "nobody asked for this"})});
    return;
  }
  auto why = mismatch(cfg_, x.self);
  if (!why && x.self.name != peer_name())
    why = fmt::format("node '{}' answers in the place of node '{}'",
                      x.self.name, peer_name());
  if (why) {
    report(wire::reject_kind::mismatch, *why, out);
    hang_up(now, out, true);
    return;
  }
  rise(x.epoch, from, x.self, asked_at_, now, out);
  // Confirms the epoch.
  send_heartbeat(false, now, out);
}

void link_machine::receive(transport from, const wire::reject& x,
                           time_point now, effects& out) {
  if (call_ != call_state::asked || x.nonce != nonce_) {
    out.push_back(note{"refused a reject that answers no hello of ours"});
    return;
  }
  (void) from;
  if (x.kind != wire::reject_kind::busy)
    report(x.kind, x.why, out);
  hang_up(now, out, x.kind != wire::reject_kind::busy);
}

// -- up and down --------------------------------------------------------------

void link_machine::rise(link_epoch epoch, transport way,
                        const wire::introduction& peer, time_point heard_at,
                        time_point now, effects& out) {
  ensure(!current_, "one link at a time");
  link x;
  x.epoch = epoch;
  x.way = way;
  x.who = peer.who;
  x.address = peer.address;
  x.peer_window = std::max<std::uint32_t>(1, peer.window);
  x.last_received = now;
  x.next_heartbeat = now + cfg_.heartbeat;
  current_ = std::move(x);
  last_heard_ = std::max(last_heard_, heard_at);
  failures_ = 0;
  last_report_.clear();
  auto called = std::exchange(asked_, 0);
  call_ = call_state::idle;
  nonce_ = 0;
  if (called != 0)
    let_go(called, out);
  if (auto knock = std::exchange(knock_, 0))
    let_go(knock, out);
  heard(peer.floor, peer.lamport);
  out.push_back(up{epoch, peer.who, peer.floor});
}

/// The epoch is over, for ever. Whoever claims the name is answered now;
/// otherwise the peer is looked for at once.
void link_machine::close(std::string why, bool tell, time_point now,
                         effects& out) {
  auto old = std::move(*current_);
  current_.reset();
  clear_queue();
  if (tell)
    out.push_back(
      transmit{old.way, wire::encode(wire::goodbye{old.epoch, why})});
  out.push_back(down{old.epoch, std::move(why)});
  call_due_ = now;
  if (claim_) {
    auto next = std::move(*claim_);
    claim_.reset();
    answer(next.way, next.what, now, out);
  }
  let_go(old.way, out);
}

void link_machine::settle_claim(bool old_answers, time_point now,
                                effects& out) {
  if (!old_answers && claim_->what.self.who != current_->who) {
    close(
      fmt::format("silent while {} claims its name", claim_->what.self.address),
      true, now, out);
    return;
  }
  auto x = std::move(*claim_);
  claim_.reset();
  if (x.what.self.who != current_->who) {
    auto why = fmt::format("the name '{}' is in use: the node at {} answers "
                           "under it, so the one at {} is refused",
                           peer_name(), current_->address, x.what.self.address);
    reject(x.way, x.what, wire::reject_kind::name_in_use, why, out);
    out.push_back(note{why});
  }
  let_go(x.way, out);
}

// -- receiving ----------------------------------------------------------------

void link_machine::receive(transport from, std::span<const std::byte> bytes,
                           time_point now, effects& out) {
  if (ended_)
    return;
  observe(now, out);
  auto x = wire::decode(bytes);
  if (auto* error = std::get_if<wire::malformed>(&x)) {
    out.push_back(note{fmt::format("refused a frame of {} bytes: {}",
                                   bytes.size(), to_string(*error))});
    return;
  }
  std::visit([&](auto& y) { receive(from, y, now, out); },
             std::get<wire::frame>(x));
}

/// Whether a frame belongs to the standing link. The first frame of an offered
/// epoch makes it so; one of a closed or unknown epoch is refused, and its
/// sender told.
bool link_machine::admit(transport from, link_epoch epoch,
                         std::string_view what, time_point now, effects& out) {
  if (offer_ && offer_->epoch == epoch && offer_->way == from) {
    auto x = std::move(*offer_);
    offer_.reset();
    // Who claims the name has to claim it from the new link.
    auto claimant = std::exchange(claim_, std::nullopt);
    if (current_)
      close("the peer has begun a new link", true, now, out);
    rise(x.epoch, from, x.asked.self, x.since, now, out);
    if (claimant)
      receive(claimant->way, claimant->what, now, out);
  }
  if (current_ && current_->epoch == epoch) {
    if (current_->way == from) {
      current_->last_received = now;
      return true;
    }
    out.push_back(
      note{fmt::format("refused a {} from a stranger to the link", what)});
    return false;
  }
  out.push_back(note{fmt::format("refused a {} of a closed epoch", what)});
  out.push_back(
    transmit{from, wire::encode(wire::goodbye{epoch, "this epoch is closed"})});
  return false;
}

void link_machine::receive(transport from, wire::batch& x, time_point now,
                           effects& out) {
  if (!admit(from, x.epoch, "batch", now, out) || !acknowledged(x.ack, out))
    return;
  if (x.seq <= current_->received) {
    out.push_back(note{fmt::format("refused batch {} a second time", x.seq)});
    return;
  }
  if (x.seq != current_->received + 1) {
    auto why = fmt::format("batch {} came where batch {} was due", x.seq,
                           current_->received + 1);
    out.push_back(note{why});
    close(std::move(why), true, now, out);
    return;
  }
  ++current_->received;
  heard(0, x.lamport);
  out.push_back(deliver{x.epoch, std::move(x)});
}

void link_machine::receive(transport from, const wire::ack& x, time_point now,
                           effects& out) {
  if (admit(from, x.epoch, "ack", now, out))
    acknowledged(x.seq, out);
}

void link_machine::receive(transport from, const wire::heartbeat& x,
                           time_point now, effects& out) {
  if (!admit(from, x.epoch, "heartbeat", now, out) || !acknowledged(x.ack, out))
    return;
  heard(x.floor, x.lamport);
  current_->peer_stamp = std::max(current_->peer_stamp, x.stamp);
  if (x.echo > stamp(now)) {
    out.push_back(note{"refused the echo of something not said yet"});
  } else if (x.echo > 0) {
    auto said = base_ + std::chrono::microseconds{x.echo - 1};
    last_heard_ = std::max(last_heard_, said);
    if (claim_ && x.echo >= stamp(claim_->since))
      settle_claim(true, now, out);
  }
  if (x.ask)
    send_heartbeat(false, now, out);
}

void link_machine::receive(transport from, const wire::goodbye& x,
                           time_point now, effects& out) {
  if (offer_ && offer_->epoch == x.epoch) {
    offer_.reset();
    let_go(from, out);
  } else if (current_ && current_->epoch == x.epoch && current_->way == from) {
    close(fmt::format("the peer says goodbye: {}", x.why), false, now, out);
  }
}

/// The peer has received our batches up to `seq`.
bool link_machine::acknowledged(std::uint64_t seq, effects& out) {
  if (seq > current_->sent) {
    out.push_back(
      note{fmt::format("refused the acknowledgement of batch {}, where {} were "
                       "sent",
                       seq, current_->sent)});
    return false;
  }
  current_->acknowledged = std::max(current_->acknowledged, seq);
  return true;
}

void link_machine::heard(fencing_token floor, std::uint64_t lamport) noexcept {
  peer_floor_ = std::max(peer_floor_, floor);
  peer_lamport_ = std::max(peer_lamport_, lamport);
}

// -- sending ------------------------------------------------------------------

bool link_machine::send(link_epoch epoch, std::string_view scope,
                        message what) {
  if (!current_ || current_->epoch != epoch)
    return false;
  outgoing x{std::string{scope}, std::move(what)};
  if (std::holds_alternative<request_message>(x.what)) {
    requests_.push(std::move(x));
  } else {
    if (const auto* y = std::get_if<abandon_message>(&x.what))
      if (requests_.take_out(x.scope, *y))
        return true;
    if (const auto* y = std::get_if<waits_elsewhere_message>(&x.what))
      if (requests_.tell(x.scope, *y))
        return true;
    if (ends_a_life(x.what))
      requests_.take_out_all(x.scope);
    middle_.push_back(std::move(x));
  }
  return true;
}

void link_machine::flush(time_point now, effects& out, std::size_t most) {
  // Sending is no event of its own, but may be the first thing that a node does
  // after it has slept.
  if (!ended_)
    observe(now, out);
  if (current_ && now >= current_->next_heartbeat)
    send_heartbeat(false, now, out);
  for (; current_ && can_send() && most > 0; --most) {
    wire::batch_writer batch;
    std::optional<outgoing> excess;
    while (!excess && !batch.full()) {
      auto x = next_unsent();
      if (!x)
        break;
      if (!batch.add(x->scope, x->what))
        excess = std::move(x);
    }
    if (!batch.empty()) {
      auto& x = *current_;
      out.push_back(
        transmit{x.way, batch.finish(x.epoch, ++x.sent, x.received, lamport_)});
      x.ack_sent = x.received;
    }
    if (excess)
      too_large(*excess, now, out);
  }
  if (!current_)
    return;
  auto& x = *current_;
  if (x.received - x.ack_sent >= std::max(1u, x.peer_window / 4)) {
    out.push_back(
      transmit{x.way, wire::encode(wire::ack{x.epoch, x.received})});
    x.ack_sent = x.received;
  }
}

/// Requests come last.
std::optional<outgoing> link_machine::next_unsent() {
  if (middle_.empty())
    return requests_.pop();
  auto result = std::move(middle_.front());
  middle_.pop_front();
  return result;
}

/// A request that no frame can hold is answered here, in the peer's name. Of
/// other messages a link cannot lose any and go on.
void link_machine::too_large(const outgoing& x, time_point now, effects& out) {
  out.push_back(
    note{fmt::format("a {} message for scope '{}' exceeds {} bytes",
                     name_of(x.what), x.scope, wire::max_message_size)});
  const auto* request = std::get_if<request_message>(&x.what);
  if (request == nullptr) {
    close("a message was too large to be sent", true, now, out);
    return;
  }
  wire::batch answer;
  answer.epoch = current_->epoch;
  answer.scopes.push_back(x.scope);
  answer.items.push_back({0, refused_message{request->id, request->attempt,
                                             outcome::term_too_large}});
  out.push_back(deliver{answer.epoch, std::move(answer)});
}

void link_machine::send_heartbeat(bool ask, time_point now, effects& out) {
  auto& x = *current_;
  out.push_back(transmit{
    x.way, wire::encode(wire::heartbeat{x.epoch, x.received, floor_, lamport_,
                                        stamp(now), x.peer_stamp, ask})});
  x.ack_sent = x.received;
  x.next_heartbeat = now + cfg_.heartbeat;
}

void link_machine::clear_queue() noexcept {
  middle_.clear();
  requests_.clear();
}

// -- small things -------------------------------------------------------------

void link_machine::reject(transport way, const wire::hello& x,
                          wire::reject_kind kind, std::string why,
                          effects& out) {
  why.resize(std::min(why.size(), wire::max_sentence));
  out.push_back(
    transmit{way, wire::encode(wire::reject{wire::protocol_version,
                                            cfg_.names[to_index(cfg_.self)],
                                            x.nonce, kind, std::move(why)})});
}

void link_machine::report(wire::reject_kind kind, std::string why,
                          effects& out) {
  if (why == last_report_)
    return;
  last_report_ = why;
  out.push_back(rejected{kind, std::move(why)});
}

void link_machine::let_go(transport way, effects& out) {
  if (!uses(way))
    out.push_back(drop{way});
}

bool link_machine::uses(transport way) const noexcept {
  return (current_ && current_->way == way) || (offer_ && offer_->way == way)
         || (claim_ && claim_->way == way) || knock_ == way
         || (call_ == call_state::asked && asked_ == way);
}

wire::introduction link_machine::introduction() const {
  wire::introduction x;
  x.name = cfg_.names[to_index(cfg_.self)];
  x.fingerprint = cfg_.fingerprint;
  x.called = peer_name();
  x.names = cfg_.names;
  x.who = cfg_.who;
  x.address = cfg_.address;
  x.node_timeout_ms = static_cast<std::uint32_t>(cfg_.node_timeout.count());
  x.heartbeat_ms = static_cast<std::uint32_t>(cfg_.heartbeat.count());
  x.window = cfg_.window;
  x.floor = floor_;
  x.lamport = lamport_;
  return x;
}

/// Never 0, which stands for "none".
std::uint64_t link_machine::draw() {
  auto result = cfg_.random();
  while (result == 0)
    result = cfg_.random();
  return result;
}

/// What stands for `now` in heartbeats. Never 0.
std::uint64_t link_machine::stamp(time_point now) const noexcept {
  auto since
    = std::chrono::duration_cast<std::chrono::microseconds>(now - base_);
  return static_cast<std::uint64_t>(since.count()) + 1;
}

std::string link_machine::state() const {
  std::string result;
  if (ended_)
    result = "ended";
  else if (current_)
    result = fmt::format("up, {} queued, {} unacknowledged", queued(),
                         unacknowledged());
  else if (call_ == call_state::idle)
    result = "idle";
  else
    result = call_ == call_state::dialling ? "dialling" : "asked";
  if (offer_)
    result += ", offered";
  if (claim_)
    result += ", claimed";
  return result;
}

void link_machine::check_invariants() const {
  ensure(unacknowledged() <= cfg_.window, "L1: the window is exceeded");
  ensure(current_ || queued() == 0, "L2: a queue without a link");
  ensure(!offer_ || !asks(), "L3: the smaller slot offers");
  ensure(!claim_ || current_, "L4: a claim without a link");
  ensure(!current_ || current_->acknowledged <= current_->sent,
         "acknowledged what was not sent");
  ensure((call_ == call_state::asked) == (asked_ != 0), "asked, but whom");
  ensure(knock_ == 0 || (asks() && call_ == call_state::asked),
         "a knock is kept while we ask somebody else");
}

} // namespace pawl
