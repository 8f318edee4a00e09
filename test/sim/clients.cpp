// What clients do, and what they are told.

#include "open_scope.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pawl::sim {

/// A request for one node alone, made in the client's thread.
class scope_cluster::direct_waiter final : public waiter {
public:
  direct_waiter(session_ledger& who, const term_lock& what, open_scope& s,
                std::uint64_t serial)
    : waiter(who, what.what, what.mode, hold_record::kind::direct), scope_(s),
      serial_(serial) {
    request = {who.id().home, serial};
  }

private:
  void settled() noexcept override {
    ref();
    std::shared_ptr<direct_waiter> keep{this, [](auto* x) { x->unref(); }};
    auto& c = scope_.cluster;
    if (state() == outcome::deadlock && rival != session_id{})
      c.observe_outranked(scope_, *this);
    c.later_in(scope_, 1,
               [&c, keep] { c.direct_settled(keep->serial_, *keep); });
  }

  open_scope& scope_; // settled while it is open, or not heard
  std::uint64_t serial_;
};

// -- acts ---------------------------------------------------------------------

void scope_cluster::act() {
  auto i = below(nodes_.size());
  auto dice = below(100);
  if (dice < 10 && act_of_god(i, dice % 5))
    return;
  auto* s = scope_at(i);
  if (s == nullptr || s->on.frozen)
    return;
  touched_ = i;
  if (options_.deadlocks && dice < 80)
    begin_script(*s);
  else if (options_.direct && dice < options_.direct_share) {
    if (s->is_ready)
      ask_direct(*s, some_session(*s));
  } else if (dice < 70) {
    if (!options_.only_direct)
      ask_several(*s, some_session(*s));
  } else if (auto* a = some_ask()) {
    touched_ = a->node;
    auto& its = *scope_of(*a);
    if (a->at == stage::pending)
      cancel(*a, outcome::cancelled);
    else if (dice < 80)
      downgrade(*a);
    else if (dice < 84)
      end_session(its, a->who);
    else if (dice < 88 && a->held.size() > 1)
      give_up_one(*a);
    else
      give_up(*a);
  }
}

std::vector<scope_cluster::ask*> scope_cluster::live_asks() {
  std::vector<ask*> result;
  result.reserve(live_.size());
  for (auto serial : live_)
    result.push_back(&asks_.at(serial));
  return result;
}

/// One whose client can do something.
scope_cluster::ask* scope_cluster::some_ask() {
  auto all = live_asks();
  std::erase_if(all, [&](const ask* a) {
    return scope_of(*a) == nullptr || nodes_[a->node]->frozen;
  });
  return all.empty() ? nullptr : all[below(all.size())];
}

scope_cluster::session& scope_cluster::new_session(open_scope& s) {
  auto serial = ++serials_;
  auto* x = new session({slot(s.on.index), serial}, s.on.clock, *this);
  s.sessions[serial] = x;
  return *x;
}

scope_cluster::session& scope_cluster::some_session(open_scope& s) {
  if (options_.crossing && !s.sessions.empty() && below(3) == 0)
    return *std::next(s.sessions.begin(),
                      static_cast<long>(below(s.sessions.size())))
              ->second;
  return new_session(s);
}

scope_cluster::ask& scope_cluster::new_ask(open_scope& s, session& who) {
  auto serial = ++serials_;
  auto& a = asks_[serial];
  live_.insert(serial);
  a.node = s.on.index;
  a.life = s.life;
  a.who = who.id().serial;
  a.asked = events_.now();
  a.spec.id = {slot(a.node), serial};
  a.spec.session = who.id();
  a.spec.age = {age_of(s, who.id()), who.id()};
  tally("asked");
  return a;
}

/// Who asks while the session waits for something else marks that.
bool scope_cluster::mark_others(open_scope& s, const ask& mine) {
  auto found = false;
  for (auto* a : live_asks()) {
    if (a->who != mine.who || a->at != stage::pending || a == &mine)
      continue;
    found = true;
    several_.insert(mine.who);
    if (a->waits != nullptr)
      s.locks.table().mark_elsewhere(*a->waits);
    else
      s.feed(
        [&](scope_effects& out) { s.home.waits_elsewhere(a->spec.id, out); });
  }
  return found;
}

// -- scripts ------------------------------------------------------------------

void scope_cluster::begin_script(open_scope& s) {
  if (!s.is_ready)
    return;
  auto serial = new_session(s).id().serial;
  scripts_[serial].left = 1 + below(4);
  ask_next(s, serial);
}

