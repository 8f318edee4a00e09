#include "pawl/core/membership.hpp"

#include "pawl/core/ensure.hpp"

#include <utility>

namespace pawl {

membership::membership(node_slot self, std::size_t peers,
                       std::chrono::nanoseconds node_timeout)
  : self_(self), node_timeout_(node_timeout), peers_(peers) {
  ensure(to_index(self) < peers, "this node is one of the configured nodes");
}

// -- events of the scope ------------------------------------------------------

membership::changes membership::open(time_point now) {
  ensure(phase_ == phase::unopened, "a scope is opened once");
  changes out;
  phase_ = phase::joining;
  opened_at_ = now;
  out.view_changed = true;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (linked_peer(static_cast<node_slot>(i)) != nullptr)
      out.greet.push_back(static_cast<node_slot>(i));
  ready_if_resolved(out);
  return out;
}

membership::changes membership::close() {
  changes out;
  if (!is_open())
    return out;
  phase_ = phase::closed;
  for (auto& peer : peers_)
    peer.in_view = false;
  out.view_changed = true;
  return out;
}

membership::changes membership::tick(time_point now) {
  changes out;
  auto deadline = next_deadline();
  if (!deadline || now < *deadline)
    return out;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (counts_as_down_in_time(i))
      take_down(static_cast<node_slot>(i), out);
  return out;
}

// -- events of a link ---------------------------------------------------------

membership::changes membership::link_up(node_slot peer, link_epoch epoch) {
  changes out;
  if (to_index(peer) >= peers_.size() || peer == self_ || epoch == 0)
    return out;
  if (auto* known = linked_peer(peer)) {
    if (known->epoch == epoch)
      return out;
    leave_view(peer, out); // the old epoch goes first
  }
  auto& x = peers_[to_index(peer)];
  x.state = peer_state::linked;
  x.known_up = false;
  x.epoch = epoch;
  if (is_open())
    out.greet.push_back(peer);
  return out;
}

void membership::peer_is_up(node_slot peer) noexcept {
  if (to_index(peer) < peers_.size() && peer != self_
      && peers_[to_index(peer)].state == peer_state::unheard)
    peers_[to_index(peer)].known_up = true;
}

membership::changes membership::link_down(node_slot peer, link_epoch epoch) {
  changes out;
  auto* x = linked_peer(peer);
  auto left = to_index(peer) < peers_.size() && peers_[to_index(peer)].known_up;
  if (left || (x != nullptr && x->epoch == epoch))
    take_down(peer, out);
  return out;
}

membership::changes membership::rejected(node_slot peer) {
  changes out;
  if (to_index(peer) < peers_.size() && peer != self_
      && peers_[to_index(peer)].state == peer_state::unheard)
    take_down(peer, out);
  return out;
}

// -- messages -----------------------------------------------------------------

membership::changes membership::scope_opened(node_slot from) {
  changes out;
  auto* x = linked_peer(from);
  if (x == nullptr)
    return out;
  if (!is_open()) {
    out.decline.push_back(from);
    return out;
  }
  x->closing = false;
  // What it has opened after saying that it had not, it has opened empty.
  if (x->state == peer_state::absent)
    resolve(from, peer_state::settled, out);
  enter_view(from, out);
  return out;
}

membership::changes membership::mismatched(node_slot from) {
  changes out;
  if (linked_peer(from) == nullptr)
    return out;
  leave_view(from, out);
  out.decline.push_back(from);
  resolve(from, peer_state::absent, out);
  return out;
}

membership::changes membership::scope_closed(node_slot from) {
  changes out;
  auto* x = linked_peer(from);
  if (x == nullptr)
    return out;
  // While our greeting is not answered it may be about a scope that has been
  // opened anew since, and believing it would be granting without knowing the
  // holds of that one. The answer is still to come, and says what is open.
  auto installing = x->installing;
  leave_view(from, out);
  if (x->state != peer_state::linked) {
    resolve(from, peer_state::absent, out);
  } else if (installing) {
    // What it has handed over is on its way into the rows. Whoever were granted
    // something before would lose it against that.
    x->installing = true;
    x->closing = true;
  }
  return out;
}

membership::changes membership::handed_over(node_slot from, bool open) {
  changes out;
  auto* x = linked_peer(from);
  if (x == nullptr || !is_open())
    return out;
  if (open) {
    x->installing = true;
    return out;
  }
  leave_view(from, out);
  resolve(from, peer_state::absent, out);
  return out;
}

membership::changes membership::installed(node_slot peer, link_epoch epoch) {
  changes out;
  auto* x = linked_peer(peer);
  if (x == nullptr || x->epoch != epoch || !x->installing || !is_open())
    return out;
  x->installing = false;
  if (std::exchange(x->closing, false)) {
    resolve(peer, peer_state::absent, out);
    return out;
  }
  out.acknowledge.push_back(peer);
  if (!x->in_view)
    enter_view(peer, out);
  resolve(peer, peer_state::settled, out);
  return out;
}

// -- queries ------------------------------------------------------------------

membership::peer_state membership::state_of(node_slot peer) const noexcept {
  return to_index(peer) < peers_.size() ? peers_[to_index(peer)].state
                                        : peer_state::down;
}

bool membership::linked(node_slot peer) const noexcept {
  return peer == self_
         || (to_index(peer) < peers_.size()
             && peers_[to_index(peer)].epoch != 0);
}

bool membership::in_view(node_slot node) const noexcept {
  if (node == self_)
    return is_open();
  return to_index(node) < peers_.size() && peers_[to_index(node)].in_view;
}

std::vector<node_slot> membership::view() const {
  std::vector<node_slot> result;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (in_view(static_cast<node_slot>(i)))
      result.push_back(static_cast<node_slot>(i));
  return result;
}

bool membership::resolved(node_slot peer) const noexcept {
  if (peer == self_)
    return true;
  auto state = state_of(peer);
  return state != peer_state::unheard && state != peer_state::linked;
}

std::optional<time_point> membership::next_deadline() const noexcept {
  if (!is_open())
    return std::nullopt;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (counts_as_down_in_time(i))
      return opened_at_ + node_timeout_;
  return std::nullopt;
}

void membership::check_invariants() const {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const auto& x = peers_[i];
    auto has_link
      = x.state != peer_state::unheard && x.state != peer_state::down;
    ensure(has_link == (x.epoch != 0), "V3: a link has an epoch");
    ensure(!x.in_view || (is_open() && has_link), "V1: the view is linked");
    ensure(!x.in_view || x.state != peer_state::absent,
           "V1: who has not opened the scope is not in the view");
    ensure(!x.installing || has_link, "what a link brings ends with it");
    ensure(!x.known_up || x.state == peer_state::unheard,
           "V4: only who is unheard is waited for");
    ensure(i != to_index(self_) || x.state == peer_state::unheard,
           "a node is no peer of its own");
  }
}

