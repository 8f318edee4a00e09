// lock_table: term -> row. The truth about who holds and who waits on one node
// in one scope.
//
// A row exists while somebody holds or waits for its term. Its word is the
// counter that everything turns on:
//
//    63        36 35         8 7   6     5       4    3  2     1       0
//   | waiters 28 | holders 28 | 0 | kept | mixed | queue | mode | used | guard |
//
//   guard    a spin bit for the whole bucket (only in the bucket's own word)
//   used     the row has a term
//   mode     none, shared or exclusive
//   queue    a wait_queue is attached; whoever waits in it comes first
//   mixed    a hand-over put holds together that exclude each other; until all
//            but one side are revoked nobody else gets in
//   kept     an exclusive record was released while others of its session
//            stay: exclusive until the last goes or one is downgraded, whatever
//            their modes say
//
//      +------+ acquire        +------+ acquire that conflicts  +-----------+
//      | free | -------------> | held | ----------------------> | contended |
//      +------+ <------------- +------+ <---------------------- +-----------+
//          ^     last release             detach, still held         |
//          +---------------------------------------------------------+
//                                detach, nobody holds
//
// An uncontended acquire is one atomic update of the bucket's word (take the
// bit), a few plain stores (the hold record), and one store that publishes the
// new word and lets go. So is a release. Nothing is allocated: the first row of
// a bucket lies in the bucket, which is one cache line, with terms of up to 27
// bytes; further rows and hold records come from the block pool.
//
// The table grows and shrinks by *linear hashing* (Litwin 1980): one bucket is
// split, or merged, at a time, so there is never a pause in which everything is
// moved. A bucket's index follows from the hash and the number of buckets in
// use; it is checked again after the bucket's bit has been taken, and a split
// or merge needs the bits of both its buckets.
//
// Beside the row lies the fencing counter of the bucket: the largest token
// issued or seen for any term in it. Splits copy it, merges take the larger.
//
// Invariants, with the bit held (check_invariants asserts them, I2 and I6 as
// far as one table can see them):
//   I1 exclusive implies that all hold records are of one session (or mixed).
//   I2 a queue exists iff a manager will look at it.
//   I3 where somebody waits, grants go to the head of the queue: by its
//      manager, or by the release that frees the row for an exclusive head, in
//      that step. (A covered request of a session that holds the term is not a
//      grant.)
//   I4 whatever can make the head of a queue grantable is followed by a look.
//   I5 a row exists iff it has a hold record or a queue.
//   I6 a granted request is in exactly one ledger, or given back.
//   I7 the word's counts are the lengths of the lists.
//   I8 every row lies in the bucket that its hash says.
//   I9 a row's mode is the strongest of its records' modes, or exclusive if
//      kept; the first record's token is the largest of them.
//
// This class does single steps, each under one bucket's bit. The sequences of
// steps that a lock and a release are made of, with the ledger in between, are
// in local_locks.hpp.
//
// Thread-safe. Nothing here blocks.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/guard_bit.hpp"
#include "pawl/core/hold_record.hpp"
#include "pawl/core/lock_mode.hpp"
#include "pawl/core/term.hpp"
#include "pawl/core/wait_for_graph.hpp"
#include "pawl/core/wait_queue.hpp"
#include "pawl/core/waiter.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace pawl {

struct lock_table_options {
  /// The slot of this node: the lowest bits of its tokens.
  node_slot slot = static_cast<node_slot>(0);
  /// No token at or below it is issued.
  fencing_token floor = 1 << fencing::slot_bits;
  /// Waiters in the whole table before requests are refused.
  std::uint32_t max_waiters = 1'000'000;
};

class lock_table {
public:
  explicit lock_table(const lock_table_options& options);

  ~lock_table();

  lock_table(const lock_table&) = delete;
  lock_table& operator=(const lock_table&) = delete;

  // -- acquire ----------------------------------------------------------------

