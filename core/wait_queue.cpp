#include "pawl/core/wait_queue.hpp"

#include "pawl/core/ensure.hpp"

namespace pawl {

void wait_queue::hang(waiter& w) noexcept {
  ensure(w.queue == nullptr, "a waiter hangs on one queue");
  w.ref();
  // The place: behind the last one, or behind the last upgrade.
  link(w, w.upgrade ? last_upgrade() : tail_);
}

waiter* wait_queue::last_upgrade() const noexcept {
  waiter* result = nullptr;
  for (auto* x = head_; x != nullptr && x->upgrade; x = x->queue_next)
    result = x;
  return result;
}

void wait_queue::link(waiter& w, waiter* before) noexcept {
  w.queue = this;
  auto* after = before != nullptr ? before->queue_next : head_;
  w.queue_prev = before;
  w.queue_next = after;
  (before != nullptr ? before->queue_next : head_) = &w;
  (after != nullptr ? after->queue_prev : tail_) = &w;
  ++size_;
  companions_ += w.company;
  elsewhere_ += w.elsewhere;
}

void wait_queue::take_out(waiter& w) noexcept {
  ensure(w.queue == this, "a waiter is taken out of the queue it hangs on");
  (w.queue_prev != nullptr ? w.queue_prev->queue_next : head_) = w.queue_next;
  (w.queue_next != nullptr ? w.queue_next->queue_prev : tail_) = w.queue_prev;
  w.queue = nullptr;
  w.queue_next = nullptr;
  w.queue_prev = nullptr;
  --size_;
  companions_ -= w.company;
  elsewhere_ -= w.elsewhere;
}

void wait_queue::mark_elsewhere(waiter& w) noexcept {
  ensure(w.queue == this, "only who hangs here is marked here");
  elsewhere_ += !w.elsewhere;
  w.elsewhere = true;
}

void wait_queue::demote(waiter& w) noexcept {
  ensure(w.upgrade, "only an upgrade is demoted");
  take_out(w);
  w.upgrade = false;
  link(w, last_upgrade());
}

void wait_queue::demote_all(const session_ledger& who) noexcept {
  for (auto* u = last_upgrade(); u != nullptr;) {
    auto* ahead = u->queue_prev;
    if (&u->session() == &who)
      demote(*u);
    u = ahead;
  }
}

void wait_queue::check_invariants() const {
  std::uint32_t length = 0;
  std::uint32_t companions = 0;
  std::uint32_t elsewhere = 0;
  bool in_upgrades = true;
  const waiter* before = nullptr;
  for (auto* x = head_; x != nullptr; x = x->queue_next) {
    ++length;
    companions += x->company;
    elsewhere += x->elsewhere;
    ensure(x->queue == this, "Q2: each waiter points to its queue");
    ensure(x->queue_prev == before, "the list is linked both ways");
    ensure(in_upgrades || !x->upgrade, "Q3: upgrades come first");
    in_upgrades = x->upgrade;
    before = x;
  }
  ensure(tail_ == before, "the tail is the last waiter");
  ensure(length == size_, "Q1: the size is the length of the list");
  ensure(companions == companions_, "Q5: companions are counted");
  ensure(elsewhere == elsewhere_, "Q6: those that wait elsewhere are counted");
  ensure(!look_pending || manager != 0, "Q4: only a manager can be told");
}

} // namespace pawl