// -- steps --------------------------------------------------------------------

membership::peer_record* membership::linked_peer(node_slot peer) noexcept {
  if (peer == self_ || !linked(peer))
    return nullptr;
  return &peers_[to_index(peer)];
}

void membership::enter_view(node_slot peer, changes& out) {
  auto& x = peers_[to_index(peer)];
  if (!x.in_view) {
    x.in_view = true;
    out.view_changed = true;
  }
  out.hand_over.push_back(peer);
}

void membership::leave_view(node_slot peer, changes& out) {
  auto& x = peers_[to_index(peer)];
  x.installing = false;
  x.closing = false;
  if (!x.in_view)
    return;
  x.in_view = false;
  out.view_changed = true;
  out.left.push_back(peer);
}

bool membership::counts_as_down_in_time(std::size_t peer) const noexcept {
  return peer != to_index(self_) && peers_[peer].state == peer_state::unheard
         && !peers_[peer].known_up;
}

void membership::take_down(node_slot peer, changes& out) {
  leave_view(peer, out);
  peers_[to_index(peer)].epoch = 0;
  peers_[to_index(peer)].known_up = false;
  resolve(peer, peer_state::down, out);
}

void membership::resolve(node_slot peer, peer_state state, changes& out) {
  peers_[to_index(peer)].state = state;
  out.resolved = true;
  ready_if_resolved(out);
}

void membership::ready_if_resolved(changes& out) {
  if (phase_ != phase::joining)
    return;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (!resolved(static_cast<node_slot>(i)))
      return;
  phase_ = phase::ready;
  out.became_ready = true;
}

} // namespace pawl
