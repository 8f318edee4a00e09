// hold_record: that a session holds a term, in a mode. 64 bytes, pooled.
//
// A record is linked from the row of its term (who holds this?) and from the
// ledger of its session (what does this session hold?). The two lists are
// guarded by two different bits that are never held together, so a record is
// in one list and not yet, or no longer, in the other for some instructions:
// it enters the row first, then the ledger, and leaves in the same order. (The
// ledger keeps the session alive until the row is left: otherwise a new
// session at the same address could be taken for the old holder.)
//
// Who judges the end of a hold: of a record in a row, whoever takes it out of
// the row (its mode becomes `none` in that step); of a `whole`, whoever takes
// it out of the ledger.
//
// Who may touch what: row_*, token, mode: under the bit of the row's bucket.
// session_* and `entered`: under the bit of the session. The rest is written
// before the record is linked anywhere.

#pragma once

#include "pawl/core/block_pool.hpp"
#include "pawl/core/fencing.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/lock_mode.hpp"

#include <atomic>
#include <cstdint>

namespace pawl {

class session_ledger;

/// Where a part or a whole came from. Outlives its records: whoever owns them
/// derives from this.
struct hold_owner {
  session_id session;
  request_id request;
  attempt_number attempt = 0;
  /// Of a part: as it was asked for. Its record may be exclusive all the same,
  /// when that is what its session has kept.
  lock_mode asked = lock_mode::exclusive;
};

struct hold_record {
  /// What stands behind the record.
  enum class kind : std::uint8_t {
    /// A lock on this node; a handle of a client owns the record.
    direct,
    /// One node's part of a request for several nodes or terms; a worker owns
    /// the record. The end of the session does not end it: the request's does.
    part,
    /// A granted request for several nodes, as its home's ledger lists it. In
    /// no row; a handle of a client owns it.
    whole,
  };

  hold_record* row_next = nullptr;
  hold_record* row_prev = nullptr;
  hold_record* session_next = nullptr;
  hold_record* session_prev = nullptr;
  session_ledger* session = nullptr;
  /// Written under the bit of the row's bucket; its owner may read it without.
  std::atomic<fencing_token> token{0};
  union {
    /// direct: the serial of the session, which lives on this node.
    std::uint64_t serial;
    /// part, whole.
    hold_owner* owner = nullptr;
  };
  /// Low half of the term's hash: finds the bucket and the ledger's chain.
  std::uint32_t hash = 0;
  /// What was granted; `none` when not, or no longer, in a row. Read without a
  /// bit. A `whole` has the mode of its request.
  std::atomic<lock_mode> mode{lock_mode::none};
  kind what = kind::direct;
  /// Whether the ledger lists it.
  bool entered = false;
  /// Parties that still have a pointer to it: its owner, and who closes the
  /// session or revokes the hold meanwhile. A further party is added only
  /// under a bit under which the record is still listed.
  std::atomic<std::uint8_t> parties{1};
  /// Set in `parties` when the hold was taken away from its owner.
  static constexpr std::uint8_t lost_bit = 0x80;

  [[nodiscard]] bool lost() const noexcept {
    return (parties.load(std::memory_order_acquire) & lost_bit) != 0;
  }

  // -- pooled -----------------------------------------------------------------

  static hold_record* make() {
    return new (block_pool::take()) hold_record;
  }

  static void free(hold_record* x) noexcept {
    x->~hold_record();
    block_pool::give(x);
  }
};

static_assert(sizeof(hold_record) == block_pool::block_size);

} // namespace pawl
