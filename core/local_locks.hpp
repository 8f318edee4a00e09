// local_locks: one scope on one node. Each lock, release, end and grant is a
// sequence of single steps on the table and the ledgers; all the sequences are
// here, because the order of the steps is what the interleavings are about.
//
//   lock, free        1 table: link record        2 ledger: enter
//                     closed? -> 3 table: take out again
//   lock, contended   1 ledger: list waiter       2 table: hang it
//                     orphan queue? -> 3 table: assign a manager   4 start it
//   grant             1 table: pop, link records (the manager, or in the same
//                     step as 1 of release)      2 ledger: judge and enter
//                     lost? -> 3 table: take out again      4 tell the client
//   end (anybody)     1 judge   2 ledger: take waiter out   3 table: take it out
//                     of its queue   4 tell the client
//   release           1 table: take record out, pop who gets the row
//                     2 to 4 of grant for that one, who may have ended and give
//                     it back: then for the next  5 ledger: take record out
//   session's end     1 ledger: close, take all   2 each as in end or release
//
// A session's bit and a bucket's bit are never held together. An end that comes
// before its waiter hangs (step 1 and 2 of lock) is seen by the hanging step,
// which reads the waiter's word under the bucket's bit.
//
// Used by actors (scope, term_manager), by the workers of other nodes, and by
// the simulator, each with a port of its own.
//
// Thread-safe; costs are those of the steps. Nothing here blocks.

#pragma once

#include "pawl/core/hold_record.hpp"
#include "pawl/core/lock_table.hpp"
#include "pawl/core/outcome.hpp"
#include "pawl/core/session_ledger.hpp"
#include "pawl/core/wait_queue.hpp"
#include "pawl/core/waiter.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace pawl {

/// What the sequences need of the world outside core.
class lock_port {
public:
  virtual ~lock_port();

  /// Takes an idle manager, or makes one. Called without any bit held.
  virtual manager_ref take_manager() = 0;

  /// The manager's queue from now on is `q`; it looks at it first. Only now may
  /// it touch the queue: before, the queue did not know its manager, and a
  /// stray look would have detached it under the hands of its attacher.
  virtual void start(manager_ref who, wait_queue& q) = 0;

  /// Tells a manager to look. May be early, late, doubled, or for a queue that
  /// it no longer has: then it does nothing.
  virtual void look(manager_ref who) = 0;

  /// A `whole` record has left its ledger: its request gives back what it
  /// holds on all nodes. Called once per record.
  virtual void release_whole(hold_owner& x) = 0;

  /// Who waits for whom has changed around a session, and nobody has entered a
  /// wait: a request ended in its queue ahead of another one of its session,
  /// which it would have let in. Time to search for cycles that go through the
  /// session. May be early or for nothing. Called without any bit held.
  virtual void left_waiting(const session_id& who) = 0;
};

class local_locks {
public:
  local_locks(const lock_table_options& options, lock_port& port);

  // -- requests ---------------------------------------------------------------

  /// Takes `what` for `who` without waiting. On `granted`, `hold` is the
  /// record, owned by the caller. Otherwise `pending` (somebody is in the way:
  /// ask again with a waiter), or `session_ended`.
  [[nodiscard]] outcome try_lock(session_ledger& who, const term& what,
                                 lock_mode mode, hold_record*& hold,
                                 session_ledger::share whose
                                 = session_ledger::share::fresh);

  /// As `try_lock`, and recognises a session that holds the term already even
  /// if others wait. `busy` instead of `pending`. `overtook`, if wanted: it was
  /// an upgrade past those that wait, who now wait for this session: time to
  /// search for cycles that go through it.
  [[nodiscard]] outcome try_lock_covered(session_ledger& who, const term& what,
                                         lock_mode mode, hold_record*& hold,
                                         bool* overtook = nullptr);

  /// Lists a waiter in its session without hanging it anywhere: while the scope
  /// is joining, and for requests that are asked elsewhere. False if the session
  /// has ended: then the waiter is settled.
  bool enlist(waiter& w);

