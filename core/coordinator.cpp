#include "pawl/core/coordinator.hpp"

#include "pawl/core/ensure.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace pawl {

coordinator::coordinator(coordinator_options options, const lock_table& table,
                         const lamport_clock& clock)
  : options_(std::move(options)), table_(table), clock_(clock),
    order_(options_.scope, options_.nodes),
    members_(options_.self, options_.nodes.size(), options_.node_timeout) {
  // nop
}

// -- events of the scope ------------------------------------------------------

void coordinator::open_scope(time_point now, scope_effects& out) {
  apply(members_.open(now), loss::node_down, out);
}

void coordinator::close_scope(scope_effects& out) {
  if (!members_.is_open())
    return;
  for_each([&](multi_node_request& x) {
    if (x.pending())
      x.cancel(outcome::scope_closed, out);
    else
      x.lose(loss::scope_closed, no_node, out);
  });
  for (std::size_t i = 0; i < options_.nodes.size(); ++i) {
    auto node = static_cast<node_slot>(i);
    if (node != options_.self && members_.linked(node))
      out.push_back(effect::send{node, scope_closed_message{}});
  }
  apply(members_.close(), loss::scope_closed, out);
}

void coordinator::tick(time_point now, scope_effects& out) {
  apply(members_.tick(now), loss::node_down, out);
}

// -- events of clients --------------------------------------------------------

void coordinator::open(request_spec spec, scope_effects& out) {
  auto id = spec.id;
  ensure(id.home == options_.self && spec.session.home == options_.self,
         "a request is opened at its home");
  auto refuse = [&](outcome why) { out.push_back(effect::ended{id, why}); };
  if (!members_.is_open())
    return refuse(outcome::scope_closed);
  if (auto why = check_terms(spec.terms); why != outcome::pending)
    return refuse(why);
  auto wait = must_wait(spec);
  if (wait && spec.no_wait)
    return refuse(outcome::busy);
  auto [i, added] = requests_.try_emplace(id.serial, std::move(spec), order_);
  ensure(added, "request ids are not used twice");
  of_session_[i->second.spec().session.serial].push_back(id.serial);
  if (wait)
    idle_.push_back(id.serial);
  else
    start(i->second, out);
  forget_if_ended(id);
}

void coordinator::cancel(const request_id& id, outcome why,
                         scope_effects& out) {
  if (auto* x = pick(id))
    x->cancel(why, out);
  forget_if_ended(id);
}

void coordinator::release(const request_id& id,
                          std::span<const std::uint16_t> which,
                          scope_effects& out) {
  if (auto* x = pick(id))
    x->release(which, out);
  forget_if_ended(id);
}

void coordinator::take_back(const request_id& id, scope_effects& out) {
  if (auto* x = pick(id))
    x->take_back(out);
  forget_if_ended(id);
}

/// It is the session's hold that becomes shared, so its other handles do.
void coordinator::downgraded(const session_id& session, const term& what,
                             scope_effects& out) {
  if (of_session_.count(session.serial) == 0)
    return;
  for (auto serial : of_session_.at(session.serial)) {
    auto& x = requests_.at(serial);
    if (auto i = x.find_term(what); i && !x.pending())
      x.downgrade(*i, out);
  }
  scope_effects all;
  ask_anew_for(session, what, nullptr, all);
  give_back_first(all, out);
}

void coordinator::give_back_and_ask_again(const request_id& id,
                                          scope_effects& out) {
  auto* x = pick(id);
  if (x == nullptr || !x->pending())
    return;
  // What another request of the session has of the same terms would be as much
  // in the way, and would cover this one at once when it is asked again.
  scope_effects all;
  for (auto serial : of_session_.at(x->spec().session.serial)) {
    auto& y = requests_.at(serial);
    const auto& terms = y.spec().terms;
    if (y.pending()
        && std::any_of(terms.begin(), terms.end(), [&](const term_lock& t) {
             return x->find_term(t.what).has_value();
           }))
      y.give_back_and_ask_again(all);
  }
  give_back_first(all, out);
}

