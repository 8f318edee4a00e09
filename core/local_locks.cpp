#include "pawl/core/local_locks.hpp"

#include "pawl/core/ensure.hpp"

namespace pawl {

lock_port::~lock_port() = default;

local_locks::local_locks(const lock_table_options& options, lock_port& port)
  : table_(options), port_(port) {
  // nop
}

// -- requests -----------------------------------------------------------------

hold_record& local_locks::new_record(session_ledger& who) {
  auto& r = *hold_record::make();
  r.session = &who;
  r.serial = who.id().serial;
  return r;
}

outcome local_locks::try_lock(session_ledger& who, const term& what,
                              lock_mode mode, hold_record*& hold) {
  auto& r = new_record(who);
  if (table_.try_acquire(what, mode, r) != lock_table::verdict::granted) {
    hold_record::free(&r);
    return outcome::pending;
  }
  if (who.enter(r)) [[likely]] {
    hold = &r;
    return outcome::granted;
  }
  look(table_.release(r, true).look);
  hold_record::free(&r);
  return outcome::session_ended;
}

outcome local_locks::try_lock_covered(session_ledger& who, const term& what,
                                      lock_mode mode, hold_record*& hold) {
  auto& r = new_record(who);
  if (table_.acquire_covered(what, mode, r) != lock_table::verdict::granted) {
    hold_record::free(&r);
    return who.closed() ? outcome::session_ended : outcome::busy;
  }
  if (who.enter(r)) {
    hold = &r;
    return outcome::granted;
  }
  look(table_.release(r, true).look);
  hold_record::free(&r);
  return outcome::session_ended;
}

void local_locks::lock(waiter& w) {
  auto& who = w.session();
  if (!who.enter_wait(w)) {
    refuse(w, outcome::session_ended);
    return;
  }
  auto hung = table_.acquire(
    w, who.may_hold(lock_table::low(w.what().hash())));
  if (hung.loser != nullptr) {
    refuse(*hung.loser, outcome::deadlock);
    hung.loser->unref(); // the queue's
  }
  switch (hung.what) {
    case lock_table::verdict::granted:
      settle_granted(w);
      break;
    case lock_table::verdict::deadlock:
      refuse(w, outcome::deadlock);
      break;
    case lock_table::verdict::too_many_waiters:
      refuse(w, outcome::too_many_waiters);
      break;
    case lock_table::verdict::waits:
    case lock_table::verdict::ended:
      break;
  }
  if (hung.orphan != nullptr) {
    auto manager = port_.take_manager();
    table_.assign(*hung.orphan, manager);
    port_.start(manager, *hung.orphan);
  }
}

/// Ends a waiter that hangs nowhere.
void local_locks::refuse(waiter& w, outcome why) {
  if (!w.judge(why))
    return;
  w.session().leave_wait(w);
  w.settled();
}

bool local_locks::end(waiter& w, outcome why, tell client) {
  ensure(why != outcome::pending && why != outcome::granted,
         "a request is ended with a reason");
  if (!w.judge(why))
    return false;
  w.session().leave_wait(w);
  look(table_.abandon(w));
  if (client == tell::yes)
    w.settled();
  return true;
}

void local_locks::settle_granted(waiter& w) {
  auto won = false;
  auto verdict = w.session().settle(w, won);
  if (verdict != outcome::granted) {
    auto* r = w.take_hold();
    look(table_.release(*r, true).look);
    hold_record::free(r);
    if (won)
      w.session().leave_wait(w);
  }
  if (won)
    w.settled();
}

// -- holds --------------------------------------------------------------------

bool local_locks::release(hold_record& r) {
  if (r.what != hold_record::kind::whole)
    return let_go(r, false);
  auto* owner = r.owner;
  if (!r.session->leave(r)) {
    session_ledger::drop(r);
    return false;
  }
  hold_record::free(&r);
  port_.release_whole(*owner);
  return true;
}

void local_locks::give_back(hold_record& r) {
  let_go(r, true);
}

bool local_locks::let_go(hold_record& r, bool to_prior) {
  auto end = table_.release(r, to_prior);
  look(end.look);
  if (r.session->leave(r)) [[likely]]
    hold_record::free(&r);
  else
    session_ledger::drop(r);
  return end.done;
}

bool local_locks::downgrade(hold_record& r) {
  auto end = table_.downgrade(r);
  look(end.look);
  return end.done;
}

void local_locks::install(const term& what, hold_record& r,
                          const std::function<void(hold_record&)>& conflict) {
  table_.install(what, r, conflict);
  if (r.session->enter(r))
    return;
  ensure(false, "a session of a peer is closed by its worker only");
}

// -- managers -----------------------------------------------------------------

local_locks::manage_result local_locks::manage(wait_queue& q,
                                               std::uint32_t limit) {
  auto batch = table_.grant(q, limit);
  manage_result result{batch.more, batch.detached, 0};
  if (batch.detached) {
    q.~wait_queue();
    block_pool::give(&q);
  }
  // Popped last is first in the list: turn it round, so that clients are told
  // in the order of their tickets.
  waiter* in_order = nullptr;
  while (batch.granted != nullptr) {
    auto* w = batch.granted;
    batch.granted = w->queue_next;
    w->queue_next = in_order;
    in_order = w;
  }
  while (in_order != nullptr) {
    auto* w = in_order;
    in_order = w->queue_next;
    w->queue_next = nullptr;
    ++result.grants;
    settle_granted(*w);
    w->unref(); // the queue's
  }
  return result;
}

// -- sessions -----------------------------------------------------------------

void local_locks::close(session_ledger& who, outcome why) {
  auto had = who.close();
  while (had.waits != nullptr) {
    auto* w = had.waits;
    had.waits = w->session_next;
    if (w->judge(why)) {
      look(table_.abandon(*w));
      w->settled();
    }
    w->unref(); // the ledger's
  }
  while (had.holds != nullptr) {
    auto* r = had.holds;
    had.holds = r->session_next;
    if (r->what == hold_record::kind::whole)
      port_.release_whole(*r->owner);
    else
      look(table_.release(*r).look);
    session_ledger::drop(*r);
  }
}

} // namespace pawl
