#include "pawl/actors/pending.hpp"

#include "pawl/actors/scope_state.hpp"
#include "pawl/core/ensure.hpp"

#include <new>
#include <utility>

namespace pawl {

namespace {

const term_lock& first_of(const ask& what) noexcept {
  return what.several ? what.many.front() : what.one;
}

bool is_wide(const ask& what) noexcept {
  return what.several || what.where != ask::place::here;
}

} // namespace

pending::pending(ask&& what)
  : waiter(*what.who, first_of(what).what, first_of(what).mode,
           is_wide(what) ? hold_record::kind::whole
                         : hold_record::kind::direct),
    wide_(is_wide(what)), asked_(std::chrono::steady_clock::now()),
    cancel_(std::move(what.cancel)) {
  if (what.within)
    deadline_ = asked_ + *what.within;
  auto& where = scope();
  request = where.next_request();
  if (!wide_)
    return;
  spec_.id = request;
  spec_.session = client().id();
  if (what.several)
    spec_.terms = std::move(what.many);
  else
    spec_.terms.push_back(std::move(what.one));
  spec_.no_wait = what.no_wait;
  if (what.where == ask::place::every_node) {
    spec_.choice = node_choice::every_node;
  } else {
    spec_.choice = node_choice::listed;
    if (what.where == ask::place::here)
      spec_.nodes.push_back(where.self());
    for (const auto& name : what.nodes)
      if (auto slot = where.slot_of(name))
        spec_.nodes.push_back(*slot);
  }
  auto count = spec_.terms.size();
  wholes_ = std::make_unique<whole_hold[]>(count);
  auto** link = &hold;
  for (std::size_t i = 0; i < count; ++i) {
    auto& x = wholes_[i];
    x.session = spec_.session;
    x.request = spec_.id;
    x.from = this;
    x.which = static_cast<std::uint16_t>(i);
    if (*link == nullptr) {
      *link = hold_record::make();
      (*link)->session = &session();
      (*link)->what = hold_record::kind::whole;
    }
    auto& r = **link;
    r.owner = &x;
    r.hash = lock_table::low(spec_.terms[i].what.hash());
    r.mode.store(spec_.terms[i].mode, std::memory_order_relaxed);
    link = &r.row_next;
  }
}

pending::~pending() {
  // Granted, and nobody came for it: the client ended first.
  if (state() == outcome::granted)
    while (auto* r = next_hold())
      scope().locks.release(*r);
}

void pending::start() {
  auto& where = scope();
  auto& locks = where.locks;
  // Two waits of one session: who is behind one of them may be in a cycle with
  // the other.
  auto others = where.board.add(*this);
  for (auto& x : others) {
    if (x->wide_)
      where.put(post::elsewhere{x->request});
    else
      locks.table().mark_elsewhere(*x);
  }
  if (!others.empty() && !wide_)
    locks.table().mark_elsewhere(*this);
  if (cancel_.state() && !cancel_.state()->add(*this))
    locks.end(*this, outcome::cancelled);
  if (deadline_ && state() == outcome::pending)
    where.set_deadline(*this);
  // It may have ended in between, but not before the deadline was listed.
  if (state() != outcome::pending) {
    where.drop_deadline(*this);
  } else if (!wide_) {
    where.ask_here(*this);
  } else if (locks.enlist(*this)) {
    ref();
    where.put(post::open{this});
  }
  unref();
}

// -- of the coordinator -------------------------------------------------------

void pending::aged(std::uint64_t lamport) {
  std::lock_guard guard{lock_};
  if (claim_ != claim::none)
    return;
  claim_ = claim::made;
  session().claim_age(lamport);
}

/// Its holds are listed by now, if it has got any.
void pending::drop_claim() noexcept {
  std::lock_guard guard{lock_};
  if (std::exchange(claim_, claim::over) == claim::made)
    session().drop_claim();
}

bool pending::whole(const std::vector<fencing_token>& tokens,
                    std::vector<node_slot> nodes) {
  ensure(tokens.size() == spec_.terms.size(), "one token for each term");
  {
    std::lock_guard guard{lock_};
    nodes_ = std::move(nodes);
  }
  std::size_t i = 0;
  for (auto* r = hold; r != nullptr; r = r->row_next) {
    wholes_[i].token = tokens[i];
    r->token = tokens[i++];
    ref(); // the hold's
  }
  auto won = false;
  if (session().settle(*this, won) == outcome::granted) {
    settled();
    return true;
  }
  session().leave_wait(*this);
  for (; i > 0; --i)
    unref();
  if (won)
    settled();
  return false;
}

void pending::refuse(outcome why, std::string node) {
  {
    std::lock_guard guard{lock_};
    node_ = std::move(node);
  }
  scope().locks.end(*this, why);
}

bool pending::condemn(outcome why, std::vector<cycle_edge> cycle) {
  {
    std::lock_guard guard{lock_};
    cycle_ = std::move(cycle);
  }
  return scope().locks.end(*this, why);
}

bool pending::has(std::uint16_t which) const noexcept {
  return session().lists(lock_table::low(spec_.terms[which].what.hash()),
                         wholes_[which]);
}

void pending::downgraded(std::uint16_t which) {
  session().make_shared(lock_table::low(spec_.terms[which].what.hash()),
                        wholes_[which]);
}

void pending::node_left(std::uint16_t which, node_slot node) {
  {
    std::lock_guard guard{lock_};
    std::erase(nodes_, node);
  }
  hold_event event;
  event.what = hold_event::kind::node_left;
  event.term = spec_.terms[which].what;
  event.token = wholes_[which].token;
  event.node = scope().name_of(node);
  client().tell(std::move(event));
}

bool pending::lost(std::uint16_t which, std::string node) {
  auto hash = lock_table::low(spec_.terms[which].what.hash());
  auto* r = session().take_out_lost(hash, wholes_[which]);
  if (r == nullptr)
    return false;
  scope().statistics.count_lost();
  hold_event event;
  event.what = hold_event::kind::lost;
  event.term = spec_.terms[which].what;
  event.token = r->token;
  event.node = std::move(node);
  client().tell(std::move(event));
  session_ledger::drop(*r);
  unref(); // the hold's; the coordinator has one of its own
  return true;
}

// -- of its holds -------------------------------------------------------------

bool pending::nodes_heard() const {
  auto* port = scope().port();
  if (port == nullptr)
    return true;
  // Of every_node, who fell silent has left or will, and does not count; but a
  // node that was out itself may have been left by all others.
  if (spec_.choice == node_choice::every_node)
    return port->awake(scope().exchanged);
  std::lock_guard guard{lock_};
  for (auto x : nodes_)
    if (x != scope().self() && !port->heard(x))
      return false;
  return true;
}

// -- the client ---------------------------------------------------------------

hold_record* pending::next_hold() noexcept {
  if (!wide_)
    return take_hold();
  auto* r = hold;
  if (r != nullptr) {
    hold = r->row_next;
    r->row_next = nullptr;
  }
  return r;
}

std::int64_t pending::sampled_now() const noexcept {
  // The hold time of every lock that had to be waited for is measured: two more
  // clock reads do not matter here.
  return steady_now_ns();
}

/// A handle of a wide request asks it whether it is still held, while the hold
/// may be lost or end with its session in another thread.
lock pending::handle_of(hold_record& r) noexcept {
  if (wide_)
    ref(); // the handle's
  return lock{&r, sampled_now()};
}

void pending::take(lock& out) {
  if (auto* r = next_hold())
    out = handle_of(*r);
}

void pending::take(lock_set& out) {
  std::vector<lock> held;
  held.reserve(spec_.terms.size());
  while (auto* r = next_hold())
    held.push_back(handle_of(*r));
  out = lock_set{std::move(held)};
}

failure pending::why() const {
  std::lock_guard guard{lock_};
  auto result = make_failure(state(), node_);
  if (state() == outcome::deadlock)
    result.cycle = cycle_;
  return result;
}

/// The report stands before anybody can know of the verdict.
void pending::report() noexcept {
  try {
    deadlock_report told{client().id(), {}};
    {
      std::lock_guard guard{lock_};
      if (rival != session_id{}) {
        // Two upgraders of a term on this node, judged where they met.
        auto on = to_string(what());
        const auto& node = scope().name_of(scope().self());
        cycle_ = {{client().id(), on, node, mode()}, {rival, on, node, mode()}};
      }
      told.cycle = cycle_;
    }
    scope().report(std::move(told));
  } catch (const std::bad_alloc&) {
    // No memory to say it: the verdict stands without its words.
  }
}

void pending::settled() noexcept {
  auto& where = scope();
  if (wide_)
    drop_claim();
  where.board.remove(*this);
  where.drop_deadline(*this);
  if (cancel_.state())
    cancel_.state()->remove(*this);
  auto verdict = state();
  if (verdict == outcome::deadlock)
    report();
  auto waited = std::chrono::steady_clock::now() - asked_;
  where.statistics.count_wait(
    what(), std::chrono::duration_cast<std::chrono::nanoseconds>(waited),
    verdict);
  if (wide_ && verdict != outcome::granted)
    where.put(post::cancel{spec_.id, verdict});
  deliver();
}

// -- cancel_entry -------------------------------------------------------------

bool pending::pin() noexcept {
  ref(); // it leaves the list before its last reference goes
  return true;
}

void pending::cancel_now() noexcept {
  scope().locks.end(*this, outcome::cancelled);
}

void pending::unpin() noexcept {
  unref();
}

// -- then ---------------------------------------------------------------------

pending_response::pending_response(ask&& what) : pending(std::move(what)) {
  auto* port = client().party().port();
  port->expect();
  where_ = port->where();
}

void pending_response::deliver() noexcept {
  where_.deliver(std::make_shared<delivery>(*this));
}

// -- wait ---------------------------------------------------------------------

pending_wait::pending_wait(ask&& what) : pending(std::move(what)) {
  auto& actor = client().party();
  if (actor.what() == party::kind::blocking)
    where_ = compat::make_responder(actor.self());
}

void pending_wait::deliver() noexcept {
  {
    std::lock_guard guard{done_lock_};
    done_ = true;
    done_changed_.notify_all();
  }
  if (where_)
    where_->deliver(nullptr);
}

void pending_wait::await() {
  if (where_)
    await_in_actor(static_cast<caf::blocking_actor*>(client().party().self()));
  else
    await_in_thread();
}

void pending_wait::await_in_thread() {
  // The scope's timer ends it when its deadline passes.
  std::unique_lock guard{done_lock_};
  done_changed_.wait(guard, [this] { return done_; });
}

void pending_wait::await_in_actor(caf::blocking_actor* self) {
  compat::deliverable_ptr nothing;
  if (compat::wait_response(self, *where_, nothing)
      == compat::wait_result::exiting) {
    // It has been told to exit, which it will do in its next receive.
    scope().locks.end(*this, outcome::session_ended);
    await_in_thread();
  }
}

} // namespace pawl