  enum class verdict : std::uint8_t {
    granted,
    /// Somebody is in the way (try_acquire), or the waiter hangs (acquire).
    waits,
    /// The waiter had ended before it could hang.
    ended,
    /// It would hang, and must not.
    busy,
    too_many_waiters,
    /// An upgrade met an older one; both are for this node alone.
    deadlock,
  };

  /// The fast path. Links `r` (with session set) into the row of `what` if
  /// nobody waits and the modes allow it, or if the row is the session's
  /// exclusively; writes hash, mode and token into it. (An upgrade ahead of a
  /// queue may have to tell its manager: that is `acquire`'s.)
  [[nodiscard]] verdict try_acquire(const term& what, lock_mode mode,
                                    hold_record& r);

  /// What a waiting acquire found and caused.
  struct hang_result {
    verdict what = verdict::granted;
    /// Attached by this call: the caller must give it a manager.
    wait_queue* orphan = nullptr;
    /// Upgrades of a younger session that lost against this one, linked by
    /// queue_next; out of their queue, their references pass to the caller,
    /// who judges them `deadlock`.
    waiter* losers = nullptr;
    /// A manager to be told to look, or 0.
    manager_ref look = 0;
    /// acquire_covered: an upgrade was granted past those that wait.
    bool overtook = false;
  };

  /// The slow path: grants if it can after all, otherwise hangs the waiter on
  /// the row's queue in the same step. With `may_hold` (a hint from the
  /// ledger) a session that holds the term already is recognised: covered
  /// requests are granted, an upgrade goes ahead of the queue. The waiter's
  /// `hold` is linked when granted.
  [[nodiscard]] hang_result acquire(waiter& w, bool may_hold);

  /// For `no_wait`: grants what `acquire` would grant at once, else `waits`
  /// and nothing has changed.
  [[nodiscard]] hang_result acquire_covered(const term& what, lock_mode mode,
                                            hold_record& r);

  /// Puts a hold into the row, whoever is there: a hand-over, not a grant. The
  /// record has session, mode, hash and token set. Holds that conflict with it
  /// are reported to `conflict` (under the bit: note them, nothing else).
  /// Raises the counter to its token.
  void install(const term& what, hold_record& r,
               const std::function<void(hold_record&)>& conflict);

  // -- release ----------------------------------------------------------------

  struct end_of_hold {
    /// This call took the record out of the row (or changed its mode).
    bool done = false;
    /// A manager to be told to look, or 0.
    manager_ref look = 0;
    /// Who was granted the row in the same step, to be settled by the caller,
    /// who gets the queue's reference. Or null.
    waiter* granted = nullptr;
  };

  /// Takes a hold out of its row, once: later calls find nothing to do. A row
  /// that becomes free is passed on to an exclusive request at the head of its
  /// queue. The row is not touched after the step. With `to_prior` what is left of the
  /// holds decides the row's mode again: for a grant that nobody has seen, and
  /// for a hold that was lost.
  [[nodiscard]] end_of_hold release(hold_record& r, bool to_prior = false);

  /// Makes the session's hold on the term shared. Its tokens stay.
  [[nodiscard]] end_of_hold downgrade(hold_record& r);

  /// The same by its term. Not done if the session holds nothing there.
  [[nodiscard]] end_of_hold downgrade(const term& what,
                                      const session_ledger& who);

  struct end_of_wait {
    /// A manager to be told to look, or 0.
    manager_ref look = 0;
    /// Others of its session that it would have let in wait behind it.
    bool left_behind = false;
  };

  /// Takes a waiter out of its queue if it still hangs. The queue's reference
  /// is dropped here. O(1), and O(queue) if its session waits there more than
  /// once.
  [[nodiscard]] end_of_wait abandon(waiter& w);

  /// Writes a larger token into a hold and raises the counter to it.
  void raise(hold_record& r, fencing_token at_least);

  // -- deadlocks --------------------------------------------------------------

  /// The session of a waiter waits elsewhere, too; whether it hangs or not yet.
  void mark_elsewhere(waiter& w);

