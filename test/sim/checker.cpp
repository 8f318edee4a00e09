// What the checker of the simulator holds against the machines.

#include "open_scope.hpp"

#include <algorithm>
#include <utility>

namespace pawl::sim {

void scope_cluster::check(bool ok, const std::string& what) const {
  if (!ok)
    throw violation{what};
}

// -- what searches ask --------------------------------------------------------

bool scope_cluster::is_pending(const request_id& id,
                               attempt_number attempt) const {
  auto i = asks_.find(id.serial);
  if (i == asks_.end() || i->second.at != stage::pending)
    return false;
  const auto& a = i->second;
  if (a.waits != nullptr)
    return a.waits->state() == outcome::pending;
  auto* s = scope_of(a);
  const auto* x = s != nullptr ? s->home.find(id) : nullptr;
  return x != nullptr && x->pending() && x->attempt() == attempt;
}

standing scope_cluster::how_in_the_way(open_scope& s, const walk_claim& x) {
  auto here = to_index(x.node) == s.on.index;
  auto i = asks_.find(x.by.request.serial);
  if (i == asks_.end() || i->second.record != nullptr
      || i->second.waits != nullptr) {
    // A lock for this node alone, or a request for one.
    auto asked
      = x.by.how == blocker::kind::queued && is_pending(x.by.request, 0);
    return asked
               || (here
                   && s.locks.table().holds_against(x.what, x.by.session,
                                                    x.mode))
             ? standing::whole
             : standing::none;
  }
  const auto* request = s.home.find(x.by.request);
  if (request == nullptr || request->attempt() != x.by.attempt
      || i->second.at == stage::done)
    return standing::none;
  auto how = request->in_the_way(x.what, x.mode, x.by.kept);
  // A request of a session that has the term already, in whatever mode, is
  // granted because of that or goes ahead of the queue: to give it back and
  // ask again would help nobody.
  auto whole
    = s.home.holds_against(x.what, x.by.session, lock_mode::exclusive, x.node)
      || (here
          && s.locks.table().holds_against(x.what, x.by.session,
                                           lock_mode::exclusive));
  return how == standing::partial && whole ? standing::whole : how;
}

/// Of what it holds or has held a part of. Wholes are not in the ledger here.
std::uint64_t scope_cluster::age_of(open_scope& s, const session_id& who) {
  auto i = s.sessions.find(who.serial);
  if (i == s.sessions.end())
    return session_age::holds_nothing;
  auto result = i->second->age().lamport;
  for (auto* a : live_asks())
    if (a->who == who.serial)
      if (const auto* x = s.home.find(a->spec.id))
        result = std::min(result, x->age().lamport);
  return result;
}

bool scope_cluster::sentence(open_scope& s, const walk_verdict_message& x,
                             scope_effects& out) {
  quiet_ = false;
  observe_waits();
  check(x.session.home == slot(s.on.index), "a verdict goes to its home");
  auto i = asks_.find(x.request.serial);
  if (i == asks_.end() || !is_pending(x.request, x.attempt)) {
    tally("late verdicts");
    return false;
  }
  auto& a = i->second;
  say("{}: verdict {} on {}.{} of {}", s.on.index, to_string(x.why),
      to_string(x.request), x.attempt, a.who);
  if (options_.deadlocks && x.why != outcome::probe_limit)
    waits_.check_verdict(x, [this](const session_id& who) {
      return several_.count(who.serial) == 0;
    });
  if (x.why == outcome::pending) {
    tally("asked again");
    s.home.give_back_and_ask_again(x.request, out);
    return true;
  }
  tally("verdicts: " + std::string{to_string(x.why)});
  check(options_.terms_asked != workload::sorted || x.why != outcome::deadlock,
        "terms in order close no cycle");
  check(!options_.deadlocks || options_.probe_limit < 100
          || x.why != outcome::probe_limit,
        "no search is that large");
  cancel(a, x.why);
  return true;
}

// -- who waits for whom -------------------------------------------------------

void scope_cluster::observe_waits() {
  if (!options_.deadlocks)
    return;
  std::set<wait_edge> now;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (auto* s = scope_at(i); s != nullptr && s->locks.table().waiters() > 0)
      for (std::size_t t = 0; t < options_.terms; ++t)
        observe_row(*s, term{static_cast<int>(t)}, now);
  waits_.note(now, [this](const session_id& who) {
    auto* s = scope_at(to_index(who.home));
    return s != nullptr ? age_of(*s, who) : session_age::holds_nothing;
  });
}

/// Of two upgrades for one node that meet one is judged in the step in which the
/// second one asks: they never wait at the same time.
void scope_cluster::observe_outranked(open_scope& s, const waiter& w) {
  if (!options_.deadlocks)
    return;
  observe_waits();
  auto in_the_way = false;
  s.locks.table().for_each_holder(w.what(), [&](const hold_record& r) {
    auto who = r.what == hold_record::kind::part
                 ? r.owner->session
                 : session_id{slot(s.on.index), r.serial};
    in_the_way |= who == w.rival;
  });
  if (in_the_way)
    waits_.also({w.session().id(), w.what(), slot(s.on.index), w.rival});
}

/// When its client hears of it.
void scope_cluster::check_outranked(const open_scope& s, const waiter& w) {
  if (!options_.deadlocks || w.rival == session_id{})
    return;
  walk_verdict_message x{
    w.session().id(), w.request, 0, outcome::deadlock, {}};
  for (const auto& who : {w.session().id(), w.rival})
    x.cycle.push_back({who, w.what(), w.mode(), slot(s.on.index)});
  waits_.check_verdict(x, [](const session_id&) { return false; });
}

void scope_cluster::observe_row(open_scope& s, const term& t,
                                std::set<wait_edge>& out) {
  auto view = s.locks.table().view(t);
  if (view.waiters == 0)
    return;
  std::vector<std::pair<session_id, lock_mode>> ahead;
  s.locks.table().for_each_holder(t, [&](const hold_record& r) {
    if (r.what != hold_record::kind::part) {
      ahead.push_back({{slot(s.on.index), r.serial}, r.mode});
      return;
    }
    // What its home has let go of is in nobody's way for long.
    auto i = asks_.find(r.owner->request.serial);
    if (i == asks_.end() || i->second.at == stage::done)
      return;
    auto* its = scope_of(i->second);
    const auto* x = its != nullptr ? its->home.find(r.owner->request) : nullptr;
    if (x != nullptr && x->attempt() == r.owner->attempt)
      ahead.push_back({r.owner->session, r.mode});
  });
  auto one = std::all_of(ahead.begin(), ahead.end(), [&](const auto& h) {
    return h.first == ahead.front().first;
  });
  for (auto& h : ahead)
    if (view.mode == lock_mode::exclusive && one)
      h.second = lock_mode::exclusive;
  s.locks.table().for_each_waiter(t, [&](waiter& w) {
    if (w.state() != outcome::pending || !is_pending(w.request, w.attempt))
      return;
    auto id = w.session().id();
    for (const auto& [who, mode] : ahead)
      if (who != id
          && (mode == lock_mode::exclusive || w.mode() == lock_mode::exclusive))
        out.insert({id, t, slot(s.on.index), who});
    ahead.push_back({id, w.mode()});
  });
}

void scope_cluster::watch_rows(std::size_t node) {
  auto* s = scope_at(node);
  if (s == nullptr)
    return;
  for (std::size_t t = 0; t < options_.terms; ++t)
    rows_.look(node, s->locks.table(), term{static_cast<int>(t)});
}

// -- grants -------------------------------------------------------------------

std::vector<node_slot> scope_cluster::nodes_of(const ask& a) const {
  if (a.record != nullptr)
    return {slot(a.node)};
  auto* s = scope_of(a);
  const auto* x = s != nullptr ? s->home.find(a.spec.id) : nullptr;
  return x != nullptr ? x->nodes() : std::vector<node_slot>{};
}

/// Whether the row says what the client believes. Not so if the node is dead or
/// has dropped what came over a link, and the home does not know yet.
bool scope_cluster::has_part(const ask& a, const term_lock& t,
                             node_slot node) const {
  auto* s = scope_at(to_index(node));
  auto found = false;
  if (s != nullptr)
    s->locks.table().for_each_holder(t.what, [&](const hold_record& r) {
      auto same = a.record != nullptr ? &r == a.record
                                      : r.what == hold_record::kind::part
                                          && r.owner->request == a.spec.id;
      found |= same && covers(r.mode, t.mode);
    });
  return found;
}

/// Whether a node may have closed its scope, and opened it again, and the home
/// of what was held there has not heard of that.
bool scope_cluster::outlived(const ask& a, node_slot node) const {
  auto* s = scope_at(to_index(node));
  const auto* home = scope_of(a);
  return options_.reopens && s != nullptr && home != nullptr
         && to_index(node) != a.node && home->links[to_index(node)] != 0
         && !s->home.members().in_view(slot(a.node));
}

/// Whole means: on each of its nodes there is a record of each of its terms.
void scope_cluster::check_whole(const ask& a,
                                const std::vector<node_slot>& nodes) const {
  for (auto node : nodes) {
    auto away = to_index(node) != a.node;
    auto* s = scope_at(to_index(node));
    if (s == nullptr || (away && s->links[a.node] == 0)
        || (options_.splits() && away))
      continue; // has died meanwhile, or was cut off
    if (outlived(a, node))
      continue;
    for (const auto& t : a.held)
      check(has_part(a, t, node),
            fmt::format("{} is whole without a part on {}",
                        to_string(a.spec.id), to_index(node)));
  }
}

void scope_cluster::check_grant(const ask& a,
                                const std::vector<node_slot>& nodes) {
  if (!options_.splits())
    check_alone(a, nodes);
  for (std::size_t i = 0; i < a.held.size(); ++i)
    if (a.held[i].mode == lock_mode::exclusive)
      check_token(a, a.held[i].what, a.tokens[i], nodes);
}

void scope_cluster::check_alone(const ask& a,
                                const std::vector<node_slot>& nodes) const {
  for (auto serial : live_) {
    const auto& b = asks_.at(serial);
    if (b.at == stage::held && b.who != a.who)
      for (auto node : nodes_of(b))
        if (std::find(nodes.begin(), nodes.end(), node) != nodes.end())
          check_pair(a, b, node);
  }
}

void scope_cluster::check_pair(const ask& a, const ask& b,
                               node_slot node) const {
  auto forgotten = [&](const ask& z, const term_lock& t) {
    return outlived(z, node) && !has_part(z, t, node);
  };
  for (const auto& x : a.held)
    for (const auto& y : b.held)
      if (x.what == y.what && x.mode != lock_mode::none
          && y.mode != lock_mode::none && !forgotten(a, x) && !forgotten(b, y))
        check(x.mode == lock_mode::shared && y.mode == lock_mode::shared,
              fmt::format("{} and {} both hold {} on {}", to_string(a.spec.id),
                          to_string(b.spec.id), to_string(x.what),
                          to_index(node)));
}

/// Each token is one session's. On each node they grow from grant to grant;
/// what only gives a session another handle of a hold that it has is no grant.
/// (That may have an older token than the node has seen: after a cut, and where
/// the node was told of the hold when it joined.)
void scope_cluster::check_token(const ask& a, const term& what,
                                fencing_token token,
                                const std::vector<node_slot>& nodes) {
  auto [i, fresh] = issued_.try_emplace({what, token}, a.who);
  check(fresh || i->second == a.who,
        fmt::format("token {} of {} is issued twice, to {}", token,
                    to_string(what), to_string(a.spec.id)));
  auto again = !fresh && is_another_handle(a, what);
  if (again && options_.faults())
    return;
  for (auto node : nodes) {
    if (options_.splits() && !has_part(a, {what, lock_mode::exclusive}, node))
      continue;
    auto& last = last_[{what, node}];
    // Of two handles of a session the one may be raised before the other is
    // heard of.
    auto known = issued_.find({what, last});
    if (known != issued_.end() && known->second == a.who
        && is_another_handle(a, what))
      continue;
    check(token > last || (again && token == last),
          fmt::format("token {} of {} on {} is not above {}, for {}", token,
                      to_string(what), to_index(node), last,
                      to_string(a.spec.id)));
    last = token;
  }
}

/// Whether its session may have held the term already, maybe by a part of
/// another request; what its client has given up takes a moment to be gone.
bool scope_cluster::is_another_handle(const ask& a, const term& what) const {
  return std::any_of(asks_.begin(), asks_.end(), [&](const auto& x) {
    const auto& b = x.second;
    return b.who == a.who && &b != &a
           && (b.at != stage::done || b.over + give_up_delay >= a.asked)
           && std::any_of(b.spec.terms.begin(), b.spec.terms.end(),
                          [&](const term_lock& y) { return y.what == what; });
  });
}

// -- death --------------------------------------------------------------------

/// What a dead node's sessions held and waited for is gone from the others
/// within the time in which they find out, and a little.
void scope_cluster::check_forgotten_later(std::size_t dead) {
  later(notice + 100,
        [this, dead, last = serials_] { check_forgotten(dead, last); });
}

void scope_cluster::check_forgotten(std::size_t dead,
                                    std::uint64_t last_serial) const {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto* s = scope_at(i);
    if (s == nullptr || i == dead || options_.freezes || options_.slow_nodes)
      continue;
    auto look = [&](const session_id& who) {
      check(who.home != slot(dead) || who.serial > last_serial,
            fmt::format("{} is still known on {} after its node's death",
                        to_string(who), i));
    };
    for (std::size_t t = 0; t < options_.terms; ++t) {
      s->locks.table().for_each_holder(
        term{static_cast<int>(t)},
        [&](const hold_record& r) { look(r.session->id()); });
      s->locks.table().for_each_waiter(
        term{static_cast<int>(t)}, [&](waiter& w) { look(w.session().id()); });
    }
  }
}

} // namespace pawl::sim
