#include "pawl/actors/scope_actor.hpp"

#include "pawl/actors/log.hpp"
#include "pawl/actors/pending.hpp"
#include "pawl/actors/type_ids.hpp"
#include "pawl/core/ensure.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pawl {

namespace {

using namespace std::chrono_literals;

/// Buckets merged per turn of housekeeping.
constexpr std::size_t trim_steps = 4096;

/// Changes whenever two nodes could not work together in a scope.
constexpr std::uint64_t scope_fingerprint = 2;

coordinator_options options_for(const scope_state& scope) {
  coordinator_options result;
  result.scope = scope.name();
  result.nodes = scope.place().names;
  result.self = scope.self();
  result.node_timeout = scope.options().node_timeout;
  result.fingerprint = scope_fingerprint;
  return result;
}

worker_options own_worker(const scope_state& scope) {
  worker_options result;
  result.self = scope.self();
  result.peer = scope.self();
  result.epoch = 0;
  result.node_timeout = scope.options().node_timeout;
  return result;
}

walk_options walks_of(const scope_state& scope) {
  walk_options result;
  result.self = scope.self();
  result.nodes = scope.place().names.size();
  result.limit = scope.options().probe_limit;
  return result;
}

} // namespace

scope_actor::scope_actor(caf::actor_config& cfg, scope_ptr scope,
                         std::shared_ptr<std::promise<void>> ended)
  : caf::event_based_actor(cfg),
    scope_(std::move(scope)),
    ended_(std::move(ended)),
    home_(options_for(*scope_), scope_->locks.table(), *scope_->clock),
    own_(own_worker(*scope_), scope_->locks, *scope_, *scope_->clock, *this),
    search_(walks_of(*scope_), *this),
    executor_(scope_->self(), home_, own_, *this),
    links_(scope_->place().names.size()),
    housekeeping_at_(std::chrono::steady_clock::now() + 1000ms) {
  // nop
}

caf::behavior scope_actor::make_behavior() {
  open();
  return {
    [this](drain_atom) { drain(); },
    [this](wake_atom) { wake(); },
  };
}

void scope_actor::on_exit() {
  if (scope_) {
    scope_->close_inbox();
    scope_.reset();
  }
  if (ended_) {
    ended_->set_value();
    ended_.reset();
  }
}

// -- events -------------------------------------------------------------------

void scope_actor::open() {
  scope_effects out;
  home_.open_scope(now(), out);
  run(out);
  if (auto* port = scope_->port())
    port->announce_links(scope_->name());
  set_timer();
}

void scope_actor::drain() {
  for (auto& x : scope_->take_posts())
    std::visit([this](auto& y) { handle(y); }, x);
  if (stopping_) {
    quit();
    return;
  }
  set_timer();
}

void scope_actor::wake() {
  armed_ = std::chrono::steady_clock::time_point::max();
  scope_effects out;
  home_.tick(now(), out);
  run(out);
  end_patience();
  keep_house();
  set_timer();
}

void scope_actor::keep_house() {
  auto now = std::chrono::steady_clock::now();
  if (now < housekeeping_at_)
    return;
  // The table shrinks by itself while rows go; this is for the rest.
  auto merged = scope_->locks.table().trim(trim_steps);
  housekeeping_at_ = now + (merged == trim_steps ? 10ms : 1000ms);
}

void scope_actor::handle(post::open& x) {
  auto& p = *x.what;
  if (p.state() != outcome::pending || stopping_) {
    // It ended before it was heard of here.
    p.refuse(stopping_ ? scope_->gate() : outcome::cancelled, {});
    p.session().leave_wait(p);
    p.unref();
    return;
  }
  auto spec = p.spec();
  // Who comes afterwards finds this one on the board, and tells. What has been
  // granted meanwhile has left the board, and made the session older: in this
  // order it is seen in one of the two.
  spec.elsewhere = scope_->board.waits_of(spec.session).size() > 1;
  spec.age = p.client().age();
  spec.patient
    = !spec.elsewhere && spec.age.lamport == session_age::holds_nothing;
  requests_.emplace(spec.id, entry{&p, 0});
  auto& session = sessions_[spec.session];
  session.state = &p.client();
  ++session.requests;
  scope_->wide_requests.store(requests_.size(), std::memory_order_relaxed);
  scope_effects out;
  home_.open(std::move(spec), out);
  run(out);
}

void scope_actor::handle(post::cancel& x) {
  scope_effects out;
  home_.cancel(x.id, x.why, out);
  run(out);
  // Who cancels has been told already; `ended` comes for it all the same.
}

void scope_actor::handle(post::release& x) {
  auto id = x.what->spec().id;
  scope_effects out;
  home_.release(id, std::span{&x.which, 1}, out);
  run(out);
  if (auto i = requests_.find(id); i != requests_.end())
    if (--i->second.holds == 0)
      forget(id);
  x.what->unref();
}

