// session_ledger: what one session holds and waits for.
//
//      +------+   close (its actor ended, its node went down)   +--------+
//      | open | ----------------------------------------------> | closed |
//      +------+                                                 +--------+
//
//   open:    holds are entered and left, waits likewise. Both from any thread.
//   closed:  nothing can be entered: who tries gives back what it brought.
//            What was listed has been taken out by the one who closed it; parts
//            of requests stay until their worker takes them out.
//
// The word: bit 0 guard, bit 1 closed, the rest counts what keeps the ledger
// alive: handles of the session, records (until their owner lets go), waiters.
// When the count falls to zero, `last_gone()` is called and the ledger belongs
// to nobody.
//
// Invariants, with the bit held: L1 closed implies no direct or whole record
// and no waiter is listed. L2 count >= records + waiters listed. L3 every
// record of a chain has `entered` and the hash of that chain. L4 age is
// "holds nothing" iff no record is listed, unless the home says it (age), a
// request for several nodes has an age (claim_age), or the session keeps its
// age (keep_age): then it is never "holds nothing" again once a record was
// listed.
//
// Thread-safe. Nothing here blocks. Costs: enter and leave are one atomic
// update and some plain stores each, independent of how much is held (the
// chains grow; the amortised cost is in `grow`).

#pragma once

#include "pawl/core/guard_bit.hpp"
#include "pawl/core/hold_record.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/waiter.hpp"

#include <atomic>
#include <cstdint>

namespace pawl {

/// The Lamport clock of a node: read when a session takes its first lock,
/// raised above what peers say. One per node, shared by all its scopes.
class lamport_clock {
public:
  [[nodiscard]] std::uint64_t now() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

  /// A local event: later sessions are younger.
  void tick() noexcept {
    value_.fetch_add(1, std::memory_order_relaxed);
  }

  /// A peer's time was seen.
  void raise(std::uint64_t seen) noexcept;

private:
  std::atomic<std::uint64_t> value_{1};
};

class session_ledger {
public:
  /// `party` is whose session it is (an actor, a thread), for telling a caller
  /// that it would wait for itself; any address that is unique, or null.
  session_ledger(session_id id, const lamport_clock& clock,
                 const void* party = nullptr) noexcept;

  session_ledger(const session_ledger&) = delete;
  session_ledger& operator=(const session_ledger&) = delete;

  // -- life -------------------------------------------------------------------

  /// One more handle. The caller has one already, or `try_ref`.
  void ref() noexcept;

  /// One more handle unless the last is gone already.
  bool try_ref() noexcept;

  /// One handle less; may call `last_gone()`.
  void unref() noexcept;

  /// What `close` took out: each list linked by session_next.
  struct contents {
    hold_record* holds = nullptr;
    waiter* waits = nullptr;
    bool was_open = false;
  };

  /// Closes the ledger for ever. The caller becomes a party to the records and
  /// waiters that it is handed, and must end each of them. Idempotent: later
  /// calls are handed nothing. O(what is listed), one step under the bit.
  contents close() noexcept;

  // -- waits ------------------------------------------------------------------

  /// Lists a waiter, before it hangs on a row, and notes whether it has
  /// company: then one of the two may be granted, but not be in the list of
  /// holds yet, when the other hangs. False if closed.
  [[nodiscard]] bool enter_wait(waiter& w) noexcept;

  /// Takes it out if it is listed.
  void leave_wait(waiter& w) noexcept;

  // -- holds ------------------------------------------------------------------

  /// Whose share of the count a record is listed with.
  enum class share : std::uint8_t {
    /// One of its own.
    fresh,
    /// That of a handle of the caller, which has no handle any more.
    of_caller,
  };

  /// Lists a record that was granted at once. False if closed: the caller gives
  /// the hold back, and has still the handle that it had.
  [[nodiscard]] bool enter(hold_record& r, share whose = share::fresh) noexcept;

  /// The grantor's step, in one section: judges `w`; if it wins, the waiter
  /// leaves the list and its record enters it. Returns how the waiter has
  /// ended; anything but `granted` means: give the hold back. `won` tells
  /// whether this call was the judge.
  outcome settle(waiter& w, bool& won) noexcept;

  /// The hold of a waiter whose word says granted, for who has not waited for
  /// `settled()`: behind the section in which the grantor lists it.
  [[nodiscard]] hold_record* take_granted(waiter& w) noexcept;

  /// Takes a record out on behalf of its owner, and drops the owner's share:
  /// the record must not be used afterwards. May call `last_gone()`. False if
  /// somebody else had taken it out already.
  bool leave(hold_record& r) noexcept;

  /// Takes a record out if it is listed, on behalf of another party than its
  /// owner, who has to drop its share afterwards.
  bool take_out(hold_record& r) noexcept;