void scope_cluster::ask_next(open_scope& s, std::uint64_t who) {
  auto& script = scripts_[who];
  auto& session = *s.sessions.at(who);
  auto sorted = options_.terms_asked == workload::sorted;
  // One after another, if they are to stay in order.
  for (auto count = sorted ? 1 : 1 + below(4) / 3;
       count > 0 && script.left > 0 && !script.ends; --count) {
    --script.left;
    ++script.pending;
    if (options_.direct && below(2) == 0)
      ask_direct(s, session);
    else
      ask_several(s, session);
  }
  // Some do not wait for what they have asked before they ask for more.
  if (!sorted && below(4) == 0)
    later_in(s, below(200), [this, &s, who] {
      if (s.sessions.count(who) != 0)
        ask_next(s, who);
    });
}

/// A request of the session has ended.
void scope_cluster::play_on(open_scope& s, std::uint64_t who, bool granted) {
  auto i = scripts_.find(who);
  if (!options_.deadlocks || i == scripts_.end())
    return;
  auto& x = i->second;
  --x.pending;
  x.ends = x.ends || !granted;
  if (!x.ends && x.pending > 0)
    return;
  auto more = !x.ends && x.left > 0;
  later_in(s, below(more ? 30 : 100), [this, &s, who, more] {
    if (s.sessions.count(who) == 0)
      return;
    if (more)
      ask_next(s, who);
    else
      end_session(s, who);
  });
}

// -- asking -------------------------------------------------------------------

term scope_cluster::some_term(std::uint64_t who) {
  switch (options_.terms_asked) {
    case workload::hot:
      return term{static_cast<int>(below(4) == 0 ? below(options_.terms) : 0)};
    case workload::sorted: {
      auto& next = scripts_[who].next_term;
      next = std::min(next + static_cast<int>(below(3)),
                      static_cast<int>(options_.terms) - 1);
      return term{next};
    }
    default:
      return term{static_cast<int>(below(options_.terms))};
  }
}

/// In order means also: nothing is asked for in a stronger mode afterwards.
lock_mode scope_cluster::some_mode(std::uint64_t who, const term& what) {
  auto dice
    = options_.terms_asked == workload::sorted ? who + what.hash() : below(3);
  return dice % 3 == 0 ? lock_mode::shared : lock_mode::exclusive;
}

term_lock scope_cluster::some_lock(std::uint64_t who) {
  auto what = some_term(who);
  return {what, some_mode(who, what)};
}

void scope_cluster::ask_several(open_scope& s, session& who) {
  auto& a = new_ask(s, who);
  auto sorted = options_.terms_asked == workload::sorted;
  for (auto count = 1 + below(3); count > 0; --count)
    a.spec.terms.push_back(some_lock(a.who));
  to_canonical_order(a.spec.terms);
  a.spec.no_wait = below(options_.deadlocks ? 40 : 10) == 0;
  mark_others(s, a);
  if (!sorted && (options_.crossing || options_.deadlocks) && below(2) == 0) {
    a.spec.choice = node_choice::listed;
    for (std::size_t i = 0; i < options_.nodes; ++i)
      if (below(2) == 0)
        a.spec.nodes.push_back(slot(i));
  }
  later_in(s, 1,
           [this, &s, serial = a.spec.id.serial] { open_request(s, serial); });
  set_deadline(
    s, a,
    !options_.deadlocks
      && (options_.crossing || options_.faults() || options_.late_openers));
}

/// The scope's actor hears of it.
void scope_cluster::open_request(open_scope& s, std::uint64_t serial) {
  auto& a = asks_.at(serial);
  if (a.at != stage::pending) {
    a.told = true; // it had ended before
    return;
  }
  for (auto* b : live_asks())
    a.spec.elsewhere |= b->who == a.who && b->at == stage::pending && b != &a;
  // What has been granted meanwhile has made the session older.
  a.spec.age = {age_of(s, a.spec.session), a.spec.session};
  a.spec.patient = !a.spec.elsewhere
                   && a.spec.age.lamport == session_age::holds_nothing;
  say("{}: {} of {} asks:{}{}{}", a.node, to_string(a.spec.id), a.who,
      text(a.spec.terms),
      a.spec.choice == node_choice::listed ? " on" : " everywhere",
      text(a.spec.nodes));
  s.feed([&](scope_effects& out) { s.home.open(a.spec, out); });
}

void scope_cluster::ask_direct(open_scope& s, session& who) {
  auto& a = new_ask(s, who);
  a.spec.terms.push_back(some_lock(a.who));
  auto serial = a.spec.id.serial;
  auto* w = new direct_waiter(who, a.spec.terms[0], s, serial);
  w->elsewhere = mark_others(s, a);
  a.waits = w;
  set_deadline(s, a, !options_.deadlocks);
  say("{}: {} of {} asks here:{}", a.node, to_string(a.spec.id), a.who,
      text(a.spec.terms));
  w->ref(); // it may be settled, and gone, before this ends
  s.locks.lock(*w);
  auto waits = w->state() == outcome::pending;
  if (waits)
    s.on.clock.tick();
  if (w->overtook || (waits && (w->elsewhere || holds_something(who)))) {
    s.walk({{who.id(), {slot(a.node), serial}, 0, slot(a.node)}, true, false});
    scope_effects nothing;
    s.run(nothing);
  }
  w->unref();
}