void scope_actor::handle(post::downgraded& x) {
  scope_effects out;
  home_.downgraded(x.who, x.what, out);
  run(out);
}

void scope_actor::handle(post::settled& x) {
  scope_effects out;
  own_.settled(*x.what, out);
  run(out);
}

void scope_actor::handle(post::from_peer& x) {
  if (links_[to_index(x.from)].epoch != x.epoch)
    return;
  scope_effects out;
  home_.receive(x.from, x.what, out);
  search_.receive(x.from, x.what, out);
  if (std::holds_alternative<scope_closed_message>(x.what))
    search_.peer_gone(x.from, out);
  run(out);
  if (std::holds_alternative<hand_over_ack_message>(x.what))
    links_[to_index(x.from)].acknowledged = true;
  note_exchange(x.from);
}

void scope_actor::handle(post::link_up& x) {
  links_[to_index(x.peer)] = {x.epoch, x.at, false};
  scope_effects out;
  home_.link_up(x.peer, x.epoch, out);
  search_.peer_back(x.peer, out);
  run(out);
}

void scope_actor::handle(post::peer_is_up& x) {
  home_.peer_is_up(x.peer);
}

void scope_actor::handle(post::link_down& x) {
  scope_effects out;
  home_.link_down(x.peer, x.epoch, out);
  run(out);
  if (links_[to_index(x.peer)].epoch != x.epoch)
    return;
  links_[to_index(x.peer)] = {};
  search_.peer_gone(x.peer, out);
  run(out);
}

void scope_actor::handle(post::rejected& x) {
  scope_effects out;
  home_.peer_rejected(x.peer, out);
  run(out);
}

void scope_actor::handle(post::effects& x) {
  run(x.what);
  // A worker may have installed what its peer has handed over.
  for (std::size_t i = 0; i < links_.size(); ++i)
    note_exchange(static_cast<node_slot>(i));
}

void scope_actor::handle(post::walk& x) {
  start_walk(x.what, true);
}

void scope_actor::handle(post::elsewhere& x) {
  scope_effects out;
  home_.waits_elsewhere(x.id, out);
  run(out);
}

void scope_actor::handle(post::close_party& x) {
  x.who->close_sessions();
}

void scope_actor::handle(post::arm&) {
  // set_timer follows
}

void scope_actor::handle(post::stop&) {
  if (stopping_)
    return;
  stopping_ = true;
  scope_->close_parties();
  scope_effects out;
  home_.close_scope(out);
  own_.close_scope(out);
  run(out);
  // Ending requests and releasing holds has put more into the inbox.
  for (auto rest = scope_->take_posts(); !rest.empty();
       rest = scope_->take_posts())
    for (auto& x : rest)
      std::visit([this](auto& y) { handle(y); }, x);
  if (auto* port = scope_->port())
    port->scope_closed(scope_->name());
}

// -- scope_port ---------------------------------------------------------------

void scope_actor::to_peer(node_slot to, message what) {
  auto* port = scope_->port();
  auto epoch = links_[to_index(to)].epoch;
  if (port != nullptr && epoch != 0)
    port->send(to, epoch, scope_->name(), std::move(what));
}

bool scope_actor::whole(const request_id& id, std::vector<fencing_token> tokens,
                        std::vector<node_slot> nodes) {
  auto i = requests_.find(id);
  ensure(i != requests_.end(), "a granted request is known to its home");
  auto& x = i->second;
  // Counted first: the client may release at once, by a message that comes
  // behind this one.
  x.holds = x.what->spec().terms.size();
  if (x.what->whole(tokens, std::move(nodes)))
    return true;
  forget(id);
  return false;
}

void scope_actor::aged(const request_id& id, std::uint64_t lamport) {
  if (auto* p = find(id))
    p->aged(lamport);
}

void scope_actor::ended(const request_id& id, outcome why, node_slot node) {
  if (auto* p = find(id)) {
    p->refuse(why, name_or_nothing(node));
    forget(id);
  }
}

void scope_actor::hold_lost(const request_id& id, std::uint16_t which, loss why,
                            node_slot node) {
  auto i = requests_.find(id);
  if (i == requests_.end())
    return;
  auto* p = i->second.what;
  p->ref();
  log_line(log_level::warning,
           fmt::format("scope {}: a hold on {} is lost: {} ({})",
                       scope_->name(), to_string(p->spec().terms[which].what),
                       why == loss::outranked ? "a larger token was met"
                                              : "its node is gone",
                       scope_->name_of(node)));
  if (p->lost(which, name_or_nothing(node)) && --i->second.holds == 0)
    forget(id);
  p->unref();
}