void coordinator::waits_elsewhere(const request_id& id, scope_effects& out) {
  if (auto* x = pick(id))
    x->waits_elsewhere(out);
}

// -- events of links and workers ----------------------------------------------

void coordinator::link_up(node_slot peer, link_epoch epoch,
                          scope_effects& out) {
  apply(members_.link_up(peer, epoch), loss::node_down, out);
}

void coordinator::peer_is_up(node_slot peer) noexcept {
  members_.peer_is_up(peer);
}

void coordinator::link_down(node_slot peer, link_epoch epoch,
                            scope_effects& out) {
  apply(members_.link_down(peer, epoch), loss::node_down, out);
}

void coordinator::peer_rejected(node_slot peer, scope_effects& out) {
  apply(members_.rejected(peer), loss::node_down, out);
}

void coordinator::receive(node_slot from, const message& what,
                          scope_effects& out) {
  if (!members_.linked(from))
    return;
  std::visit(
    [&](const auto& x) {
      if constexpr (requires { this->receive_one(from, x, out); })
        this->receive_one(from, x, out);
    },
    what);
}

void coordinator::installed(node_slot peer, link_epoch epoch,
                            std::uint32_t holds, scope_effects& out) {
  auto changes = members_.installed(peer, epoch);
  for (auto to : changes.acknowledge)
    out.push_back(effect::send{to, hand_over_ack_message{holds}});
  apply(changes, loss::node_down, out);
}

void coordinator::receive_one(node_slot from, const granted_message& x,
                              scope_effects& out) {
  auto* request = pick(x.id);
  if (request == nullptr) {
    // Its end and this grant have crossed. The abandon that went out then is on
    // its way; it does not hurt to say it twice.
    if (x.id.home == options_.self)
      out.push_back(effect::send{from, abandon_message{x.id, x.attempt}});
    return;
  }
  request->granted(from, x, clock_.now(), out);
  tell_siblings(*request);
  forget_if_ended(x.id);
}

void coordinator::receive_one(node_slot from, const refused_message& x,
                              scope_effects& out) {
  if (auto* request = pick(x.id))
    request->refused(from, x, out);
  forget_if_ended(x.id);
}

void coordinator::receive_one(node_slot from, const raised_message& x,
                              scope_effects& out) {
  auto* request = pick(x.id);
  if (request == nullptr)
    return;
  request->raised(from, x, out);
  tell_siblings(*request);
}

void coordinator::receive_one(node_slot from, const lost_message& x,
                              scope_effects& out) {
  if (auto* request = pick(x.id)) {
    scope_effects all;
    if (request->lost(from, x, all))
      ask_anew_for(request->spec().session, request->spec().terms[x.which].what,
                   request, all);
    give_back_first(all, out);
  } else if (x.id.home == options_.self) {
    out.push_back(effect::send{from, release_message{x.id, {}}});
  }
  forget_if_ended(x.id);
}

void coordinator::receive_one(node_slot from, const scope_opened_message& x,
                              scope_effects& out) {
  if (from == options_.self)
    return;
  if (x.fingerprint != options_.fingerprint && members_.is_open()) {
    out.push_back(effect::mismatch{from});
    apply(members_.mismatched(from), loss::scope_closed, out);
    return;
  }
  apply(members_.scope_opened(from), loss::scope_closed, out);
}

void coordinator::receive_one(node_slot from, const scope_closed_message&,
                              scope_effects& out) {
  if (from == options_.self)
    return;
  apply(members_.scope_closed(from), loss::scope_closed, out);
  // All that this node has said to the scope that is closed is before this.
  out.push_back(effect::send{from, scope_closed_ack_message{}});
}

void coordinator::receive_one(node_slot from, const hand_over_message& x,
                              scope_effects& out) {
  if (from != options_.self)
    apply(members_.handed_over(from, x.open), loss::scope_closed, out);
}

// -- the view -----------------------------------------------------------------