  /// Who is in the way of a waiter: holders of other sessions whose mode
  /// conflicts, and requests ahead of it that conflict and wait elsewhere, too.
  /// (Whatever the others ahead wait for, it waits for as well; except its own
  /// session: who waits for that is named, too, if it waited here before. And a
  /// shared request waits for shared ones, holders or ahead, only because of an
  /// exclusive one ahead: one of these is named if need be, not of `except`.
  /// Where an earlier request of its session will let it in, only what is ahead
  /// of that one is ahead of it.) Appends at most `limit`. False if it does not
  /// hang, or has ended. O(holders), and O(queue ahead) if somebody there waits
  /// elsewhere.
  [[nodiscard]] bool blockers(const waiter& w,
                              std::span<const attempt_name> except,
                              std::size_t limit,
                              std::vector<blocker>& out) const;

  /// Whether a session of this node has a direct hold that conflicts with a
  /// request in `mode`.
  [[nodiscard]] bool holds_against(const term& what, const session_id& who,
                                   lock_mode mode) const;

  // -- managers ---------------------------------------------------------------

  /// Gives a fresh queue its manager. Before that nobody else looks at it.
  void assign(wait_queue& q, manager_ref manager);

  struct grant_batch {
    /// Taken out of the queue, their records in the row, linked by queue_next;
    /// references pass to the caller, who settles each.
    waiter* granted = nullptr;
    /// There may be more to grant.
    bool more = false;
    /// The queue was empty: it is detached and belongs to the caller.
    bool detached = false;
  };

  /// The manager's step: grants from the head of the queue what is compatible,
  /// at most `limit`, but a crowd of shared requests at once; detaches the queue when it is empty. To be called by its
  /// manager only.
  [[nodiscard]] grant_batch grant(wait_queue& q, std::uint32_t limit);

  // -- tokens -----------------------------------------------------------------

  /// The largest token known for a term: what a request carries.
  [[nodiscard]] fencing_token known_token(const term& what) const;

  /// No token at or below `x` is issued from now on.
  void raise_floor(fencing_token x) noexcept;

  /// The largest token that came from elsewhere or was issued above one that
  /// did. Tokens issued for local requests alone are not in it: they grow from
  /// the floor by one a grant and so never outrun the time since the start.
  [[nodiscard]] fencing_token highest_token() const noexcept {
    return highest_seen_.load(std::memory_order_relaxed);
  }

  // -- queries ----------------------------------------------------------------

  /// The term of a hold, unless it has been given up.
  [[nodiscard]] std::optional<term> term_of(const hold_record& r) const;

  /// The word of a term's row, read under the bit: counts and mode.
  struct row_view {
    lock_mode mode = lock_mode::none;
    std::uint32_t holders = 0;
    std::uint32_t waiters = 0;
    /// A queue is attached, maybe an empty one that its manager has still to
    /// take away. Whether somebody waits is said by `waiters`.
    bool contended = false;
    /// Exclusive, though the exclusive hold has gone: its session has others.
    bool kept = false;
  };

  [[nodiscard]] row_view view(const term& what) const;

  /// Calls `f(const hold_record&)` for each holder of a term, under the bit.
  void for_each_holder(const term& what,
                       const std::function<void(const hold_record&)>& f) const;

  /// Calls `f(waiter&)` for each waiter of a term in order, under the bit.
  void for_each_waiter(const term& what,
                       const std::function<void(waiter&)>& f) const;

  /// Rows in the table. O(buckets); for reports and tests.
  [[nodiscard]] std::size_t rows() const;

  [[nodiscard]] std::uint32_t waiters() const noexcept {
    return waiters_.load(std::memory_order_relaxed);
  }

  /// Buckets in use.
  [[nodiscard]] std::size_t buckets() const noexcept {
    return extent_.load(std::memory_order_relaxed);
  }

  /// Brings the bucket of a term into the cache; for batches.
  void prefetch(const term& what) const noexcept {
    __builtin_prefetch(&table_[index_of(low(what.hash()),
                                        extent_.load(
                                          std::memory_order_relaxed))],
                       1);
  }