void scope_actor::downgraded(const request_id& id, std::uint16_t which) {
  if (auto* p = find(id))
    p->downgraded(which);
}

void scope_actor::node_left(const request_id& id, node_slot node) {
  auto* p = find(id);
  const auto* held = home_.find(id);
  if (p == nullptr || held == nullptr)
    return;
  const auto& terms = held->spec().terms;
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (terms[i].mode != lock_mode::none) // not given up
      p->node_left(static_cast<std::uint16_t>(i), node);
}

void scope_actor::view_changed(std::vector<node_slot> nodes) {
  scope_->view(std::move(nodes));
}

void scope_actor::ready() {
  scope_->ready();
  if (auto* port = scope_->port())
    port->scope_ready(scope_->name());
}

void scope_actor::mismatch(node_slot peer) {
  log_line(log_level::error,
           fmt::format("scope {}: node {} has opened it with other settings and "
                       "is left out",
                       scope_->name(), scope_->name_of(peer)));
}

void scope_actor::walk(const effect::walk& x) {
  if (x.patient && scope_->options().deadlock_grace.count() > 0)
    patient_.push_back({std::chrono::steady_clock::now()
                          + scope_->options().deadlock_grace,
                        x});
  else
    starting_.push_back(x);
}

// -- walk_port ----------------------------------------------------------------

/// Calls `f` with the waiter on this node, if it is there.
template <class F>
bool scope_actor::with_waiter(const wait_name& what, F f) {
  if (auto part = scope_->board.find(what.request, what.attempt))
    return f(static_cast<const waiter&>(*part));
  if (what.session.home != scope_->self())
    return false;
  auto x = scope_->board.find(what.session, what.request);
  return x && !x->wide() && f(static_cast<const waiter&>(*x));
}

void scope_actor::waits_of(const session_id& who, std::vector<wait_name>& out) {
  home_.waits_of(who, out);
  // Whose client has ended it is on its way out.
  std::erase_if(out, [this](const wait_name& x) {
    auto* p = find(x.request);
    return p == nullptr || p->state() != outcome::pending;
  });
  for (const auto& x : scope_->board.waits_of(who))
    if (!x->wide() && x->state() == outcome::pending)
      out.push_back({who, x->request, 0, scope_->self()});
}

bool scope_actor::blockers_of(const wait_question& what, std::size_t limit,
                              blocked_wait& out) {
  return with_waiter(what.wait, [&](const waiter& w) {
    out.wait = what.wait;
    out.what = w.what();
    out.mode = w.mode();
    return scope_->locks.table().blockers(w, what.except, limit, out.by);
  });
}

bool scope_actor::reachable(node_slot peer) {
  return links_[to_index(peer)].epoch != 0;
}

std::uint64_t scope_actor::own_ends() {
  return scope_->locks.own_ends();
}

bool scope_actor::waits_here(const wait_name& what) {
  return with_waiter(what, [&](const waiter& w) {
    std::vector<blocker> nobody;
    return scope_->locks.table().blockers(w, {}, 0, nobody);
  });
}

walk_standing scope_actor::standing_of(const walk_claim& x) {
  auto who = scope_->board.find(x.wait.session, x.wait.request);
  if (!who) // what it holds is in the other's way all the same
    return {false, how_in_the_way(x), {}};
  auto age = who->client().age();
  age.lamport = std::min(age.lamport, home_.age_of(x.wait.session));
  return {still_pending(x.wait), how_in_the_way(x), age};
}

bool scope_actor::still_pending(const wait_name& what) {
  auto x = scope_->board.find(what.session, what.request);
  if (!x || x->state() != outcome::pending)
    return false;
  if (!x->wide())
    return true;
  const auto* request = home_.find(what.request);
  // On that node it may have been granted because of another request of its
  // session, past whoever was in its way.
  return request != nullptr && request->pending()
         && request->attempt() == what.attempt
         && (what.node == no_node || request->asks(what.node));
}

standing scope_actor::how_in_the_way(const walk_claim& x) {
  auto here = x.node == scope_->self()
              && scope_->locks.table().holds_against(x.what, x.by.session,
                                                     x.mode);
  auto* p = find(x.by.request);
  const auto* request = home_.find(x.by.request);
  if (p == nullptr || request == nullptr) {
    // A lock for this node alone, or a request for one.
    auto asked = x.by.how == blocker::kind::queued
                 && still_pending({x.by.session, x.by.request, 0, x.node});
    return asked || here ? standing::whole : standing::none;
  }
  if (request->attempt() != x.by.attempt
      || (p->state() != outcome::pending && p->state() != outcome::granted))
    return standing::none;
  auto how = request->in_the_way(x.what, x.mode, x.by.kept);
  auto which = request->find_term(x.what);
  if (how == standing::whole && p->state() == outcome::granted
      && !p->has(*which))
    return standing::none; // its release is on its way
  if (how != standing::partial)
    return how;
  // A request of a session that has the term already, in whatever mode, is
  // granted because of that or goes ahead of the queue: to give it back and ask
  // again would help nobody.
  auto has_it
    = home_.holds_against(x.what, x.by.session, lock_mode::exclusive, x.node)
      || (x.node == scope_->self()
          && scope_->locks.table().holds_against(x.what, x.by.session,
                                                 lock_mode::exclusive));
  return has_it ? standing::whole : how;
}