/// In this order: what is gone first, then what a peer must hear before it
/// hears of requests, then the requests.
void coordinator::apply(const membership::changes& x, loss why,
                        scope_effects& out) {
  for (auto peer : x.left)
    leave(peer, why, out);
  if (x.view_changed)
    out.push_back(effect::view_changed{members_.view()});
  for (auto peer : x.greet)
    out.push_back(
      effect::send{peer, scope_opened_message{options_.fingerprint}});
  for (auto peer : x.decline)
    out.push_back(effect::send{peer, hand_over_message{false, {}, 0}});
  for (auto peer : x.hand_over)
    hand_over_to(peer, out);
  if (x.view_changed)
    follow_view(out);
  if (x.became_ready)
    out.push_back(effect::ready{});
  if (x.resolved || x.became_ready)
    start_what_can(out);
}

void coordinator::leave(node_slot peer, loss why, scope_effects& out) {
  for_each([&](multi_node_request& x) {
    if (x.spec().choice == node_choice::listed)
      x.node_gone(peer, why, out);
  });
}

/// One step: whoever is granted before it is in the list, whoever is granted
/// after it has asked the peer.
void coordinator::hand_over_to(node_slot peer, scope_effects& out) {
  hand_over_message all;
  all.floor = table_.highest_token();
  for_each([&](multi_node_request& x) {
    if (x.state() == multi_node_request::phase::granted
        && x.spec().choice == node_choice::every_node)
      all.holds.push_back(x.hand_over_to(peer));
  });
  out.push_back(effect::send{peer, std::move(all)});
}

void coordinator::follow_view(scope_effects& out) {
  auto view = members_.view();
  if (view.empty())
    return;
  for_each([&](multi_node_request& x) {
    if (x.spec().choice != node_choice::every_node)
      return;
    x.view_changed(view, out);
    tell_siblings(x);
  });
}

// -- requests -----------------------------------------------------------------

/// Whether something that it needs is still being found out.
bool coordinator::must_wait(const request_spec& x) const {
  if (members_.state() != membership::phase::ready)
    return true;
  if (x.choice == node_choice::every_node)
    return false;
  return std::any_of(x.nodes.begin(), x.nodes.end(), [&](node_slot node) {
    return members_.state_of(node) == membership::peer_state::linked;
  });
}

void coordinator::start_what_can(scope_effects& out) {
  for (auto serial : std::exchange(idle_, {})) {
    auto* x = pick({options_.self, serial});
    if (x == nullptr)
      continue; // it ended while it waited
    if (must_wait(x->spec()))
      idle_.push_back(serial);
    else
      start(*x, out);
    forget_if_ended({options_.self, serial});
  }
}

void coordinator::start(multi_node_request& x, scope_effects& out) {
  const auto& spec = x.spec();
  auto nodes
    = spec.choice == node_choice::listed ? spec.nodes : members_.view();
  for (auto node : nodes) {
    if (members_.in_view(node))
      continue;
    auto absent = members_.state_of(node) == membership::peer_state::absent;
    x.fail(absent ? outcome::scope_closed : outcome::node_down, node, out);
    return;
  }
  std::vector<fencing_token> carried;
  carried.reserve(spec.terms.size());
  for (const auto& term : spec.terms)
    carried.push_back(table_.known_token(term.what));
  x.start(std::move(nodes), std::move(carried), out);
}

/// The session's hold on a term is not what it was. What else it wants
/// exclusively there may have been granted because of that hold, with its
/// token.
void coordinator::ask_anew_for(const session_id& session, const term& what,
                               const multi_node_request* except,
                               scope_effects& out) {
  for (auto serial : of_session_.at(session.serial)) {
    auto& x = requests_.at(serial);
    if (auto i = x.find_term(what);
        i && x.pending() && &x != except
        && x.spec().terms[*i].mode == lock_mode::exclusive)
      x.give_back_and_ask_again(out);
  }
}

