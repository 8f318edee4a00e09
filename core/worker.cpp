#include "pawl/core/worker.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/core/multi_node_request.hpp"
#include "pawl/core/planted.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <variant>

namespace pawl {

namespace {

/// A peer's session, as long as something of it is here.
class foreign_session final : public session_ledger {
public:
  using session_ledger::session_ledger;

private:
  void last_gone() noexcept override {
    delete this;
  }
};

/// Beyond this a peer's number is nonsense: counters never get there.
constexpr fencing_token max_token
  = ~fencing_token{0} - fencing::reach(std::chrono::hours{24 * 365});
constexpr std::uint64_t max_lamport = std::uint64_t{1} << 62;

bool plausible(std::span<const fencing_token> tokens) noexcept {
  return std::all_of(tokens.begin(), tokens.end(),
                     [](fencing_token x) { return x <= max_token; });
}

} // namespace

worker_port::~worker_port() = default;

session_resolver::~session_resolver() = default;

// -- part_waiter --------------------------------------------------------------

part_waiter::part_waiter(worker_port& port, session_ledger& who,
                         const term_lock& what, const request_message& from,
                         std::uint16_t which)
  : waiter(who, what.what, what.mode, hold_record::kind::part), port_(port) {
  owner.session = from.session;
  owner.request = from.id;
  owner.attempt = from.attempt;
  owner.which = which;
  owner.asked = what.mode;
  hold->owner = &owner;
  request = from.id;
  attempt = from.attempt;
  elsewhere = from.elsewhere;
  carried = from.carried[which];
  adopt = from.adopt;
}

bool part_waiter::park() noexcept {
  // Pairs with settled(): exactly one of the two finds the other's mark.
  auto expected = stage::asking;
  return stage_.compare_exchange_strong(expected, stage::parked,
                                        std::memory_order_acq_rel);
}

void part_waiter::settled() noexcept {
  if (stage_.exchange(stage::settled, std::memory_order_acq_rel)
      != stage::parked)
    return;
  ref();
  port_.settled(*this);
}

// -- worker -------------------------------------------------------------------

worker::worker(const worker_options& options, local_locks& locks,
               worker_port& port, lamport_clock& clock,
               session_resolver& sessions)
  : options_(options), locks_(locks), port_(port), clock_(clock),
    resolver_(sessions) {
  // nop
}

worker::~worker() {
  scope_effects nobody;
  close_epoch(nobody);
}

// -- events -------------------------------------------------------------------

void worker::receive(const message& what, scope_effects& out) {
  std::visit(
    [&](const auto& x) {
      if constexpr (requires { this->receive_one(x, out); })
        this->receive_one(x, out);
    },
    what);
}

void worker::settled(part_waiter& w, scope_effects& out) {
  auto* e = find(w.owner.request);
  if (e != nullptr && e->waiting == &w) {
    port_.leaves(w);
    if (take_result(*e, out))
      take(*e, out);
  }
  w.unref(); // the port's
}

void worker::set_ready(scope_effects& out) {
  if (phase_ != phase::joining)
    return;
  phase_ = phase::ready;
  for (const auto& id : std::exchange(held_back_, {})) {
    auto* e = find(id);
    if (e == nullptr || !e->held_back)
      continue; // abandoned, or asked anew further down the list
    e->held_back = false;
    take(*e, out);
  }
}

void worker::close_scope(scope_effects& out) {
  for (const auto& [id, e] : requests_)
    if (!e->complete())
      out.push_back(
        effect::send{options_.peer, refused_message{id, e->ask.attempt,
                                                    outcome::scope_closed}});
  scope_effects nobody; // the other holds go, too
  close_epoch(nobody);
  phase_ = phase::closed;
}

void worker::close_epoch(scope_effects& out) {
  held_back_.clear();
  if (!requests_.empty())
    locks_.note_own_end();
  if (PAWL_PLANTED(ignores_incarnations) && options_.peer != options_.self) {
    for (auto& [id, e] : requests_)
      static_cast<void>(e.release()); // in use until the program ends
    requests_.clear();
    sessions_.clear();
  }
  while (!requests_.empty())
    drop(request_id{requests_.begin()->first}, out);
}

void worker::receive_one(const request_message& x, scope_effects& out) {
  auto refuse_it = [&](outcome why) {
    out.push_back(
      effect::send{options_.peer, refused_message{x.id, x.attempt, why}});
  };
  if (auto* older = find(x.id)) {
    if (x.attempt <= older->ask.attempt)
      return;
    drop(x.id, out);
  }
  if (auto why = acceptable(x); why != outcome::pending) {
    refuse_it(why);
    return;
  }
  auto* session = enter_session(x.session, x.age);
  if (session == nullptr) {
    refuse_it(outcome::session_ended);
    return;
  }
  auto& e = *(requests_[x.id] = std::make_unique<entry>());
  e.ask = x;
  e.session = session;
  e.holds.reserve(x.terms.size());
  if (phase_ == phase::joining) {
    e.held_back = true;
    held_back_.push_back(x.id);
    return;
  }
  take(e, out);
}

void worker::receive_one(const abandon_message& x, scope_effects& out) {
  auto* e = find(x.id);
  if (e != nullptr && e->ask.attempt <= x.attempt)
    drop(x.id, out);
}

void worker::receive_one(const release_message& x, scope_effects& out) {
  auto* e = find(x.id);
  if (e == nullptr)
    return;
  if (!e->complete()) {
    drop(x.id, out); // its home has lost track of it
    return;
  }
  for (std::size_t i = 0; i < e->holds.size(); ++i)
    if (x.which.empty()
        || std::find(x.which.begin(), x.which.end(), i) != x.which.end()) {
      let_go(*e, i, false, out);
      look_at_what_is_kept(*e, i, out);
    }
  auto left = std::any_of(e->holds.begin(), e->holds.end(),
                          [](const held& h) { return h.record != nullptr; });
  if (!left)
    drop(x.id, out);
}

/// Who waited for an exclusive hold that has gone may wait for another one of
/// its session now, which was in nobody's way before.
void worker::look_at_what_is_kept(const entry& e, std::size_t which,
                                  scope_effects& out) {
  const auto& what = e.ask.terms[which].what;
  if (!e.session->may_hold(lock_table::low(what.hash())))
    return;
  auto row = locks_.table().view(what);
  if (row.mode == lock_mode::exclusive && row.waiters > 0)
    out.push_back(effect::walk{
      {e.ask.session, e.ask.id, e.ask.attempt, options_.self}, true, false});
}

void worker::receive_one(const downgrade_message& x, scope_effects&) {
  auto* e = find(x.id);
  if (e != nullptr && x.which < e->holds.size()
      && e->holds[x.which].record != nullptr)
    locks_.downgrade(*e->holds[x.which].record);
}

void worker::receive_one(const raise_message& x, scope_effects& out) {
  auto* e = find(x.id);
  if (e == nullptr || e->ask.attempt != x.attempt || !e->complete()
      || x.tokens.size() != e->holds.size() || !plausible(x.tokens)) {
    out.push_back(effect::send{
      options_.peer, refused_message{x.id, x.attempt, outcome::scope_closed}});
    return;
  }
  out.push_back(effect::send{options_.peer, raised_message{x.id, x.attempt}});
  for (std::size_t i = 0; i < e->holds.size(); ++i) {
    auto* r = e->holds[i].record;
    if (r == nullptr)
      continue;
    if (e->ask.terms[i].mode == lock_mode::exclusive
        && !PAWL_PLANTED(raises_no_token))
      locks_.table().raise(*r, x.tokens[i]);
    auto expected = part_owner::standing::asked;
    if (x.whole
        && owner_of(e->holds[i])
             .known.compare_exchange_strong(expected,
                                            part_owner::standing::whole))
      settle_row(e->ask.terms[i].what, out);
  }
}

void worker::receive_one(const hand_over_message& x, scope_effects& out) {
  if (!x.open || phase_ == phase::closed)
    return;
  if (x.floor <= max_token) {
    // A node that joins may have been here before, and may have issued more
    // than its peers have heard of.
    auto unheard = phase_ == phase::joining
                     ? fencing::reach(options_.node_timeout)
                     : fencing_token{0};
    locks_.table().raise_floor(x.floor + unheard);
  }
  std::uint32_t count = 0;
  for (const auto& hold : x.holds) {
    if (!acceptable(hold) || PAWL_PLANTED(is_ready_without_hand_over))
      continue;
    install(hold, out);
    ++count;
  }
  out.push_back(effect::installed{options_.peer, options_.epoch, count});
}

void worker::receive_one(const scope_closed_message&, scope_effects& out) {
  close_epoch(out);
}

void worker::receive_one(const waits_elsewhere_message& x, scope_effects& out) {
  auto* e = find(x.id);
  if (e == nullptr || e->ask.attempt != x.attempt || e->ask.elsewhere)
    return;
  e->ask.elsewhere = true;
  if (e->waiting != nullptr)
    locks_.table().mark_elsewhere(*e->waiting);
  // If it has what it asked for here, those behind it wait for somebody who
  // waits: nobody has looked for that.
  begin_walk(*e, false, out);
}

// -- taking -------------------------------------------------------------------

/// Whether it may be served; the reason if not. A request that no node of ours
/// would write is `cancelled`.
outcome worker::acceptable(const request_message& x) const noexcept {
  if (phase_ == phase::closed)
    return outcome::scope_closed;
  if (x.id.home != options_.peer || x.session.home != options_.peer
      || x.carried.size() != x.terms.size() || !plausible(x.carried))
    return outcome::cancelled;
  if (phase_ == phase::joining && x.no_wait)
    return outcome::busy;
  return check_terms(x.terms);
}

/// Takes terms until one has to wait, one is refused, or all are held. No
/// recursion, however many there are. `e` may be gone afterwards.
void worker::take(entry& e, scope_effects& out) {
  while (!e.complete()) {
    auto which = static_cast<std::uint16_t>(e.holds.size());
    auto* w
      = new part_waiter(port_, *e.session, e.ask.terms[which], e.ask, which);
    w->no_wait = e.ask.no_wait;
    e.waiting = w;
    // Whoever finds it in a queue must find it here: so it is made known before
    // it hangs, if it looks as if it would.
    auto row = locks_.table().view(w->what());
    auto early = row.holders > 0 || row.waiters > 0;
    if (early)
      port_.enters(*w);
    locks_.lock(*w);
    if (w->park()) {
      // Sessions that take their first lock after this are younger.
      clock_.tick();
      if (!early)
        port_.enters(*w);
      begin_walk(e, !early, out);
      return;
    }
    if (early)
      port_.leaves(*w);
    auto overtook = w->overtook;
    if (!take_result(e, out))
      return;
    if (overtook)
      out.push_back(effect::walk{
        {e.ask.session, e.ask.id, e.ask.attempt, options_.self}, true, false});
  }
  std::vector<fencing_token> tokens;
  tokens.reserve(e.holds.size());
  for (const auto& x : e.holds)
    tokens.push_back(x.token);
  out.push_back(
    effect::send{options_.peer,
                 granted_message{e.ask.id, e.ask.attempt, std::move(tokens)}});
}

/// A wait was entered: it can close a cycle only if its session holds something
/// or waits elsewhere. Or somebody may have looked for it in vain (`raced`).
void worker::begin_walk(const entry& e, bool raced, scope_effects& out) {
  const auto& x = e.ask;
  if (PAWL_PLANTED(begins_no_walk))
    return;
  if (!raced && !x.elsewhere && e.holds.empty()
      && x.age.lamport == session_age::holds_nothing)
    return;
  out.push_back(effect::walk{
    {x.session, x.id, x.attempt, options_.self}, x.elsewhere, x.patient});
}

/// The waiter has ended one way or the other. False: so has the request.
bool worker::take_result(entry& e, scope_effects& out) {
  auto* w = std::exchange(e.waiting, nullptr);
  auto verdict = w->state();
  if (verdict == outcome::granted) {
    auto* r = w->take_hold();
    e.holds.push_back({r, r->token, w, nullptr});
    return true;
  }
  w->unref();
  auto id = e.ask.id;
  auto attempt = e.ask.attempt;
  if (!e.holds.empty() || !e.ask.no_wait) // otherwise nobody has seen it
    locks_.note_own_end();
  drop(id, out);
  out.push_back(
    effect::send{options_.peer, refused_message{id, attempt, verdict}});
  return false;
}

// -- giving up ----------------------------------------------------------------

/// Takes a request back, in whatever state it is.
void worker::drop(const request_id& id, scope_effects& out) {
  auto node = requests_.extract(id);
  auto& e = *node.mapped();
  if (e.waiting != nullptr) {
    auto* w = e.waiting;
    port_.leaves(*w);
    // Granted meanwhile, on another thread: its message finds nothing.
    if (!locks_.end(*w, outcome::cancelled, local_locks::tell::no)
        && w->state() == outcome::granted)
      if (auto* r = e.session->take_granted(*w))
        locks_.give_back(*r);
    w->unref();
  }
  for (auto i = e.holds.size(); i > 0; --i)
    let_go(e, i - 1, true, out);
  leave_session(*e.session);
}

/// Ends one hold. `unseen`: no client saw it, so the session falls back to what
/// it had before.
void worker::let_go(entry& e, std::size_t which, bool unseen,
                    scope_effects& out) {
  auto& x = e.holds[which];
  if (auto* r = std::exchange(x.record, nullptr)) {
    auto known = owner_of(x).known.load();
    if (unseen)
      locks_.give_back(*r);
    else
      locks_.release(*r);
    // It was the top of its row, and others wait to hear whether they lost.
    if (known == part_owner::standing::asked
        || known == part_owner::standing::whole)
      settle_row(e.ask.terms[which].what, out);
  }
  x.installed.reset();
  if (x.from != nullptr)
    std::exchange(x.from, nullptr)->unref();
}

// -- hand-over ----------------------------------------------------------------

bool worker::acceptable(const handed_over& x) const noexcept {
  if (x.id.home != options_.peer || x.session.home != options_.peer
      || options_.peer == options_.self || x.tokens.size() != x.terms.size()
      || !plausible(x.tokens))
    return false;
  return check_terms(x.terms) == outcome::pending;
}

void worker::install(const handed_over& x, scope_effects& out) {
  if (auto* known = find(x.id)) {
    if (known->complete() && known->ask.attempt == x.attempt)
      return; // said twice
    drop(x.id, out);
  }
  auto* session = enter_session(x.session, x.age);
  if (session == nullptr)
    return;
  auto& e = *(requests_[x.id] = std::make_unique<entry>());
  e.ask.id = x.id;
  e.ask.attempt = x.attempt;
  e.ask.session = x.session;
  e.ask.age = x.age;
  e.ask.terms = x.terms;
  e.session = session;
  for (std::size_t i = 0; i < x.terms.size(); ++i) {
    const auto& [what, mode] = x.terms[i];
    e.holds.push_back({nullptr, x.tokens[i], nullptr, nullptr});
    if (x.tokens[i] == 0)
      continue; // given up since
    auto& h = e.holds.back();
    h.installed = std::make_unique<part_owner>();
    h.installed->session = x.session;
    h.installed->request = x.id;
    h.installed->attempt = x.attempt;
    h.installed->which = static_cast<std::uint16_t>(i);
    h.installed->asked = mode;
    h.installed->known = part_owner::standing::whole;
    h.record = hold_record::make();
    h.record->session = session;
    h.record->what = hold_record::kind::part;
    h.record->owner = h.installed.get();
    h.record->mode = mode;
    h.record->token = x.tokens[i];
    auto met = false;
    locks_.install(what, *h.record, [&](hold_record&) { met = true; });
    if (met)
      settle_row(what, out);
    // It is in the way of those that waited here before it came.
    if (locks_.table().view(what).waiters > 0)
      out.push_back(
        effect::walk{{x.session, {}, 0, options_.self}, true, false});
  }
}

/// One hold of a row in which holds conflict.
struct worker::rival {
  explicit rival(const hold_record& r)
    : record(&r), direct(r.what == hold_record::kind::direct),
      mode(r.mode.load()), token(r.token), ledger(r.session) {
    if (direct) {
      session.serial = r.serial;
      return;
    }
    owner = static_cast<const part_owner*>(r.owner);
    session = owner->session;
    request = owner->request;
    which = owner->which;
    known = owner->known.load();
  }