  /// Second half of `lock`, for a waiter that is listed.
  void hang(waiter& w);

  /// Asks with a waiter: `enlist` and `hang`. The client keeps its own reference
  /// to it. Afterwards the waiter is granted, ended or waits; in the first two
  /// cases it has been settled, maybe by this call and on this stack.
  void lock(waiter& w);

  /// Ends a waiter. True if this call was the judge; then `settled()` has been
  /// called, unless told not to. False: it was granted or had ended before, and
  /// the judge calls `settled()`.
  enum class tell : bool { no, yes };
  bool end(waiter& w, outcome why, tell client = tell::yes);

  // -- holds ------------------------------------------------------------------

  /// Gives a hold up, on behalf of its owner, whose share ends here: the record
  /// must not be used afterwards. `already_released` if the session's end came
  /// first, `lost` if the hold was revoked.
  release_result release(hold_record& r);

  /// As `release`, for a grant that no client has seen: an upgrade falls back
  /// to the prior mode.
  void give_back(hold_record& r);

  /// Notes a record that is to be revoked. To be called under a bit under which
  /// it is listed (by the `conflict` of install), so that it stays valid.
  static void pin(hold_record& r) noexcept {
    r.parties.fetch_add(1, std::memory_order_relaxed);
  }

  /// Takes a pinned hold away from its owner, unless it was given up meanwhile,
  /// tells its session, and drops the pin. For direct records; parts belong to
  /// their workers. Returns whether it was taken.
  bool revoke(hold_record& r, const term& what = {});

  /// Makes the session's hold on the term shared. False if it is not held any
  /// more.
  bool downgrade(hold_record& r);

  /// The same by its term, for a hold of which this node has a part. Nothing if
  /// it has none.
  void downgrade(const term& what, const session_ledger& who);

  /// Puts a hold of a joining or healing peer into its row; see
  /// lock_table::install. The record is entered into its session's ledger.
  void install(const term& what, hold_record& r,
               const std::function<void(hold_record&)>& conflict);

  // -- managers ---------------------------------------------------------------

  /// The manager `self` looks at its queue and does what there is to do, at
  /// most `limit` grants. Returns whether it should look again soon.
  struct manage_result {
    bool more = false;
    /// The queue is gone (and freed); the manager is idle.
    bool idle = false;
    std::uint32_t grants = 0;
  };
  manage_result manage(wait_queue& q, std::uint32_t limit);

  // -- sessions ---------------------------------------------------------------

  /// Ends a session: its waiters end with `why`, its direct and whole holds
  /// are released. Parts stay with their workers. Idempotent; true for the first
  /// call. O(what it has).
  bool close(session_ledger& who, outcome why);

  // -- what ends without its home ---------------------------------------------

  /// What came from another node is about to end here, and not because its home
  /// said so: the link is gone, or a request is refused. Its home goes on to
  /// believe in it for a while; who asks for a proof must not (walk.hpp).
  void note_own_end() noexcept {
    own_ends_.fetch_add(1);
  }

  /// How often. Two equal answers mean that nothing ended so in between.
  [[nodiscard]] std::uint64_t own_ends() const noexcept {
    return own_ends_.load();
  }

  // -- access -----------------------------------------------------------------

  [[nodiscard]] lock_table& table() noexcept {
    return table_;
  }

  [[nodiscard]] const lock_table& table() const noexcept {
    return table_;
  }

private:
  void look(manager_ref who) {
    if (who != 0)
      port_.look(who);
  }

  [[nodiscard]] lock_table::end_of_hold settle_granted(waiter& w);
  void after(lock_table::end_of_hold end);
  void refuse(waiter& w, outcome why);
  release_result let_go(hold_record& r, bool to_prior);

  struct free_record {
    void operator()(hold_record* r) const noexcept {
      hold_record::free(r);
    }
  };
  using fresh_record = std::unique_ptr<hold_record, free_record>;
  static fresh_record new_record(session_ledger& who);

  lock_table table_;
  lock_port& port_;
  std::atomic<std::uint64_t> own_ends_{0};
};

} // namespace pawl