/// Of requests of one session: all is given back before any of it is asked for
/// again.
void coordinator::give_back_first(scope_effects& all, scope_effects& out) {
  std::stable_partition(all.begin(), all.end(), [](const scope_effect& e) {
    const auto* s = std::get_if<effect::send>(&e);
    return s == nullptr || !std::holds_alternative<request_message>(s->what);
  });
  std::move(all.begin(), all.end(), std::back_inserter(out));
}

/// If it is granted, other requests of its session may have parts that were
/// granted because of it, before its token was raised.
void coordinator::tell_siblings(const multi_node_request& x) {
  if (x.state() != multi_node_request::phase::granted)
    return;
  for (auto serial : of_session_.at(x.spec().session.serial))
    if (serial != x.id().serial)
      requests_.at(serial).sibling_granted(x);
}

/// What ends meanwhile is forgotten.
template <class F>
void coordinator::for_each(F f) {
  for (auto i = requests_.begin(); i != requests_.end();) {
    f(i->second);
    if (i->second.state() == multi_node_request::phase::ended) {
      unlist(i->second);
      i = requests_.erase(i);
    } else {
      ++i;
    }
  }
}

multi_node_request* coordinator::pick(const request_id& id) {
  auto i = requests_.find(id.serial);
  return id.home == options_.self && i != requests_.end() ? &i->second
                                                          : nullptr;
}

const multi_node_request* coordinator::find(const request_id& id) const {
  auto i = requests_.find(id.serial);
  return id.home == options_.self && i != requests_.end() ? &i->second
                                                          : nullptr;
}

void coordinator::forget_if_ended(const request_id& id) {
  auto* x = pick(id);
  if (x == nullptr || x->state() != multi_node_request::phase::ended)
    return;
  unlist(*x);
  requests_.erase(id.serial);
}

void coordinator::unlist(const multi_node_request& x) {
  auto i = of_session_.find(x.spec().session.serial);
  ensure(i != of_session_.end(), "C4: a request is listed by its session");
  std::erase(i->second, x.id().serial);
  if (i->second.empty())
    of_session_.erase(i);
}

void coordinator::waits_of(const session_id& who,
                           std::vector<wait_name>& out) const {
  auto all = of_session_.find(who.serial);
  if (who.home != options_.self || all == of_session_.end())
    return;
  for (auto serial : all->second) {
    const auto& x = requests_.at(serial);
    if (x.pending())
      for (auto node : x.asked())
        out.push_back({who, x.id(), x.attempt(), node});
  }
}

bool coordinator::holds_against(const term& what, const session_id& who,
                                lock_mode mode, node_slot node) const {
  auto all = of_session_.find(who.serial);
  if (who.home != options_.self || all == of_session_.end())
    return false;
  return std::any_of(
    all->second.begin(), all->second.end(), [&](std::uint64_t serial) {
      const auto& x = requests_.at(serial);
      return x.involves(node)
             && x.in_the_way(what, mode, false) == standing::whole;
    });
}

std::uint64_t coordinator::age_of(const session_id& who) const {
  auto result = session_age::holds_nothing;
  auto all = of_session_.find(who.serial);
  if (who.home == options_.self && all != of_session_.end())
    for (auto serial : all->second)
      if (const auto& x = requests_.at(serial); x.pending())
        result = std::min(result, x.age().lamport);
  return result;
}

void coordinator::check_invariants() const {
  std::size_t listed = 0;
  for (const auto& [session, all] : of_session_)
    listed += all.size();
  ensure(listed == requests_.size(),
         "C4: each request is listed by its session, once");
  members_.check_invariants();
  auto view = members_.view();
  order_.sort(view);
  for (const auto& [serial, x] : requests_) {
    x.check_invariants();
    using phase = multi_node_request::phase;
    ensure(x.state() != phase::ended, "C2: who has ended is gone");
    if (x.state() == phase::idle) {
      ensure(must_wait(x.spec()), "C3: it waits for something");
      continue;
    }
    auto nodes = x.nodes();
    for (auto node : nodes)
      ensure(members_.in_view(node), "C1: all nodes are in the view");
    ensure(x.spec().choice == node_choice::listed || nodes == view,
           "C1: every_node is the view");
  }
}

} // namespace pawl