  /// Gives memory back that the present rows do not need. Called when idle;
  /// merges at most `steps` buckets and returns how many.
  std::size_t trim(std::size_t steps);

  /// I1 to I9 for every row, as far as one table can see them. Takes each bit
  /// in turn.
  void check_invariants() const;

  /// The half of a hash that finds the bucket.
  static constexpr std::uint32_t low(std::uint64_t hash) noexcept {
    return static_cast<std::uint32_t>(hash);
  }

private:
  static constexpr std::size_t inline_term = 27;
  static constexpr std::uint8_t heap_term = 0xff;
  static constexpr std::size_t base_buckets = 1024;
  static constexpr std::size_t max_buckets = std::size_t{1} << 26;
  static constexpr std::size_t buckets_per_page = 64;

  /// A row; the first of each bucket lies in the table itself, and its word
  /// and token are those of the bucket.
  struct alignas(64) row {
    std::atomic<std::uint64_t> word{0};
    fencing_token token = 0;
    union {
      hold_record* holders;
      wait_queue* queue; // when the word says so: it has the holders
    };
    row* chain = nullptr;
    std::uint32_t hash = 0;
    std::uint8_t size = 0;
    std::byte bytes[inline_term];
  };
  static_assert(sizeof(row) == 64 && block_pool::block_size == 64);

  // -- the word ---------------------------------------------------------------

  static constexpr std::uint64_t used_bit = 2;
  static constexpr unsigned mode_shift = 2;
  static constexpr std::uint64_t mode_mask = 3ull << mode_shift;
  static constexpr std::uint64_t queue_bit = 16;
  static constexpr std::uint64_t mixed_bit = 32;
  static constexpr std::uint64_t kept_bit = 64;
  static constexpr unsigned holders_shift = 8;
  static constexpr std::uint64_t one_holder = 1ull << holders_shift;
  static constexpr unsigned waiters_shift = 36;
  static constexpr std::uint64_t one_waiter = 1ull << waiters_shift;
  static constexpr std::uint64_t count_mask = (1ull << 28) - 1;
  static_assert(waiters_shift + 28 == 64);
  static_assert(holders_shift + 28 == waiters_shift);

  static constexpr lock_mode mode_of(std::uint64_t word) noexcept {
    return static_cast<lock_mode>((word & mode_mask) >> mode_shift);
  }

  static constexpr std::uint64_t with_mode(std::uint64_t word,
                                           lock_mode mode) noexcept {
    return (word & ~mode_mask)
           | (static_cast<std::uint64_t>(mode) << mode_shift);
  }

  static constexpr std::uint64_t holders_of(std::uint64_t word) noexcept {
    return (word >> holders_shift) & count_mask;
  }

  static constexpr std::uint64_t waiters_of(std::uint64_t word) noexcept {
    return (word >> waiters_shift) & count_mask;
  }

  // -- buckets ----------------------------------------------------------------

  /// A bucket whose bit this object holds. `word` is the next word of the
  /// bucket's own row; the destructor publishes it.
  class locked_bucket;

  /// Where a hash lies among `extent` buckets: below the next power of two if
  /// that bucket exists already, else in the bucket that it will split from.
  static constexpr std::size_t index_of(std::uint32_t hash,
                                        std::size_t extent) noexcept {
    auto level = std::bit_floor(extent);
    auto index = hash & (2 * level - 1);
    return index < extent ? index : hash & (level - 1);
  }

  static row* find(const locked_bucket& b, std::uint32_t hash,
                   const term& what) noexcept;
  static row& find(const locked_bucket& b, const hold_record& r) noexcept;
  static row& find(const locked_bucket& b, const wait_queue& q) noexcept;
  row& add_row(locked_bucket& b, const term& what, std::uint32_t hash);
  void remove_row(locked_bucket& b, row& x) noexcept;
  void unchain(locked_bucket& b, row& x) noexcept;
  void move_base(locked_bucket& from, locked_bucket& to, row* spare) noexcept;
  void move_chained(locked_bucket& from, row& x, locked_bucket& to) noexcept;
  static void copy_row(const row& from, row& to) noexcept;
  static std::span<const std::byte> term_of(const row& x) noexcept;