/// Wholes are not in the ledger here.
bool scope_cluster::holds_something(const session& who) {
  auto all = live_asks();
  return who.holds_something()
         || std::any_of(all.begin(), all.end(), [&](const ask* a) {
              return a->who == who.id().serial && a->at == stage::held;
            });
}

void scope_cluster::set_deadline(open_scope& s, const ask& a, bool always) {
  if (!always && below(8) != 0)
    return;
  if (!always && !options_.deadlocks)
    return;
  later_in(s, 2000 + below(2000), [this, serial = a.spec.id.serial] {
    if (auto& x = asks_.at(serial); x.at == stage::pending)
      cancel(x, outcome::timeout);
  });
}

// -- being told ---------------------------------------------------------------

void scope_cluster::told_aged(open_scope& s, const request_id& id,
                              std::uint64_t lamport) {
  auto& a = asks_.at(id.serial);
  auto who = s.sessions.find(a.who);
  if (a.at == stage::done || who == s.sessions.end())
    return;
  check(!std::exchange(a.aged, true), "the age of a request is fixed once");
  who->second->claim_age(lamport);
}

bool scope_cluster::told_whole(open_scope& s, const request_id& id,
                               const std::vector<fencing_token>& tokens,
                               const std::vector<node_slot>& nodes) {
  auto& a = asks_.at(id.serial);
  check(!std::exchange(a.told, true), "a request ends once");
  if (a.at != stage::pending) {
    tally("crossed");
    return false;
  }
  tally("granted");
  a.at = stage::held;
  a.held = a.spec.terms;
  for (auto& x : a.held)
    if (downgrading_.count({a.who, x.what}) != 0)
      x.mode = lock_mode::shared;
  a.tokens = tokens;
  say("{}: {} of {} is whole:{} on{}, tokens{}", a.node, to_string(id), a.who,
      text(a.held), text(nodes), text(tokens));
  check_whole(a, nodes);
  if (!nodes.empty())
    check_grant(a, nodes);
  if (options_.deadlocks)
    play_on(s, a.who, true);
  else if (options_.crossing || below(4) != 0)
    later_in(s, below(150),
             [this, serial = id.serial] { give_up(asks_.at(serial)); });
  return true;
}

void scope_cluster::told_ended(open_scope& s, const request_id& id,
                               outcome why) {
  auto& a = asks_.at(id.serial);
  check(!std::exchange(a.told, true), "a request ends once");
  tally(std::string{to_string(why)});
  say("{}: {} of {} has ended: {}", a.node, to_string(id), a.who,
      to_string(why));
  if (a.at == stage::pending) {
    finish_ask(a);
    play_on(s, a.who, false);
  }
}

void scope_cluster::told_lost(const request_id& id, std::uint16_t which,
                              loss why) {
  auto& a = asks_.at(id.serial);
  tally("lost");
  say("{}: {} of {} has lost something", a.node, to_string(id), a.who);
  check(options_.faults(), "nothing is lost without a fault");
  check(options_.splits() || why != loss::outranked,
        "nothing is outranked without a cut");
  if (a.at != stage::held)
    return;
  a.held[which].mode = lock_mode::none;
  if (std::all_of(a.held.begin(), a.held.end(),
                  [](const term_lock& x) { return x.mode == lock_mode::none; }))
    finish_ask(a);
}

void scope_cluster::direct_settled(std::uint64_t serial, waiter& w) {
  auto& a = asks_.at(serial);
  if (a.waits != &w)
    return; // its client ended it
  check(!std::exchange(a.told, true), "a direct request ends once");
  a.waits = nullptr;
  auto& s = *scope_of(a);
  if (w.state() == outcome::granted) {
    tally("granted");
    tally("granted here");
    a.record = w.take_hold();
    a.at = stage::held;
    a.held = a.spec.terms;
    a.tokens = {a.record->token};
    say("{}: {} of {} is granted here:{}, token{}", a.node,
        to_string(a.spec.id), a.who, text(a.held), text(a.tokens));
    check_grant(a, {slot(a.node)});
    if (options_.deadlocks)
      play_on(s, a.who, true);
    else
      later_in(s, below(150), [this, serial] { give_up(asks_.at(serial)); });
  } else {
    tally(std::string{to_string(w.state())});
    check_outranked(s, w);
    finish_ask(a);
    play_on(s, a.who, false);
  }
  w.unref();
}

void scope_cluster::direct_revoked(hold_record& r) {
  for (auto* a : live_asks())
    if (a->record == &r) {
      tally("revoked");
      say("{}: {} of {} is revoked", a->node, to_string(a->spec.id), a->who);
      check(options_.splits(), "nothing is revoked without a cut");
      a->held[0].mode = lock_mode::none;
    }
}

