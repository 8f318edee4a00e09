// wait_queue: one contended term. Who waits, who is next, who manages it.
//
//   (no queue) --attach: the first waiter hangs--> orphan --assign--> managed
//        ^                                                              |
//        +-------------- detach: empty, found by its manager -----------+
//
//   orphan:   the thread that attached it is about to give it a manager, which
//             looks first. Nobody else needs to wake anybody.
//   managed:  its manager grants, and a release that frees the row for an
//             exclusive head. Whoever else may have made the head grantable
//             sets `look_pending` and, if it was clear, sends one "look".
//
// The order is the order of the list: a place in it is a ticket. An upgrade
// hangs in front, behind other upgrades. Everything here is guarded by the bit
// of the row's bucket; the queue is handed to the manager's pool when detached.
//
// Invariants: Q1 size is the length of the list. Q2 each waiter of the list
// points to this queue. Q3 upgrades are a prefix of the list. Q4 look_pending
// implies managed. Q5 companions is the number of waiters with `company`.
// Q6 elsewhere is the number of waiters with `elsewhere`.

#pragma once

#include "pawl/core/hold_record.hpp"
#include "pawl/core/waiter.hpp"

#include <cstdint>

namespace pawl {

/// An actor that grants contended rows, as a number: its place among the
/// managers of its scope. 0 is none.
using manager_ref = std::uint32_t;

class wait_queue {
public:
  // -- events (under the bucket's bit) ----------------------------------------

  /// Takes the last place, or for an upgrade the place behind the other
  /// upgrades. The queue keeps a reference to the waiter.
  void hang(waiter& w) noexcept;

  /// Takes a waiter out, wherever it is. The caller gets the reference.
  void take_out(waiter& w) noexcept;

  /// The session of an upgrade holds nothing here any more: the upgrade goes
  /// behind those that are still upgrades, ahead of all others. Nobody begins
  /// to wait for somebody by that: those that are still upgrades hold the term,
  /// so it waited for their sessions before.
  void demote(waiter& w) noexcept;

  /// The same for all upgrades of a session; they keep their order.
  void demote_all(const session_ledger& who) noexcept;

  /// The session of a waiter that hangs here waits elsewhere, too.
  void mark_elsewhere(waiter& w) noexcept;

  /// Somebody should look: returns the manager to be told, or 0 if it has
  /// been told already or does not exist yet (it looks first).
  [[nodiscard]] manager_ref want_look() noexcept {
    if (manager == 0 || look_pending)
      return 0;
    look_pending = true;
    return manager;
  }

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] waiter* front() const noexcept {
    return head_;
  }

  [[nodiscard]] bool empty() const noexcept {
    return head_ == nullptr;
  }

  [[nodiscard]] std::uint32_t size() const noexcept {
    return size_;
  }

  /// Waiters whose session waited here already when they came. Only if there
  /// are any can a grant cover more than the waiter that it is meant for.
  [[nodiscard]] std::uint32_t companions() const noexcept {
    return companions_;
  }

  /// Waiters that a search for a deadlock has to follow to other places. If there
  /// are none it need not look at the queue ahead of a wait: whatever they wait
  /// for here, that one waits for, too.
  [[nodiscard]] std::uint32_t elsewhere() const noexcept {
    return elsewhere_;
  }

  /// The upgrade that stands first, or null.
  [[nodiscard]] waiter* upgrader() const noexcept {
    return head_ != nullptr && head_->upgrade ? head_ : nullptr;
  }

  [[nodiscard]] bool has_upgrade_of(const session_ledger& who) const noexcept {
    for (auto* u = upgrader(); u != nullptr && u->upgrade; u = u->queue_next)
      if (&u->session() == &who)
        return true;
    return false;
  }

  void check_invariants() const;

  // -- state beside the list --------------------------------------------------

  hold_record* holders = nullptr; // the row's list, while the queue is attached
  std::uint32_t hash = 0;
  manager_ref manager = 0;
  bool look_pending = false;

private:
  [[nodiscard]] waiter* last_upgrade() const noexcept;
  void link(waiter& w, waiter* before) noexcept;

  waiter* head_ = nullptr;
  waiter* tail_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t companions_ = 0;
  std::uint32_t elsewhere_ = 0;
};

} // namespace pawl