  // -- steps under the bit ----------------------------------------------------

  /// What the request wants of the row: the holders that its grant may meet.
  enum class access : std::uint8_t { conflict, join, upgrade, covered };
  static access access_of(const row& x, std::uint64_t word, lock_mode mode,
                          const session_ledger& who) noexcept;
  struct token_source {
    fencing_token carried = 0;
    bool adopt = false;
  };
  static bool holds(const hold_record* first,
                    const session_ledger& who) noexcept;
  static bool grantable(const row& x, std::uint64_t word) noexcept;
  static const waiter& gate_of(const waiter& w) noexcept;
  static std::uint64_t mode_again(std::uint64_t word,
                                  const hold_record* first) noexcept;
  static void keep_exclusive(hold_record* first,
                             const session_ledger& who) noexcept;
  static hold_record*& list_of(row& x, std::uint64_t word) noexcept;
  static void link_front(hold_record*& first, hold_record& r) noexcept;
  static hold_record* largest_of(hold_record* first,
                                 const session_ledger& who) noexcept;
  static hold_record* exclusive_of(hold_record* first,
                                   const session_ledger& who) noexcept;
  static void link_by_token(hold_record*& first, hold_record& r) noexcept;
  static void largest_first(hold_record*& first) noexcept;
  static void unlink(hold_record*& first, hold_record& r) noexcept;
  void enter(locked_bucket& b, row& x, hold_record& r, lock_mode mode,
             access how, token_source from) noexcept;
  verdict enter_held(locked_bucket& b, row& x, hold_record& r, lock_mode mode,
                     token_source from, bool may_hold,
                     manager_ref& look) noexcept;
  static end_of_hold make_shared(locked_bucket& b, row& x,
                                 const session_ledger& who) noexcept;
  void pass_on(locked_bucket& b, row& x, wait_queue& q,
               end_of_hold& out) noexcept;
  void grant_front(locked_bucket& b, row& x, wait_queue& q, waiter& w,
                   access how, grant_batch& out) noexcept;
  void grant_covered(locked_bucket& b, row& x, wait_queue& q,
                     const session_ledger& who, grant_batch& out) noexcept;
  bool outrank(locked_bucket& b, row& x, wait_queue& q, waiter& w,
               hang_result& result) noexcept;
  wait_queue& queue_for(locked_bucket& b, row& x, hang_result& result);
  fencing_token issue(row& bucket, token_source from) noexcept;
  void saw(fencing_token x) noexcept;
  void see(row& bucket, fencing_token x) noexcept;
  fencing_token current(const row& bucket) const noexcept;

  // -- growing ----------------------------------------------------------------

  bool count_overflow(std::size_t index, int change) noexcept;
  [[nodiscard]] std::int64_t overflow() const noexcept;
  void adapt() noexcept;
  bool split_one() noexcept;
  bool merge_one() noexcept;
  void return_page(std::size_t first) noexcept;
  void map_table();

  // -- members ----------------------------------------------------------------

  struct alignas(64) stripe {
    std::atomic<std::int64_t> rows{0};
  };
  static constexpr std::size_t stripes = 16;

  // constant after construction
  row* table_ = nullptr;
  std::size_t capacity_ = max_buckets;
  const lock_table_options options_;
  // read by everybody, written rarely
  std::atomic<std::uint64_t> extent_{base_buckets};
  std::atomic<fencing_token> floor_;
  std::atomic<fencing_token> highest_seen_;
  // slow path
  std::atomic<std::uint32_t> waiters_{0};
  std::atomic_flag resizing_ = ATOMIC_FLAG_INIT;
  stripe overflow_[stripes];
};

} // namespace pawl
