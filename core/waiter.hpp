// waiter: one ask for one term on one node, from the moment at which it has to
// wait until it has ended.
//
//                    settle (manager or release, under the session's bit)
//        +---------+ ------------------------------------------> granted
//        | waiting |
//        +---------+ ------------------------------------------> ended(why)
//                    end (deadline, cancel, death, deadlock, ...)
//
// The word of the waiter judges: one compare-exchange leaves `waiting`, and
// whoever wins it carries the consequence: the grantor enters the hold into the
// ledger, the ender takes the waiter out of its queue. A grantor that loses
// gives the hold back. Nobody else ever decides how the ask ended.
//
// Invariants: W1 the word leaves `waiting` once. W2 `settled()` is called once,
// by the winner, after the consequence. W3 while linked in a queue the waiter
// is kept alive by it.

#pragma once

#include "pawl/core/hold_record.hpp"
#include "pawl/core/lock_mode.hpp"
#include "pawl/core/outcome.hpp"
#include "pawl/core/term.hpp"

#include <atomic>
#include <cstdint>

namespace pawl {

class session_ledger;
class wait_queue;

class waiter {
public:
  /// Waits for `what` on behalf of `who`. The new hold record will be of
  /// `kind`.
  waiter(session_ledger& who, term what, lock_mode mode,
         hold_record::kind kind);

  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  // -- properties -------------------------------------------------------------

  [[nodiscard]] session_ledger& session() const noexcept {
    return session_;
  }

  [[nodiscard]] const term& what() const noexcept {
    return what_;
  }

  [[nodiscard]] lock_mode mode() const noexcept {
    return mode_;
  }

  /// `pending` while waiting. Acquire: what the winner did before is visible.
  [[nodiscard]] outcome state() const noexcept {
    return word_.load(std::memory_order_acquire);
  }

  /// The one judgement. True for the one caller that wins.
  bool judge(outcome verdict) noexcept {
    auto expected = outcome::pending;
    return word_.compare_exchange_strong(expected, verdict,
                                         std::memory_order_acq_rel,
                                         std::memory_order_acquire);
  }

  /// Once settled as granted: the hold. Passes to the caller, who is its owner
  /// from now on; null afterwards. Whoever has only seen the word, and not heard
  /// `settled()`, uses session_ledger::take_granted: the grantor may be about to
  /// list the hold.
  hold_record* take_hold() noexcept {
    auto* result = hold;
    hold = nullptr;
    return result;
  }

  // -- reference counting -----------------------------------------------------

  void ref() noexcept {
    references_.fetch_add(1, std::memory_order_relaxed);
  }

  void unref() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete this;
  }

  // -- links, for wait_queue, session_ledger and local_locks ------------------

  waiter* queue_next = nullptr; // bucket's bit
  waiter* queue_prev = nullptr;
  wait_queue* queue = nullptr; // where it hangs; null when it does not
  waiter* session_next = nullptr; // session's bit
  waiter* session_prev = nullptr;
  bool entered = false; // the ledger lists it; session's bit
  bool upgrade = false; // ahead of the queue; bucket's bit
  /// Its session waited for this term already when it was listed, or so its
  /// hash says, or asked for it again before it hung. Written before it hangs.
  bool company = false;
  /// Its session has asked for this term again. Session's bit; to be read under
  /// the bucket's bit: whoever met it comes there later.
  std::atomic<bool> met{false};
  /// Its session waits elsewhere, too, or did: who is behind it has to be able to
  /// follow it there. Bucket's bit, or before it is known to anybody.
  bool elsewhere = false;
  /// An upgrade that was granted at once, past those that wait: from now on
  /// they wait for its session, and a search for a deadlock begins there.
  bool overtook = false;
  /// Its name in a search for a deadlock. Written before it is listed.
  request_id request;
  attempt_number attempt = 0;
  /// Raise the token to be issued above this one, or adopt it; see
  /// request_message.
  fencing_token carried = 0;
  bool adopt = false;
  /// Of two upgrades for one node alone: the other one, for who is told
  /// `deadlock`.
  /// Bucket's bit, before it is judged.
  session_id rival;
  /// Ends `busy` instead of hanging, without an effect on others.
  bool no_wait = false;
  /// The record that will go in. For a `whole` request for several terms: the
  /// first of a list linked by row_next.
  hold_record* hold = nullptr;

protected:
  virtual ~waiter();

private:
  friend class local_locks;

  /// Called once, after the consequence of the verdict. From any thread. Must
  /// not block; may not call back into the lock table on the same stack other
  /// than through a message.
  virtual void settled() noexcept = 0;

  session_ledger& session_;
  term what_;
  lock_mode mode_;
  std::atomic<outcome> word_{outcome::pending};
  std::atomic<std::uint32_t> references_{1};
};

} // namespace pawl