bool scope_actor::sentence(const walk_verdict_message& x, scope_effects& out) {
  if (!still_pending({x.session, x.request, x.attempt, no_node}))
    return false;
  if (x.why == outcome::pending) {
    home_.give_back_and_ask_again(x.request, out);
    return true;
  }
  std::vector<cycle_edge> cycle;
  for (const auto& step : x.cycle)
    cycle.push_back({step.session, to_string(step.what),
                     scope_->name_of(step.node), step.mode});
  auto who = scope_->board.find(x.session, x.request);
  return who && who->condemn(x.why, std::move(cycle));
}

void scope_actor::walked(std::size_t visited) {
  scope_->statistics.count_walk(visited);
}

void scope_actor::start_walk(const wait_name& what, bool all_waits) {
  if (stopping_)
    return;
  scope_effects out;
  search_.start(what, all_waits, out);
  run(out);
}

void scope_actor::end_patience() {
  auto now = std::chrono::steady_clock::now();
  while (!patient_.empty() && patient_.front().due <= now) {
    auto x = std::move(patient_.front().what);
    patient_.pop_front();
    // If it waits no longer its session may, elsewhere; the walk finds out.
    start_walk(x.what, x.all_waits);
  }
}

// -- session_resolver ---------------------------------------------------------

session_ledger* scope_actor::find(const session_id& who) {
  auto i = sessions_.find(who);
  if (i == sessions_.end() || !i->second.state->try_ref())
    return nullptr;
  return i->second.state;
}

// -- helpers ------------------------------------------------------------------

std::chrono::nanoseconds scope_actor::now() const {
  return std::chrono::nanoseconds{steady_now_ns()};
}

void scope_actor::run(scope_effects& out) {
  executor_.run(std::exchange(out, {}));
  // Not within the executor: their effects come behind all that is listed.
  while (!starting_.empty()) {
    for (const auto& x : std::exchange(starting_, {}))
      if (!stopping_)
        search_.start(x.what, x.all_waits, out);
    executor_.run(std::exchange(out, {}));
  }
}

void scope_actor::set_timer() {
  auto next = scope_->end_due(std::chrono::steady_clock::now());
  if (auto joining = home_.next_deadline()) {
    auto at = std::chrono::steady_clock::time_point{*joining};
    next = next ? std::min(*next, at) : at;
  }
  if (!patient_.empty())
    next = next ? std::min(*next, patient_.front().due)
                : patient_.front().due;
  auto at = next ? std::min(*next, housekeeping_at_) : housekeeping_at_;
  if (at >= armed_)
    return;
  armed_ = at;
  auto left = at - std::chrono::steady_clock::now();
  // Rounded up: a timer that is early would be set again at once.
  compat::delayed_send(
    this, std::max(std::chrono::ceil<std::chrono::microseconds>(left), 1us),
    wake_atom_v);
}

/// For still_held(): the holds of both sides have met, on both sides. Here, so
/// that this one knows what it has lost; there, so that the peer does.
void scope_actor::note_exchange(node_slot peer) {
  const auto& x = links_[to_index(peer)];
  if (x.epoch == 0 || !home_.members().resolved(peer))
    return;
  auto absent
    = home_.members().state_of(peer) == membership::peer_state::absent;
  auto& known = scope_->exchanged[to_index(peer)];
  if ((absent || x.acknowledged)
      && known.load(std::memory_order_relaxed) != x.since)
    known.store(x.since, std::memory_order_relaxed);
}

pending* scope_actor::find(const request_id& id) {
  auto i = requests_.find(id);
  return i != requests_.end() ? i->second.what : nullptr;
}

void scope_actor::forget(const request_id& id) {
  auto i = requests_.find(id);
  auto* p = i->second.what;
  requests_.erase(i);
  auto s = sessions_.find(p->spec().session);
  if (--s->second.requests == 0)
    sessions_.erase(s);
  scope_->wide_requests.store(requests_.size(), std::memory_order_relaxed);
  p->unref();
}

std::string scope_actor::name_or_nothing(node_slot x) const {
  return x == no_node ? std::string{} : scope_->name_of(x);
}

} // namespace pawl