// -- ending -------------------------------------------------------------------

void scope_cluster::cancel(ask& a, outcome why) {
  auto& s = *scope_of(a);
  auto id = a.spec.id;
  if (a.waits != nullptr) {
    auto* w = std::exchange(a.waits, nullptr);
    if (!s.locks.end(*w, why, local_locks::tell::no)
        && w->state() == outcome::granted)
      if (auto* r = w->take_hold())
        s.locks.give_back(*r);
    w->unref();
    a.told = true;
  } else {
    later_in(s, below(8), [&s, id, why] {
      s.feed([&](scope_effects& out) { s.home.cancel(id, why, out); });
    });
  }
  finish_ask(a);
  play_on(s, a.who, false);
}

void scope_cluster::give_up(ask& a) {
  if (a.at != stage::held)
    return;
  auto& s = *scope_of(a);
  if (auto* r = std::exchange(a.record, nullptr))
    s.locks.release(*r);
  else
    release_later(s, a.spec.id, {});
  finish_ask(a);
}

void scope_cluster::give_up_one(ask& a) {
  if (a.at != stage::held || a.record != nullptr)
    return;
  auto which = static_cast<std::uint16_t>(below(a.held.size()));
  a.held[which].mode = lock_mode::none;
  release_later(*scope_of(a), a.spec.id, {which});
  for (const auto& x : a.held)
    if (x.mode != lock_mode::none)
      return;
  finish_ask(a);
}

void scope_cluster::release_later(open_scope& s, request_id id,
                                  std::vector<std::uint16_t> which) {
  later_in(s, below(8), [&s, id, which = std::move(which)] {
    s.feed([&](scope_effects& out) { s.home.release(id, which, out); });
  });
}

/// It is the session's hold that becomes shared: all its handles are, those too
/// that it got since it asked for this. A handle may be shared already.
void scope_cluster::downgrade(ask& a) {
  if (a.at != stage::held)
    return;
  auto which = static_cast<std::uint16_t>(below(a.held.size()));
  if (a.held[which].mode == lock_mode::none)
    return;
  auto& s = *scope_of(a);
  std::pair key{a.who, a.held[which].what};
  tally("downgrades");
  say("{}: {} of {} downgrades {}", a.node, to_string(a.spec.id), a.who,
      to_string(key.second));
  if (a.record != nullptr)
    s.locks.downgrade(*a.record);
  else
    s.locks.downgrade(key.second, *s.sessions.at(a.who));
  make_shared(key);
  // What becomes whole before the scope's actor has heard of it is shared.
  downgrading_.insert(key);
  later_in(s, below(8), [this, &s, key, who = a.spec.session] {
    downgrading_.erase(downgrading_.find(key));
    make_shared(key);
    s.feed(
      [&](scope_effects& out) { s.home.downgraded(who, key.second, out); });
  });
}

/// A lock for one node alone is what the row says.
void scope_cluster::make_shared(const std::pair<std::uint64_t, term>& key) {
  for (auto* a : live_asks())
    if (a->at == stage::held && a->who == key.first)
      for (auto& x : a->held)
        if (x.what == key.second && x.mode == lock_mode::exclusive)
          x.mode
            = a->record != nullptr ? a->record->mode.load() : lock_mode::shared;
}

void scope_cluster::end_session(open_scope& s, std::uint64_t who) {
  auto* x = s.sessions.at(who);
  scripts_.erase(who);
  tally("sessions ended");
  say("{}: session {} ends", s.on.index, who);
  for (auto* a : live_asks()) {
    if (a->who != who)
      continue;
    if (a->at == stage::pending)
      cancel(*a, outcome::session_ended);
    else
      give_up(*a);
  }
  s.locks.close(*x, outcome::session_ended);
  s.sessions.erase(who);
  x->unref();
}

/// Its client has nothing more to do with it.
void scope_cluster::finish_ask(ask& a) {
  a.at = stage::done;
  a.over = events_.now();
  live_.erase(a.spec.id.serial);
  auto* s = scope_of(a);
  if (s == nullptr)
    return;
  // What it holds is listed by its parts only; so they are as old until then.
  if (std::exchange(a.aged, false))
    if (auto who = s->sessions.find(a.who); who != s->sessions.end())
      who->second->drop_claim();
  if (a.waits != nullptr) { // its node stops
    auto* w = std::exchange(a.waits, nullptr);
    if (!s->locks.end(*w, outcome::shutting_down, local_locks::tell::no))
      if (auto* r = w->take_hold())
        s->locks.give_back(*r);
    w->unref();
  }
  if (auto* r = std::exchange(a.record, nullptr))
    s->locks.release(*r);
}

} // namespace pawl::sim