  /// Takes the `whole` record of `owner` out, if it is listed, and marks it
  /// lost. The caller becomes a party to it. Null if it was given up before.
  hold_record* take_out_lost(std::uint32_t hash,
                             const hold_owner& owner) noexcept;

  /// The `whole` record of `owner` says shared from now on, if it is listed:
  /// the session's hold was downgraded by whatever handle.
  void make_shared(std::uint32_t hash, const hold_owner& owner) noexcept;

  /// A hold of this session was taken away: tells the client. Called by
  /// whoever revoked it, before it drops its share; no bit is held.
  virtual void revoked(hold_record& r) noexcept;

  /// The same, told by who knows the term; by default it is `revoked`.
  virtual void taken_away(const term& what, hold_record& r) noexcept;

  /// Drops one party's share of a record that is in no list; frees it with the
  /// last. May call `last_gone()`.
  static void drop(hold_record& r) noexcept;

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] const session_id& id() const noexcept {
    return id_;
  }

  [[nodiscard]] const void* party() const noexcept {
    return party_;
  }

  [[nodiscard]] bool closed() const noexcept {
    return (word_.load(std::memory_order_acquire) & closed_bit) != 0;
  }

  /// A hint for the slow path: whether a record for a term of this hash is
  /// listed. O(1).
  [[nodiscard]] bool may_hold(std::uint32_t hash) noexcept;

  /// Whether the `whole` record of `owner` is listed.
  [[nodiscard]] bool lists(std::uint32_t hash,
                           const hold_owner& owner) const noexcept;

  /// Whether it holds anything: only then can a wait of it close a cycle.
  [[nodiscard]] bool holds_something() const noexcept {
    return holds_.load(std::memory_order_relaxed) > 0;
  }

  [[nodiscard]] std::uint32_t holds() const noexcept {
    return holds_.load(std::memory_order_relaxed);
  }

  /// Waiters listed.
  [[nodiscard]] std::uint32_t waits() const noexcept {
    return waits_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] session_age age() const noexcept {
    return {lamport_.load(std::memory_order_relaxed),
            {id_.home, elder_.load(std::memory_order_relaxed)}};
  }

  /// For a session of another node: its home says how old it is.
  void age(const session_age& x) noexcept;

  /// A request of the session has a part of what it asks for, on whatever node:
  /// until `drop_claim` the session is at least that old, whatever is listed.
  /// What is listed by then stays as old. Each claim is dropped once.
  void claim_age(std::uint64_t lamport) noexcept;
  void drop_claim() noexcept;

  /// For a session of a body that may be run again: from its first lock on, its
  /// age stays, also while it holds nothing. If `first` is an age that a try of
  /// the same body had (on this node), the session is that old from the start,
  /// ties included: whatever came after that try is younger. To be called
  /// before the session is used.
  void keep_age(const session_age& first = {}) noexcept;

  /// Calls `f(const hold_record&)` for each record under the bit. O(held); for
  /// reports only.
  template <class F>
  void for_each_hold(F f) const {
    auto word = take_guard(word_);
    for (std::uint32_t i = 0; i <= mask_; ++i)
      for (auto* r = chains_[i]; r != nullptr; r = r->session_next)
        f(static_cast<const hold_record&>(*r));
    drop_guard(word_, word);
  }

  /// L1 to L4. Takes the bit.
  void check_invariants() const;

protected:
  virtual ~session_ledger();

private:
  /// The last handle, record and waiter are gone. Called without the bit, once.
  virtual void last_gone() noexcept = 0;

  static constexpr std::uint64_t closed_bit = 2;
  static constexpr std::uint64_t one = 4;

  void unlock_minus_one(std::uint64_t word) noexcept;
  void link(hold_record& r) noexcept;
  void forget_age() noexcept;
  [[nodiscard]] hold_record* find(std::uint32_t hash,
                                  const hold_owner& owner) const noexcept;
  void unlink(hold_record& r) noexcept;
  void unlink(waiter& w) noexcept;
  void grow() noexcept;

  mutable std::atomic<std::uint64_t> word_{one};
  // -- guarded by the bit -----------------------------------------------------
  hold_record** chains_;
  hold_record* first_chain_ = nullptr; // chains_ until the first growth
  waiter* waiting_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t claims_ = 0;
  bool foreign_age_ = false;
  bool kept_age_ = false;
  // -- written under the bit, read by anybody ---------------------------------
  std::atomic<std::uint32_t> holds_{0};
  std::atomic<std::uint32_t> waits_{0};
  std::atomic<std::uint64_t> lamport_{session_age::holds_nothing};
  std::atomic<std::uint64_t> elder_; // the serial in the age: of its first try
  // -- constant ---------------------------------------------------------------
  const session_id id_;
  const lamport_clock& clock_;
  const void* const party_;
};

} // namespace pawl
