#include "pawl/core/local_locks.hpp"

#include "pawl/core/ensure.hpp"

namespace pawl {

lock_port::~lock_port() = default;

local_locks::local_locks(const lock_table_options& options, lock_port& port)
  : table_(options), port_(port) {
  // nop
}

// -- requests -----------------------------------------------------------------

local_locks::fresh_record local_locks::new_record(session_ledger& who) {
  fresh_record r{hold_record::make()};
  r->session = &who;
  r->serial = who.id().serial;
  return r;
}

outcome local_locks::try_lock(session_ledger& who, const term& what,
                              lock_mode mode, hold_record*& hold,
                              session_ledger::share whose) {
  auto fresh = new_record(who);
  auto& r = *fresh;
  if (table_.try_acquire(what, mode, r) != lock_table::verdict::granted)
    return outcome::pending;
  if (who.enter(r, whose)) [[likely]] {
    hold = fresh.release();
    return outcome::granted;
  }
  after(table_.release(r, true));
  return outcome::session_ended;
}

outcome local_locks::try_lock_covered(session_ledger& who, const term& what,
                                      lock_mode mode, hold_record*& hold,
                                      bool* overtook) {
  auto fresh = new_record(who);
  auto& r = *fresh;
  auto found = table_.acquire_covered(what, mode, r);
  look(found.look);
  if (overtook != nullptr)
    *overtook = found.overtook;
  if (found.what != lock_table::verdict::granted)
    return who.closed() ? outcome::session_ended : outcome::busy;
  if (who.enter(r)) {
    hold = fresh.release();
    return outcome::granted;
  }
  after(table_.release(r, true));
  return outcome::session_ended;
}

bool local_locks::enlist(waiter& w) {
  if (w.session().enter_wait(w))
    return true;
  refuse(w, outcome::session_ended);
  return false;
}

void local_locks::lock(waiter& w) {
  if (enlist(w))
    hang(w);
}

void local_locks::hang(waiter& w) {
  auto& who = w.session();
  // In this order: a request of the session that was listed when this one came
  // either still has no record, or its record is listed by now.
  auto may_hold = w.company
                  || who.may_hold(lock_table::low(w.what().hash()));
  lock_table::hang_result hung;
  try {
    hung = table_.acquire(w, may_hold);
  } catch (...) {
    who.leave_wait(w); // no memory for a row; nothing has changed there
    throw;
  }
  look(hung.look);
  while (hung.losers != nullptr) {
    auto* loser = hung.losers;
    hung.losers = loser->queue_next;
    loser->queue_next = nullptr;
    refuse(*loser, outcome::deadlock);
    if (loser->session().waits() > 0)
      port_.left_waiting(loser->session().id());
    loser->unref(); // the queue's
  }
  switch (hung.what) {
    case lock_table::verdict::granted:
      after(settle_granted(w));
      break;
    case lock_table::verdict::deadlock:
      refuse(w, outcome::deadlock);
      break;
    case lock_table::verdict::busy:
      refuse(w, outcome::busy);
      break;
    case lock_table::verdict::too_many_waiters:
      refuse(w, outcome::too_many_waiters);
      break;
    case lock_table::verdict::ended:
      // Whoever ended it may have come before it was listed.
      who.leave_wait(w);
      break;
    case lock_table::verdict::waits:
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
  auto abandoned = table_.abandon(w);
  look(abandoned.look);
  if (abandoned.left_behind)
    port_.left_waiting(w.session().id());
  if (client == tell::yes)
    w.settled();
  return true;
}

lock_table::end_of_hold local_locks::settle_granted(waiter& w) {
  lock_table::end_of_hold end;
  auto won = false;
  auto verdict = w.session().settle(w, won);
  if (verdict != outcome::granted) {
    auto* r = w.take_hold();
    end = table_.release(*r, true);
    hold_record::free(r);
    if (won)
      w.session().leave_wait(w);
    // It was out of its queue before whoever ended it could see whom it left.
    if (w.session().waits() > 0)
      port_.left_waiting(w.session().id());
  }
  if (won)
    w.settled();
  return end;
}

/// Tells the manager, and settles whom the row was passed on to. If that one has
/// ended it gives the row back, which passes it on again.
void local_locks::after(lock_table::end_of_hold end) {
  look(end.look);
  while (end.granted != nullptr) {
    auto* w = end.granted;
    end = settle_granted(*w);
    w->unref(); // the queue's
    look(end.look);
  }
}

// -- holds --------------------------------------------------------------------

release_result local_locks::release(hold_record& r) {
  if (r.what != hold_record::kind::whole)
    return let_go(r, false);
  auto* owner = r.owner;
  auto lost = r.lost();
  if (r.session->leave(r)) {
    port_.release_whole(*owner);
    return release_result::released;
  }
  return lost ? release_result::lost : release_result::already_released;
}

void local_locks::give_back(hold_record& r) {
  ensure(r.what != hold_record::kind::whole, "a whole is in no row");
  let_go(r, true);
}

release_result local_locks::let_go(hold_record& r, bool to_prior) {
  auto end = table_.release(r, to_prior);
  after(end);
  auto lost = r.lost();
  r.session->leave(r);
  if (end.done)
    return release_result::released;
  return lost ? release_result::lost : release_result::already_released;
}

bool local_locks::revoke(hold_record& r, const term& what) {
  // Before the row is left: its owner may find it gone right then, and ask why.
  r.parties.fetch_or(hold_record::lost_bit, std::memory_order_acq_rel);
  auto end = table_.release(r, true);
  after(end);
  if (!end.done) {
    r.parties.fetch_and(static_cast<std::uint8_t>(~hold_record::lost_bit),
                        std::memory_order_acq_rel);
  } else {
    r.session->take_out(r);
    r.session->taken_away(what, r);
  }
  session_ledger::drop(r);
  return end.done;
}

bool local_locks::downgrade(hold_record& r) {
  ensure(r.what != hold_record::kind::whole, "a whole is in no row");
  auto end = table_.downgrade(r);
  look(end.look);
  return end.done;
}

void local_locks::downgrade(const term& what, const session_ledger& who) {
  look(table_.downgrade(what, who).look);
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
    after(settle_granted(*w));
    w->unref(); // the queue's
  }
  return result;
}

// -- sessions -----------------------------------------------------------------

bool local_locks::close(session_ledger& who, outcome why) {
  auto had = who.close();
  while (had.waits != nullptr) {
    auto* w = had.waits;
    had.waits = w->session_next;
    if (w->judge(why)) {
      look(table_.abandon(*w).look);
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
      after(table_.release(*r));
    session_ledger::drop(*r);
  }
  return had.was_open;
}

} // namespace pawl