  [[nodiscard]] bool in_the_way_of(const rival& x) const noexcept {
    return ledger != x.ledger
           && (mode == lock_mode::exclusive || x.mode == lock_mode::exclusive);
  }

  [[nodiscard]] bool operator==(const rival& x) const noexcept {
    return record == x.record && request == x.request && which == x.which;
  }

  /// Larger token, then exclusive, then anything that is the same everywhere.
  [[nodiscard]] bool outranks(const rival& x) const noexcept {
    auto key = [](const rival& y) {
      return std::tuple{y.token, y.mode, y.direct, y.request, y.session};
    };
    return key(*this) > key(x);
  }

  const void* record;
  bool direct;
  lock_mode mode;
  fencing_token token;
  const void* ledger;
  const part_owner* owner = nullptr; // valid under the bit only
  session_id session;
  request_id request;
  std::uint16_t which = 0;
  part_owner::standing known = part_owner::standing::whole;
};

/// If holds of the row conflict: asks for the top one, or ends those that lost,
/// direct ones here and the others by telling their homes, each once.
void worker::settle_row(const term& what, scope_effects& out) {
  if (PAWL_PLANTED(settles_no_conflict))
    return;
  std::vector<rival> all;
  locks_.table().for_each_holder(what, [&](const hold_record& r) {
    if (rival x{r}; x.known != part_owner::standing::lost)
      all.push_back(x);
  });
  if (all.empty())
    return;
  auto top = *std::max_element(
    all.begin(), all.end(),
    [](const rival& a, const rival& b) { return b.outranks(a); });
  std::erase_if(all, [&](const rival& x) { return !x.in_the_way_of(top); });
  if (all.empty() || top.known == part_owner::standing::asked)
    return;
  auto ask = top.known == part_owner::standing::unknown;
  if (ask)
    all.assign(1, top);
  // Found again and marked under the bit, as far as they are still there.
  std::vector<hold_record*> direct;
  locks_.table().for_each_holder(what, [&](const hold_record& r) {
    rival x{r};
    if (std::find(all.begin(), all.end(), x) == all.end())
      return;
    if (x.direct) {
      direct.push_back(const_cast<hold_record*>(&r));
      local_locks::pin(*direct.back());
      return;
    }
    x.owner->known
      = ask ? part_owner::standing::asked : part_owner::standing::lost;
    out.push_back(
      effect::send{x.request.home, lost_message{x.request, x.which, ask}});
  });
  for (auto* r : direct)
    locks_.revoke(*r, what);
}

// -- requests and sessions ----------------------------------------------------

const part_owner& worker::owner_of(const held& x) noexcept {
  return x.from != nullptr ? x.from->owner : *x.installed;
}

worker::entry* worker::find(const request_id& id) noexcept {
  auto i = requests_.find(id);
  return i != requests_.end() ? i->second.get() : nullptr;
}

/// The session's ledger, for one more request; null if it is gone.
session_ledger* worker::enter_session(const session_id& who,
                                      const session_age& age) {
  auto& x = sessions_[who];
  if (x.ledger == nullptr)
    x.ledger = options_.peer == options_.self
                 ? resolver_.find(who)
                 : new foreign_session(who, clock_);
  if (x.ledger == nullptr) {
    sessions_.erase(who);
    return nullptr;
  }
  ++x.requests;
  if (options_.peer != options_.self && age.lamport <= max_lamport) {
    clock_.raise(age.lamport);
    x.ledger->age(age);
  }
  return x.ledger;
}

void worker::leave_session(session_ledger& who) {
  auto i = sessions_.find(who.id());
  ensure(i != sessions_.end() && i->second.requests > 0,
         "a request's session is listed");
  if (--i->second.requests > 0)
    return;
  sessions_.erase(i);
  who.unref();
}

void worker::check_invariants() const {
  std::size_t requests = 0;
  for (const auto& [who, x] : sessions_)
    requests += x.requests;
  ensure(requests == requests_.size(), "K3: each request has its session");
  for (const auto& [id, e] : requests_) {
    ensure(e->holds.size() <= e->ask.terms.size(), "K1: no more than asked");
    ensure(!e->complete() || e->waiting == nullptr, "K2: it waits for nothing");
    ensure(e->complete() || e->held_back || e->waiting != nullptr,
           "K2: it waits for something");
    ensure(!e->held_back || phase_ == phase::joining, "K4: held back");
    ensure(!e->held_back || e->holds.empty(), "K1: it has taken nothing");
    for (const auto& x : e->holds)
      ensure(x.record == nullptr || x.record->owner == &owner_of(x),
             "K1: a record knows where it came from");
  }
}

} // namespace pawl
