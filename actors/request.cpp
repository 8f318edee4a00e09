#include "pawl/actors/request.hpp"

#include "pawl/actors/misuse.hpp"
#include "pawl/actors/scope_state.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace pawl::detail {

namespace {

void check_modes(const ask& what) {
  auto bad = [](const term_lock& x) { return x.mode == lock_mode::none; };
  if (what.several ? std::any_of(what.many.begin(), what.many.end(), bad)
                   : bad(what.one))
    throw misuse("a lock is asked for in mode shared or exclusive");
}

/// How a request has ended before it was asked; `pending` if it has not.
outcome admissible(ask& what) {
  auto& scope = what.who->scope();
  auto gate = scope.gate();
  if (is_shut(gate))
    return gate;
  if (what.who->closed())
    return outcome::session_ended;
  if (what.cancel.cancelled())
    return outcome::cancelled;
  auto large = [](const term_lock& x) { return !x.what.fits(); };
  if (what.several ? std::any_of(what.many.begin(), what.many.end(), large)
                   : large(what.one))
    return outcome::term_too_large;
  if (what.where != ask::place::listed)
    return gate == outcome::pending || !what.no_wait ? outcome::pending
                                                     : outcome::busy;
  for (const auto& name : what.nodes)
    if (!scope.slot_of(name))
      return outcome::node_down;
  // A list that names just this node asks nobody else.
  if (what.nodes.size() == 1 && scope.slot_of(what.nodes[0]) == scope.self())
    what.where = ask::place::here;
  return gate == outcome::pending || !what.no_wait ? outcome::pending
                                                   : outcome::busy;
}

bool empty(const ask& what) noexcept {
  return (what.several && what.many.empty())
         || (what.where == ask::place::listed && what.nodes.empty());
}

std::int64_t sampled_now(scope_state& scope) {
  return scope.statistics.sample() ? steady_now_ns() : 0;
}

/// One term on this node.
outcome lock_here(ask& what, const term_lock& x, lock& out,
                  session_ledger::share whose = session_ledger::share::fresh) {
  auto& scope = what.who->scope();
  hold_record* r = nullptr;
  auto verdict = scope.locks.try_lock(*what.who, x.what, x.mode, r, whose);
  if (verdict == outcome::pending && what.no_wait) {
    auto overtook = false;
    verdict
      = scope.locks.try_lock_covered(*what.who, x.what, x.mode, r, &overtook);
    // Those that it went past wait for this session from now on.
    if (verdict == outcome::granted && overtook)
      scope.left_waiting(what.who->id());
  }
  if (verdict == outcome::granted) {
    scope.statistics.count_fast_grant();
    out = lock{r, sampled_now(scope)};
    // Those that it asks on other nodes may believe that it holds nothing.
    if (what.who->waits() > 0) [[unlikely]]
      scope.holds_while_it_waits(*what.who);
  }
  return verdict;
}

void count(const ask& what, outcome verdict) {
  if (verdict != outcome::granted && verdict != outcome::pending)
    what.who->scope().statistics.count_refused(verdict);
}

} // namespace

outcome grant_now(ask& what, lock& out) {
  // What costs next to nothing must not be asked six times whether it may. A
  // session that has ended is found by its ledger.
  if (what.where == ask::place::here && !what.no_wait && !what.several
      && what.one.mode != lock_mode::none && what.one.what.fits()
      && !what.cancel.state()
      && what.who->scope().gate() == outcome::pending) [[likely]] {
    auto verdict
      = lock_here(what, what.one, out, session_ledger::share::of_caller);
    if (verdict == outcome::granted) [[likely]]
      what.who.give_away(); // the builder's share is the record's now
    else
      count(what, verdict);
    return verdict;
  }
  check_modes(what);
  auto verdict = admissible(what);
  if (verdict == outcome::pending && empty(what))
    return outcome::granted;
  if (verdict == outcome::pending && what.where == ask::place::here
      && what.who->scope().gate() == outcome::pending)
    verdict = lock_here(what, what.one, out);
  count(what, verdict);
  return verdict;
}

outcome grant_now(ask& what, lock_set& out) {
  check_modes(what);
  auto verdict = admissible(what);
  if (verdict == outcome::pending && empty(what))
    return outcome::granted;
  auto& scope = what.who->scope();
  if (verdict == outcome::pending && what.where == ask::place::here
      && scope.gate() == outcome::pending) {
    for (const auto& x : what.many)
      scope.locks.table().prefetch(x.what);
    std::vector<lock> held;
    held.reserve(what.many.size());
    for (const auto& x : what.many) {
      held.emplace_back();
      verdict = lock_here(what, x, held.back());
      if (verdict != outcome::granted)
        break;
    }
    // What was taken goes back; a request that waits takes all of them in order
    // by the node's own worker.
    if (verdict == outcome::granted)
      out = lock_set{std::move(held)};
    else
      for (auto i = held.rbegin(); i != held.rend(); ++i)
        i->give_back();
  }
  count(what, verdict);
  return verdict;
}

failure refusal(const ask& what, outcome why) {
  auto& scope = what.who->scope();
  if (why == outcome::node_down)
    for (const auto& name : what.nodes)
      if (!scope.slot_of(name)) {
        auto result = make_failure(why, name);
        result.message = fmt::format(
          "no node of this cluster is configured under the name {}", name);
        return result;
      }
  auto result = make_failure(why, scope.name_of(scope.self()));
  if (why == outcome::deadlock)
    result.message = "another session of the same actor or thread holds the "
                     "term, and it would block here for itself: use one "
                     "session (attach)";
  return result;
}

bool waits_for_itself(const ask& what) {
  if (what.where == ask::place::listed && what.nodes.empty())
    return false;
  auto& scope = what.who->scope();
  auto* tag = what.who->party().tag();
  auto found = false;
  auto look = [&](const term_lock& x) {
    auto part = false;
    scope.locks.table().for_each_holder(x.what, [&](const hold_record& r) {
      auto mode = r.mode.load(std::memory_order_relaxed);
      if (r.session == &*what.who || r.session->party() != tag
          || (mode != lock_mode::exclusive && x.mode != lock_mode::exclusive))
        return;
      found = found || r.what == hold_record::kind::direct;
      part = part || r.what == hold_record::kind::part;
    });
    // A part may be on its way out already: then its whole is not listed.
    found = found || (part && scope.wide_hold_of_party(*what.who, x.what));
  };
  if (what.several)
    std::for_each(what.many.begin(), what.many.end(), look);
  else
    look(what.one);
  return found;
}

void check_then(const ask& what) {
  auto& actor = what.who->party();
  if (actor.what() != party::kind::event_based)
    throw misuse("then() is for sessions of event-based actors: use wait() in "
                 "blocking actors and threads");
  if (!compat::runs_here(actor.self()))
    throw misuse("then() is to be called by the session's actor itself, not "
                 "from another actor or thread");
}

void check_wait(const ask& what) {
  auto& actor = what.who->party();
  if (actor.what() == party::kind::event_based)
    throw misuse("wait() would block an event-based actor: use then()");
  if (actor.what() == party::kind::blocking && !compat::runs_here(actor.self()))
    throw misuse("wait() is to be called by the session's actor itself");
}

} // namespace pawl::detail
