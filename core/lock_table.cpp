#include "pawl/core/lock_table.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/core/planted.hpp"
#include "pawl/core/session_ledger.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include <sys/mman.h>

namespace pawl {

namespace {

/// Rows outside their bucket, as a share of the buckets: above 1/4 (a load of
/// about 0.8) buckets are split, below 1/32 (about 0.26) they are merged.
constexpr std::int64_t split_share = 4;
constexpr std::int64_t merge_share = 32;

/// A stripe's count asks for a change of size at each multiple of this.
constexpr std::int64_t adapt_every = 16;

/// Buckets split or merged per change of size: more than what `adapt_every`
/// new rows need, so the table keeps up.
constexpr int adapt_steps = 128;

} // namespace

// -- the bucket's bit ---------------------------------------------------------

class lock_table::locked_bucket {
public:
  /// The bucket of a hash.
  locked_bucket(const lock_table& table, std::uint32_t hash) noexcept
    : table_(const_cast<lock_table&>(table)) {
    for (;;) {
      index = index_of(hash, table_.extent_.load(std::memory_order_relaxed));
      base = &table_.table_[index];
      word = take_guard(base->word);
      // A split or merge of this bucket needs its bit; so once it is taken and
      // the extent still says this index, it goes on saying so.
      if (index_of(hash, table_.extent_.load(std::memory_order_relaxed))
          == index) [[likely]]
        return;
      drop_guard(base->word, word);
    }
  }

  /// A bucket by index: for splits, merges and checks.
  struct by_index {};
  locked_bucket(const lock_table& table, by_index, std::size_t i) noexcept
    : index(i), table_(const_cast<lock_table&>(table)) {
    base = &table_.table_[index];
    word = take_guard(base->word);
  }

  locked_bucket(const locked_bucket&) = delete;
  locked_bucket& operator=(const locked_bucket&) = delete;

  ~locked_bucket() {
    drop_guard(base->word, word);
    if (crowded) [[unlikely]]
      table_.adapt();
  }

  /// The word of a row of this bucket, as it will be published.
  [[nodiscard]] std::uint64_t get(const row& x) const noexcept {
    return &x == base ? word : x.word.load(std::memory_order_relaxed);
  }

  void set(row& x, std::uint64_t next) noexcept {
    if (&x == base)
      word = next;
    else
      x.word.store(next, std::memory_order_relaxed);
  }

  row* base;
  std::size_t index;
  std::uint64_t word;
  /// The number of rows outside their bucket calls for another size.
  bool crowded = false;

private:
  lock_table& table_;
};

// -- construction -------------------------------------------------------------

lock_table::lock_table(const lock_table_options& options)
  : options_(options), floor_(options.floor), highest_seen_(options.floor) {
  map_table();
}

lock_table::~lock_table() {
  // Rows outside their bucket, long terms, and queues that were left without a
  // manager when the scope ended.
  for (std::size_t i = 0; i < buckets(); ++i) {
    locked_bucket b{*this, locked_bucket::by_index{}, i};
    auto drop = [&](row& x) {
      if ((b.get(x) & queue_bit) != 0) {
        x.queue->~wait_queue();
        block_pool::give(x.queue);
      }
      remove_row(b, x);
    };
    while (b.base->chain != nullptr)
      drop(*b.base->chain);
    if ((b.word & used_bit) != 0)
      drop(*b.base);
    b.crowded = false;
  }
  ::munmap(static_cast<void*>(table_), capacity_ * sizeof(row));
}

void lock_table::map_table() {
  // Address space for the largest table; memory comes with use, page by page.
  // Zero pages are empty buckets.
  for (; capacity_ >= base_buckets; capacity_ /= 2) {
    auto* memory = ::mmap(nullptr, capacity_ * sizeof(row),
                          PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) {
      table_ = static_cast<row*>(memory);
      return;
    }
  }
  throw std::bad_alloc{};
}

// -- acquire ------------------------------------------------------------------

lock_table::verdict lock_table::try_acquire(const term& what, lock_mode mode,
                                            hold_record& r) {
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr) {
    enter(b, add_row(b, what, hash), r, mode, access::join, {});
    return verdict::granted;
  }
  auto word = b.get(*x);
  auto how = access_of(*x, word, mode, *r.session);
  // Where somebody waits only what the session covers already goes in here.
  if (how == access::conflict
      || (waiters_of(word) > 0 && how != access::covered))
    return verdict::waits;
  enter(b, *x, r, mode, how, {});
  return verdict::granted;
}

lock_table::hang_result lock_table::acquire_covered(const term& what,
                                                    lock_mode mode,
                                                    hold_record& r) {
  hang_result result;
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr) {
    enter(b, add_row(b, what, hash), r, mode, access::join, {});
    return result;
  }
  result.what = enter_held(b, *x, r, mode, {}, true, result.look);
  result.overtook = result.what == verdict::granted
                    && mode == lock_mode::exclusive
                    && waiters_of(b.get(*x)) > 0;
  return result;
}

lock_table::hang_result lock_table::acquire(waiter& w, bool may_hold) {
  hang_result result;
  auto hash = low(w.what().hash());
  auto source = token_source{w.carried, w.adopt};
  locked_bucket b{*this, hash};
  if (w.state() != outcome::pending) {
    // Its end came first, and found nothing to take out of a queue.
    result.what = verdict::ended;
    return result;
  }
  w.company |= w.met.load(std::memory_order_relaxed);
  may_hold |= w.company;
  auto* x = find(b, hash, w.what());
  if (x == nullptr) {
    enter(b, add_row(b, w.what(), hash), *w.hold, w.mode(), access::join,
          source);
    return result;
  }
  result.what = enter_held(b, *x, *w.hold, w.mode(), source, may_hold,
                           result.look);
  if (result.what == verdict::granted) {
    w.overtook = w.mode() == lock_mode::exclusive && waiters_of(b.get(*x)) > 0;
    return result;
  }
  if (w.no_wait) {
    result.what = verdict::busy;
    return result;
  }
  if (waiters_.load(std::memory_order_relaxed) >= options_.max_waiters) {
    result.what = verdict::too_many_waiters;
    return result;
  }
  w.upgrade = may_hold && holds(list_of(*x, b.get(*x)), w.session());
  auto& q = queue_for(b, *x, result);
  if (w.upgrade && !outrank(b, *x, q, w, result)) {
    result.what = verdict::deadlock;
    return result;
  }
  q.hang(w);
  b.set(*x, b.get(*x) + one_waiter);
  waiters_.fetch_add(1, std::memory_order_relaxed);
  return result;
}

/// Lets a request into a row that is there already, if it has not to wait.
lock_table::verdict lock_table::enter_held(locked_bucket& b, row& x,
                                           hold_record& r, lock_mode mode,
                                           token_source from, bool may_hold,
                                           manager_ref& look) noexcept {
  auto word = b.get(x);
  // A queue that has become empty is in nobody's way until its manager comes.
  auto queued = waiters_of(word) > 0;
  auto how = access_of(x, word, mode, *r.session);
  // Shared is covered by any hold of the session, whoever waits.
  if (mode == lock_mode::shared
      && ((how == access::join && queued) || how == access::conflict)) {
    if (!may_hold || !holds(list_of(x, word), *r.session))
      return verdict::waits;
    how = access::join;
  }
  if (how == access::conflict
      || (queued && how == access::join && mode == lock_mode::exclusive
          && !PAWL_PLANTED(grants_past_the_queue)))
    return verdict::waits;
  enter(b, x, r, mode, how, from);
  // Exclusive from now on: this may cover what the session waits for.
  if (queued && how == access::upgrade && x.queue->companions() > 0)
    look = x.queue->want_look();
  return verdict::granted;
}

void lock_table::install(const term& what, hold_record& r,
                         const std::function<void(hold_record&)>& conflict) {
  auto hash = low(what.hash());
  auto mode = r.mode.load(std::memory_order_relaxed);
  auto token = r.token.load(std::memory_order_relaxed);
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr)
    x = &add_row(b, what, hash);
  auto word = b.get(*x);
  auto& first = list_of(*x, word);
  if ((word & kept_bit) != 0) {
    // From now on it may matter whose exclusive hold that is.
    keep_exclusive(first, *first->session);
    word &= ~kept_bit;
  }
  r.hash = hash;
  r.token.store(token, std::memory_order_relaxed);
  link_by_token(first, r);
  word = with_mode(word + one_holder, stronger(mode_of(word), mode));
  see(*b.base, token);
  saw(token);
  auto met = [&](const hold_record& other) {
    return other.session != r.session
           && (other.mode.load(std::memory_order_relaxed)
                 == lock_mode::exclusive
               || mode == lock_mode::exclusive);
  };
  for (auto* h = first; h != nullptr; h = h->row_next)
    if (met(*h))
      word |= mixed_bit;
  b.set(*x, word);
  for (auto* h = first; h != nullptr; h = h->row_next)
    if (met(*h))
      conflict(*h);
}

// -- release ------------------------------------------------------------------

lock_table::end_of_hold lock_table::release(hold_record& r, bool to_prior) {
  end_of_hold result;
  locked_bucket b{*this, r.hash};
  auto mode = r.mode.load(std::memory_order_relaxed);
  if (mode == lock_mode::none)
    return result;
  result.done = true;
  auto& x = find(b, r);
  auto word = b.get(x) - one_holder;
  auto queued = (word & queue_bit) != 0;
  auto& first = list_of(x, word);
  unlink(first, r);
  r.mode.store(lock_mode::none, std::memory_order_relaxed);
  if (first == nullptr) {
    word = with_mode(word, lock_mode::none) & ~(mixed_bit | kept_bit);
  } else {
    // What others may have seen stays the row's. But of holds that exclude each
    // other each has its session's own tokens: they are not inherited.
    auto token = r.token.load(std::memory_order_relaxed);
    auto mixed = (word & mixed_bit) != 0;
    if (auto* heir = mixed ? largest_of(first, *r.session) : first;
        heir != nullptr && heir->token.load(std::memory_order_relaxed) < token)
      heir->token.store(token, std::memory_order_relaxed);
    if (mixed)
      largest_first(first);
    if (mode == lock_mode::exclusive && !to_prior) {
      if ((word & mixed_bit) == 0)
        word |= kept_bit;
      else
        keep_exclusive(first, *r.session);
    }
    if (to_prior || (word & mixed_bit) != 0)
      word = mode_again(word, first);
  }
  b.set(x, word);
  if (queued) {
    auto& q = *x.queue;
    if (q.has_upgrade_of(*r.session) && !holds(first, *r.session))
      q.demote_all(*r.session);
    if (grantable(x, word))
      pass_on(b, x, q, result);
  } else if (first == nullptr) {
    remove_row(b, x);
  }
  return result;
}

/// The row has become free: an exclusive head gets it here and now, and its
/// manager need not come for that. The manager has the rest: a crowd that is let
/// in at once, a session that is granted several requests with one, and the end
/// of the queue.
void lock_table::pass_on(locked_bucket& b, row& x, wait_queue& q,
                         end_of_hold& out) noexcept {
  auto& w = *q.front();
  if (mode_of(b.get(x)) == lock_mode::none
      && w.mode() == lock_mode::exclusive && q.companions() == 0) {
    grant_batch one;
    grant_front(b, x, q, w, access::join, one);
    out.granted = one.granted;
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    if (!q.empty())
      return; // its next head has to wait for this one
  }
  out.look = q.want_look();
}

lock_table::end_of_hold lock_table::downgrade(hold_record& r) {
  locked_bucket b{*this, r.hash};
  if (r.mode.load(std::memory_order_relaxed) == lock_mode::none)
    return {};
  return make_shared(b, find(b, r), *r.session);
}

lock_table::end_of_hold lock_table::downgrade(const term& what,
                                              const session_ledger& who) {
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr || !holds(list_of(*x, b.get(*x)), who))
    return {};
  return make_shared(b, *x, who);
}

lock_table::end_of_hold lock_table::make_shared(
  locked_bucket& b, row& x, const session_ledger& who) noexcept {
  end_of_hold result;
  result.done = true;
  auto word = b.get(x);
  if (mode_of(word) != lock_mode::exclusive)
    return result;
  auto* first = list_of(x, word);
  for (auto* h = first; h != nullptr; h = h->row_next)
    if (h->session == &who)
      h->mode.store(lock_mode::shared, std::memory_order_relaxed);
  word = mode_again(word & ~kept_bit, first);
  b.set(x, word);
  if ((word & queue_bit) != 0 && grantable(x, word))
    result.look = x.queue->want_look();
  return result;
}

std::optional<term> lock_table::term_of(const hold_record& r) const {
  locked_bucket b{*this, r.hash};
  if (r.mode.load(std::memory_order_relaxed) == lock_mode::none)
    return std::nullopt;
  return term::from_canonical(term_of(find(b, r)));
}

namespace {

/// The grant of one waiter is the other's, too.
bool lets_in(const waiter& first, const waiter& other) noexcept {
  return &first != &other && &first.session() == &other.session()
         && covers(first.mode(), other.mode());
}

} // namespace

lock_table::end_of_wait lock_table::abandon(waiter& w) {
  end_of_wait result;
  auto hung = false;
  {
    locked_bucket b{*this, low(w.what().hash())};
    if (w.queue != nullptr) {
      hung = true;
      auto& q = *w.queue;
      auto& x = find(b, q);
      auto was_first = q.front() == &w;
      if (q.companions() > 0 && w.session().waits() > 0)
        for (auto* u = w.queue_next; u != nullptr && !result.left_behind;
             u = u->queue_next)
          result.left_behind = lets_in(w, *u);
      q.take_out(w);
      b.set(x, b.get(x) - one_waiter);
      // Those behind it can be kept waiting by it alone only if it was first.
      if (was_first && !PAWL_PLANTED(leaves_without_a_look))
        result.look = q.want_look();
    }
  }
  if (hung) {
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    w.unref();
  }
  return result;
}

void lock_table::raise(hold_record& r, fencing_token at_least) {
  locked_bucket b{*this, r.hash};
  see(*b.base, at_least);
  if (r.mode.load(std::memory_order_relaxed) != lock_mode::none
      && r.token.load(std::memory_order_relaxed) < at_least) {
    r.token.store(at_least, std::memory_order_relaxed);
    // Those that join get the first record's token.
    auto& x = find(b, r);
    auto& first = list_of(x, b.get(x));
    if (first->token.load(std::memory_order_relaxed) < at_least) {
      unlink(first, r);
      link_front(first, r);
    }
  }
  saw(at_least);
}

// -- deadlocks ----------------------------------------------------------------

void lock_table::mark_elsewhere(waiter& w) {
  locked_bucket b{*this, low(w.what().hash())};
  if (w.queue != nullptr)
    w.queue->mark_elsewhere(w);
  else
    w.elsewhere = true; // counted when it hangs
}

/// Where a waiter stands in its queue: at the first request of its session that
/// will let it in. What is between the two is in nobody's way but its own: the
/// waiter goes past it.
const waiter& lock_table::gate_of(const waiter& w) noexcept {
  if (w.queue->companions() > 0 && w.session().waits() > 1)
    for (auto* u = w.queue->front(); u != &w; u = u->queue_next)
      if (lets_in(*u, w) && u->state() == outcome::pending)
        return *u;
  return w;
}

bool lock_table::blockers(const waiter& w,
                          std::span<const attempt_name> except,
                          std::size_t limit,
                          std::vector<blocker>& out) const {
  locked_bucket b{*this, low(w.what().hash())};
  if (w.queue == nullptr || w.state() != outcome::pending)
    return false;
  const auto& q = *w.queue;
  auto word = b.get(find(b, q));
  auto most = out.size() + limit;
  auto foreign = [&](const waiter& u) {
    return &u.session() != &w.session() && u.state() == outcome::pending;
  };
  auto add_waiter = [&](const waiter& u) {
    if (out.size() < most)
      out.push_back({u.session().id(), u.request, u.attempt,
                     blocker::kind::queued});
  };
  // All holders are in the way of an exclusive request, and an exclusive one is
  // in the way of all. Else it is a shared request that waits because of an
  // exclusive one ahead.
  auto strict = w.mode() == lock_mode::exclusive
                || mode_of(word) == lock_mode::exclusive;
  const auto& gate = gate_of(w);
  auto follow = q.elsewhere() > (w.elsewhere ? 1u : 0u) || w.company;
  auto is_over = [&](const waiter& u) {
    return std::find(except.begin(), except.end(),
                     attempt_name{u.request, u.attempt})
           != except.end();
  };
  auto may_be_why = [&](const waiter& u) {
    return u.mode() == lock_mode::exclusive && foreign(u) && !is_over(u);
  };
  // Where holds conflict, after a cut, an exclusive request ahead may wait for
  // some that are in nobody else's way.
  auto mixed = (word & mixed_bit) != 0;
  const waiter* because_of = nullptr;
  if (w.mode() == lock_mode::shared && (follow || mixed)) {
    // The nearest: shared ones ahead of it are in its way, but not in this one's.
    for (auto* u = gate.queue_prev; u != nullptr && because_of == nullptr;
         u = u->queue_prev)
      if (may_be_why(*u))
        because_of = u;
  } else if (!strict) {
    for (auto* u = q.front();
         u != nullptr && u != &gate && because_of == nullptr; u = u->queue_next)
      if (may_be_why(*u))
        because_of = u;
  }
  if (because_of != nullptr)
    add_waiter(*because_of);
  // Of its own session something may hold or wait ahead of others, which are in
  // its way in turn.
  auto mine = w.company && holds(q.holders, w.session());
  if (follow)
    for (auto* u = q.front(); u != nullptr && u != &gate; u = u->queue_next) {
      mine |= w.company && &u->session() == &w.session();
      // Of two upgrades the holds are in each other's way, and say so longer.
      if ((u->elsewhere || mine) && u != because_of && foreign(*u)
          && !(u->upgrade && w.upgrade)
          && (u->mode() == lock_mode::exclusive
              || w.mode() == lock_mode::exclusive))
        add_waiter(*u);
    }
  if (!strict)
    return true;
  const hold_record* last = nullptr;
  for (auto* h = q.holders; h != nullptr && out.size() < most;
       h = h->row_next) {
    auto mode = h->mode.load(std::memory_order_relaxed);
    // A shared one beside an exclusive one of its session is not: if that goes
    // unseen it leaves nothing.
    auto conflicts = w.mode() == lock_mode::exclusive
                     || mode == lock_mode::exclusive || (word & kept_bit) != 0;
    if (h->session == &w.session() || !conflicts)
      continue;
    auto direct = h->what == hold_record::kind::direct;
    if (direct && last != nullptr && last->session == h->session)
      continue; // one more handle of the same session
    last = direct ? h : nullptr;
    blocker x;
    if (direct) {
      x.session = {options_.slot, h->serial};
      x.request = {options_.slot, 0};
    } else {
      x.session = h->owner->session;
      x.request = h->owner->request;
      x.attempt = h->owner->attempt;
      x.how = blocker::kind::part_hold;
    }
    auto kept = mode != lock_mode::exclusive
                || (!direct && h->owner->asked != lock_mode::exclusive);
    x.kept = kept && w.mode() != lock_mode::exclusive;
    out.push_back(x);
  }
  return true;
}

bool lock_table::holds_against(const term& what, const session_id& who,
                               lock_mode mode) const {
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr || who.home != options_.slot)
    return false;
  auto word = b.get(*x);
  for (auto* h = list_of(*x, word); h != nullptr; h = h->row_next)
    if (h->what == hold_record::kind::direct && h->serial == who.serial
        && (mode == lock_mode::exclusive || (word & kept_bit) != 0
            || h->mode.load(std::memory_order_relaxed) == lock_mode::exclusive))
      return true;
  return false;
}

// -- managers -----------------------------------------------------------------

void lock_table::assign(wait_queue& q, manager_ref manager) {
  locked_bucket b{*this, q.hash};
  ensure(q.manager == 0, "a queue is given one manager");
  q.manager = manager;
}

/// Shared requests that are granted in one step, however small the limit. If a
/// crowd of them were let in piece by piece, those that come back meanwhile would
/// hang behind the rest: the queue would never be empty, and the term would stay
/// slow for good after its one writer had passed.
constexpr std::uint32_t crowd = 16'384;

lock_table::grant_batch lock_table::grant(wait_queue& q, std::uint32_t limit) {
  grant_batch out;
  std::uint32_t granted = 0;
  {
    locked_bucket b{*this, q.hash};
    q.look_pending = false;
    auto& x = find(b, q);
    auto before = q.size();
    // A session that upgraded ahead of the queue may wait in it, too.
    if (q.companions() > 0 && mode_of(b.get(x)) == lock_mode::exclusive
        && (b.get(x) & mixed_bit) == 0)
      grant_covered(b, x, q, *q.holders->session, out);
    for (std::uint32_t i = 0; !q.empty(); ++i) {
      auto& w = *q.front();
      if (i >= (w.mode() == lock_mode::shared ? std::max(limit, crowd) : limit))
        break;
      auto how = access_of(x, b.get(x), w.mode(), w.session());
      if (how == access::conflict)
        break;
      grant_front(b, x, q, w, how, out);
    }
    granted = before - q.size();
    if (q.empty()) {
      out.detached = true;
      auto* holders = q.holders;
      x.holders = holders;
      b.set(x, b.get(x) & ~queue_bit);
      if (holders == nullptr)
        remove_row(b, x);
    } else {
      out.more = grantable(x, b.get(x));
    }
  }
  if (granted > 0)
    waiters_.fetch_sub(granted, std::memory_order_relaxed);
  return out;
}

void lock_table::grant_front(locked_bucket& b, row& x, wait_queue& q, waiter& w,
                             access how, grant_batch& out) noexcept {
  // Itself or another one: either may be the one that came later.
  auto company = q.companions() > 0;
  q.take_out(w);
  b.set(x, b.get(x) - one_waiter);
  enter(b, x, *w.hold, w.mode(), how, {w.carried, w.adopt});
  w.queue_next = out.granted;
  out.granted = &w;
  if (company && w.session().waits() > 1)
    grant_covered(b, x, q, w.session(), out);
}

void lock_table::grant_covered(locked_bucket& b, row& x, wait_queue& q,
                               const session_ledger& who,
                               grant_batch& out) noexcept {
  for (auto* w = q.front(); w != nullptr;) {
    auto* next = w->queue_next;
    if (&w->session() == &who && covers(mode_of(b.get(x)), w->mode())) {
      q.take_out(*w);
      b.set(x, b.get(x) - one_waiter);
      auto how = mode_of(b.get(x)) == lock_mode::exclusive ? access::covered
                                                           : access::join;
      enter(b, x, *w->hold, w->mode(), how, {w->carried, w->adopt});
      w->queue_next = out.granted;
      out.granted = w;
    }
    w = next;
  }
}

// -- tokens -------------------------------------------------------------------

fencing_token lock_table::known_token(const term& what) const {
  locked_bucket b{*this, low(what.hash())};
  return current(*b.base);
}

void lock_table::raise_floor(fencing_token x) noexcept {
  auto floor = floor_.load(std::memory_order_relaxed);
  while (floor < x
         && !floor_.compare_exchange_weak(floor, x,
                                          std::memory_order_relaxed)) {
    // retry
  }
  saw(x);
}

void lock_table::saw(fencing_token x) noexcept {
  auto highest = highest_seen_.load(std::memory_order_relaxed);
  while (highest < x
         && !highest_seen_.compare_exchange_weak(highest, x,
                                                 std::memory_order_relaxed)) {
    // retry
  }
}

fencing_token lock_table::current(const row& bucket) const noexcept {
  auto floor = floor_.load(std::memory_order_relaxed);
  return bucket.token > floor ? bucket.token : floor;
}

/// The counter is above what any request brought along, too.
void lock_table::see(row& bucket, fencing_token x) noexcept {
  if (bucket.token < x)
    bucket.token = x;
}

fencing_token lock_table::issue(row& bucket, token_source from) noexcept {
  auto own = current(bucket);
  fencing_token result = 0;
  if (from.adopt && from.carried > own)
    result = from.carried;
  else
    result = fencing::next(own > from.carried ? own : from.carried,
                           options_.slot);
  bucket.token = result;
  if (from.carried != 0)
    saw(result);
  return result;
}

// -- queries ------------------------------------------------------------------

lock_table::row_view lock_table::view(const term& what) const {
  row_view result;
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  if (auto* x = find(b, hash, what)) {
    auto word = b.get(*x);
    result.mode = mode_of(word);
    result.holders = static_cast<std::uint32_t>(holders_of(word));
    result.waiters = static_cast<std::uint32_t>(waiters_of(word));
    result.contended = (word & queue_bit) != 0;
    result.kept = (word & kept_bit) != 0;
  }
  return result;
}

void lock_table::for_each_holder(
  const term& what, const std::function<void(const hold_record&)>& f) const {
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr)
    return;
  auto queued = (b.get(*x) & queue_bit) != 0;
  for (auto* h = queued ? x->queue->holders : x->holders; h != nullptr;
       h = h->row_next)
    f(*h);
}

void lock_table::for_each_waiter(const term& what,
                                 const std::function<void(waiter&)>& f) const {
  auto hash = low(what.hash());
  locked_bucket b{*this, hash};
  auto* x = find(b, hash, what);
  if (x == nullptr || (b.get(*x) & queue_bit) == 0)
    return;
  for (auto* w = x->queue->front(); w != nullptr; w = w->queue_next)
    f(*w);
}

std::size_t lock_table::rows() const {
  std::size_t result = 0;
  for (std::size_t i = 0; i < buckets(); ++i) {
    locked_bucket b{*this, locked_bucket::by_index{}, i};
    result += (b.word & used_bit) != 0;
    for (auto* x = b.base->chain; x != nullptr; x = x->chain)
      ++result;
  }
  return result;
}

void lock_table::check_invariants() const {
  auto extent = buckets();
  for (std::size_t i = 0; i < extent; ++i) {
    locked_bucket b{*this, locked_bucket::by_index{}, i};
    for (auto* x = b.base; x != nullptr; x = x->chain) {
      auto word = b.get(*x);
      if (x == b.base && (word & used_bit) == 0)
        continue;
      auto queued = (word & queue_bit) != 0;
      auto* first = queued ? x->queue->holders : x->holders;
      ensure((word & used_bit) != 0, "a row in a chain has a term");
      ensure(index_of(x->hash, extent) == i, "I8: a row is in its bucket");
      ensure(low(hash_bytes(term_of(*x))) == x->hash, "I8: its hash is right");
      ensure(first != nullptr || queued, "I5: a row has a holder or a queue");
      std::uint64_t holders = 0;
      for (auto* h = first; h != nullptr; h = h->row_next) {
        ++holders;
        ensure(h->mode != lock_mode::none && h->hash == x->hash,
               "a record in a row says so");
        ensure(mode_of(word) != lock_mode::exclusive
                 || h->session == first->session || (word & mixed_bit) != 0,
               "I1: exclusive implies one session");
        ensure(h->row_next == nullptr || h->row_next->row_prev == h,
               "the list of holders is linked both ways");
        ensure(h->token <= first->token, "I9: the first token is the largest");
      }
      ensure(first == nullptr || mode_again(word, first) == word,
             "I9: the records make the mode");
      ensure(holders == holders_of(word), "I7: the holders are counted");
      ensure((mode_of(word) == lock_mode::none) == (holders == 0),
             "no mode without a holder");
      if (queued) {
        x->queue->check_invariants();
        ensure(x->queue->size() == waiters_of(word),
               "I7: the waiters are counted");
        ensure(x->queue->hash == x->hash, "the queue is this row's");
      } else {
        ensure(waiters_of(word) == 0, "I7: nobody waits without a queue");
      }
    }
  }
}

// -- steps under the bit ------------------------------------------------------

lock_table::access lock_table::access_of(const row& x, std::uint64_t word,
                                         lock_mode mode,
                                         const session_ledger& who) noexcept {
  auto held = mode_of(word);
  if (held == lock_mode::none
      || (held == lock_mode::shared && mode == lock_mode::shared))
    return access::join;
  if ((word & mixed_bit) != 0)
    return access::conflict;
  auto* first = (word & queue_bit) != 0 ? x.queue->holders : x.holders;
  if (held == lock_mode::exclusive)
    return first->session == &who ? access::covered : access::conflict;
  // Shared, asked exclusive. Stops at the first foreign record.
  for (auto* h = first; h != nullptr; h = h->row_next)
    if (h->session != &who)
      return access::conflict;
  return access::upgrade;
}

bool lock_table::holds(const hold_record* first,
                       const session_ledger& who) noexcept {
  for (; first != nullptr; first = first->row_next)
    if (first->session == &who)
      return true;
  return false;
}

/// Whether the manager of a row with a queue has something to grant.
bool lock_table::grantable(const row& x, std::uint64_t word) noexcept {
  auto* w = x.queue->front();
  return w != nullptr
         && access_of(x, word, w->mode(), w->session()) != access::conflict;
}

/// The word whose mode follows from the records.
std::uint64_t lock_table::mode_again(std::uint64_t word,
                                     const hold_record* first) noexcept {
  auto mode = lock_mode::none;
  auto several = false;
  for (auto* h = first; h != nullptr; h = h->row_next) {
    mode = stronger(mode, h->mode.load(std::memory_order_relaxed));
    several |= h->session != first->session;
  }
  if ((word & kept_bit) != 0)
    mode = lock_mode::exclusive;
  word = with_mode(word, mode) & ~mixed_bit;
  return several && mode == lock_mode::exclusive ? word | mixed_bit : word;
}

/// For rows where it matters whose hold is exclusive: all its records are.
void lock_table::keep_exclusive(hold_record* first,
                                const session_ledger& who) noexcept {
  for (; first != nullptr; first = first->row_next)
    if (first->session == &who)
      first->mode.store(lock_mode::exclusive, std::memory_order_relaxed);
}

hold_record*& lock_table::list_of(row& x, std::uint64_t word) noexcept {
  return (word & queue_bit) != 0 ? x.queue->holders : x.holders;
}

void lock_table::link_front(hold_record*& first, hold_record& r) noexcept {
  r.row_prev = nullptr;
  r.row_next = first;
  if (first != nullptr)
    first->row_prev = &r;
  first = &r;
}

/// The record of a session with its largest token, or null.
hold_record* lock_table::largest_of(hold_record* first,
                                    const session_ledger& who) noexcept {
  hold_record* result = nullptr;
  for (auto* h = first; h != nullptr; h = h->row_next)
    if (h->session == &who
        && (result == nullptr
            || result->token.load(std::memory_order_relaxed)
                 < h->token.load(std::memory_order_relaxed)))
      result = h;
  return result;
}

/// The exclusive record of a session with its largest token, or null. After a
/// hand-over a shared one may have a larger token, which was somebody else's
/// exclusive one. O(holders), but O(1) for each after the first as a rule: what
/// is taken goes to the front.
hold_record* lock_table::exclusive_of(hold_record* first,
                                      const session_ledger& who) noexcept {
  hold_record* result = nullptr;
  auto largest = first->token.load(std::memory_order_relaxed);
  for (auto* h = first; h != nullptr; h = h->row_next) {
    if (h->session != &who
        || h->mode.load(std::memory_order_relaxed) != lock_mode::exclusive)
      continue;
    auto token = h->token.load(std::memory_order_relaxed);
    if (result == nullptr
        || result->token.load(std::memory_order_relaxed) < token)
      result = h;
    if (token == largest)
      break;
  }
  return result;
}

/// Into a list that has the largest token in front: so it has afterwards.
void lock_table::link_by_token(hold_record*& first, hold_record& r) noexcept {
  link_front(first, r);
  if (auto* next = r.row_next;
      next != nullptr
      && next->token.load(std::memory_order_relaxed)
           > r.token.load(std::memory_order_relaxed)) {
    unlink(first, *next);
    link_front(first, *next);
  }
}

/// Puts the record with the largest token in front. O(holders).
void lock_table::largest_first(hold_record*& first) noexcept {
  auto* largest = first;
  for (auto* h = first; h != nullptr; h = h->row_next)
    if (largest->token.load(std::memory_order_relaxed)
        < h->token.load(std::memory_order_relaxed))
      largest = h;
  if (largest == first)
    return;
  unlink(first, *largest);
  link_front(first, *largest);
}

void lock_table::unlink(hold_record*& first, hold_record& r) noexcept {
  (r.row_prev != nullptr ? r.row_prev->row_next : first) = r.row_next;
  if (r.row_next != nullptr)
    r.row_next->row_prev = r.row_prev;
  r.row_next = nullptr;
  r.row_prev = nullptr;
}

void lock_table::enter(locked_bucket& b, row& x, hold_record& r, lock_mode mode,
                       access how, token_source from) noexcept {
  auto word = b.get(x);
  auto& first = list_of(x, word);
  fencing_token token = 0;
  if (how != access::covered && mode == lock_mode::exclusive) {
    token = issue(*b.base, from);
  } else {
    // Where holds exclude each other only a session that has one of them gets
    // in, and with the token of that.
    auto mixed = (word & mixed_bit) != 0;
    auto* like = mixed ? largest_of(first, *r.session) : first;
    if (mode == lock_mode::exclusive)
      if (auto* own = exclusive_of(first, *r.session))
        like = own;
    token = like != nullptr ? like->token.load(std::memory_order_relaxed)
                            : current(*b.base);
    if (from.carried != 0) {
      if (how == access::join && !mixed && token < from.carried)
        token = from.carried;
      see(*b.base, from.carried);
      saw(from.carried);
    }
  }
  r.hash = x.hash;
  r.mode.store(mode, std::memory_order_relaxed);
  r.token.store(token, std::memory_order_relaxed);
  link_by_token(first, r);
  word += one_holder;
  b.set(x, with_mode(word, stronger(mode_of(word), mode)));
}

/// Two upgraders wait for each other. Of two locks for this node alone the
/// younger is told at once: that they wait is certain here. Whether part of a
/// request still does only its home can say, so others are left to the search
/// for cycles. False: it is `w`.
bool lock_table::outrank(locked_bucket& b, row& x, wait_queue& q, waiter& w,
                         hang_result& result) noexcept {
  auto alone = [](const waiter& y) {
    return y.hold->what == hold_record::kind::direct;
  };
  if (!alone(w))
    return true;
  // One that has ended already is in nobody's way.
  auto rival = [&](const waiter& u) {
    return alone(u) && &u.session() != &w.session()
           && u.state() == outcome::pending;
  };
  for (auto* u = q.upgrader(); u != nullptr && u->upgrade; u = u->queue_next)
    if (rival(*u) && u->session().age() < w.session().age()) {
      w.rival = u->session().id();
      return false;
    }
  for (auto* u = q.upgrader(); u != nullptr && u->upgrade;) {
    auto* next = u->queue_next;
    if (rival(*u)) {
      q.take_out(*u);
      b.set(x, b.get(x) - one_waiter);
      waiters_.fetch_sub(1, std::memory_order_relaxed);
      u->rival = w.session().id();
      u->queue_next = result.losers;
      result.losers = u;
    }
    u = next;
  }
  return true;
}

wait_queue& lock_table::queue_for(locked_bucket& b, row& x,
                                  hang_result& result) {
  auto word = b.get(x);
  if ((word & queue_bit) != 0)
    return *x.queue;
  auto* q = new (block_pool::take()) wait_queue;
  q->holders = x.holders;
  q->hash = x.hash;
  x.queue = q;
  b.set(x, word | queue_bit);
  result.orphan = q;
  return *q;
}

// -- rows of a bucket ---------------------------------------------------------

namespace {

/// A term that does not fit its row.
struct heap_bytes {
  std::byte* first;
  std::uint32_t size;
};

} // namespace

std::span<const std::byte> lock_table::term_of(const row& x) noexcept {
  if (x.size != heap_term)
    return {x.bytes, x.size};
  heap_bytes away;
  std::memcpy(&away, x.bytes, sizeof(away));
  return {away.first, away.size};
}

lock_table::row* lock_table::find(const locked_bucket& b, std::uint32_t hash,
                                  const term& what) noexcept {
  auto wanted = what.bytes();
  auto is_it = [&](const row& x) {
    if (x.hash != hash)
      return false;
    auto bytes = term_of(x);
    return bytes.size() == wanted.size()
           && std::memcmp(bytes.data(), wanted.data(), wanted.size()) == 0;
  };
  if ((b.word & used_bit) != 0 && is_it(*b.base))
    return b.base;
  for (auto* x = b.base->chain; x != nullptr; x = x->chain)
    if (is_it(*x))
      return x;
  return nullptr;
}

lock_table::row& lock_table::find(const locked_bucket& b,
                                  const hold_record& r) noexcept {
  // The list of the record ends at the row. Its head is looked for only if two
  // terms of the bucket have the same hash.
  row* found = nullptr;
  auto ambiguous = false;
  auto consider = [&](row& x) {
    if (x.hash != r.hash)
      return;
    ambiguous = found != nullptr;
    found = &x;
  };
  if ((b.word & used_bit) != 0)
    consider(*b.base);
  for (auto* x = b.base->chain; x != nullptr && !ambiguous; x = x->chain)
    consider(*x);
  if (!ambiguous) {
    ensure(found != nullptr, "a hold record in a row has a row");
    return *found;
  }
  auto* head = &r;
  while (head->row_prev != nullptr)
    head = head->row_prev;
  auto leads = [&](row& x) {
    return ((b.get(x) & queue_bit) != 0 ? x.queue->holders : x.holders) == head;
  };
  if ((b.word & used_bit) != 0 && leads(*b.base))
    return *b.base;
  for (auto* x = b.base->chain; x != nullptr; x = x->chain)
    if (leads(*x))
      return *x;
  ensure(false, "a list of hold records belongs to a row");
  __builtin_unreachable();
}

lock_table::row& lock_table::find(const locked_bucket& b,
                                  const wait_queue& q) noexcept {
  if ((b.word & queue_bit) != 0 && b.base->queue == &q)
    return *b.base;
  for (auto* x = b.base->chain; x != nullptr; x = x->chain)
    if ((b.get(*x) & queue_bit) != 0 && x->queue == &q)
      return *x;
  ensure(false, "an attached queue belongs to a row");
  __builtin_unreachable();
}

lock_table::row& lock_table::add_row(locked_bucket& b, const term& what,
                                     std::uint32_t hash) {
  auto bytes = what.bytes();
  heap_bytes away{nullptr, static_cast<std::uint32_t>(bytes.size())};
  if (bytes.size() > inline_term)
    away.first = new std::byte[bytes.size()];
  auto* x = b.base;
  if ((b.word & used_bit) != 0) {
    try {
      x = new (block_pool::take()) row;
    } catch (...) {
      delete[] away.first;
      throw;
    }
    x->chain = b.base->chain;
    b.base->chain = x;
    b.crowded |= count_overflow(b.index, 1);
  }
  x->holders = nullptr;
  x->hash = hash;
  if (away.first != nullptr) {
    std::memcpy(away.first, bytes.data(), bytes.size());
    std::memcpy(x->bytes, &away, sizeof(away));
    x->size = heap_term;
  } else {
    std::memcpy(x->bytes, bytes.data(), bytes.size());
    x->size = static_cast<std::uint8_t>(bytes.size());
  }
  b.set(*x, used_bit);
  return *x;
}

void lock_table::remove_row(locked_bucket& b, row& x) noexcept {
  if (x.size == heap_term)
    delete[] term_of(x).data();
  if (&x == b.base) {
    b.word = 0;
    return;
  }
  unchain(b, x);
  x.~row();
  block_pool::give(&x);
}

void lock_table::unchain(locked_bucket& b, row& x) noexcept {
  auto** link = &b.base->chain;
  while (*link != &x)
    link = &(*link)->chain;
  *link = x.chain;
  b.crowded |= count_overflow(b.index, -1);
}

void lock_table::copy_row(const row& from, row& to) noexcept {
  to.holders = from.holders; // or queue: both are one pointer
  to.hash = from.hash;
  to.size = from.size;
  std::memcpy(to.bytes, from.bytes, sizeof(to.bytes));
}

/// Moves the row that lies in bucket `from` to bucket `to`, whose own place is
/// free or for which `spare` is a block.
void lock_table::move_base(locked_bucket& from, locked_bucket& to,
                           row* spare) noexcept {
  auto word = from.word;
  if (spare == nullptr) {
    copy_row(*from.base, *to.base);
    to.word = word;
  } else {
    copy_row(*from.base, *spare);
    spare->word.store(word, std::memory_order_relaxed);
    spare->chain = to.base->chain;
    to.base->chain = spare;
    count_overflow(to.index, 1);
  }
  from.word = 0;
}

/// Moves a chained row to bucket `to`: into its own place if that is free.
void lock_table::move_chained(locked_bucket& from, row& x,
                              locked_bucket& to) noexcept {
  auto** link = &from.base->chain;
  while (*link != &x)
    link = &(*link)->chain;
  *link = x.chain;
  count_overflow(from.index, -1);
  if ((to.word & used_bit) == 0) {
    copy_row(x, *to.base);
    to.word = x.word.load(std::memory_order_relaxed);
    x.~row();
    block_pool::give(&x);
    return;
  }
  x.chain = to.base->chain;
  to.base->chain = &x;
  count_overflow(to.index, 1);
}

// -- growing and shrinking ----------------------------------------------------

bool lock_table::count_overflow(std::size_t index, int change) noexcept {
  auto& rows = overflow_[index % stripes].rows;
  auto now = rows.fetch_add(change, std::memory_order_relaxed) + change;
  return now % adapt_every == 0;
}

std::int64_t lock_table::overflow() const noexcept {
  std::int64_t result = 0;
  for (const auto& x : overflow_)
    result += x.rows.load(std::memory_order_relaxed);
  return result;
}

void lock_table::adapt() noexcept {
  // One thread at a time; the others go on with the table as it is.
  if (resizing_.test_and_set(std::memory_order_acquire))
    return;
  auto extent = [this] { return static_cast<std::int64_t>(buckets()); };
  for (int i = 0; i < adapt_steps && overflow() * split_share > extent(); ++i)
    if (!split_one())
      break;
  for (int i = 0; i < adapt_steps && overflow() * merge_share < extent(); ++i)
    if (!merge_one())
      break;
  resizing_.clear(std::memory_order_release);
}

std::size_t lock_table::trim(std::size_t steps) {
  std::size_t done = 0;
  if (resizing_.test_and_set(std::memory_order_acquire))
    return done;
  while (done < steps
         && overflow() * merge_share < static_cast<std::int64_t>(buckets())
         && merge_one())
    ++done;
  resizing_.clear(std::memory_order_release);
  return done;
}

bool lock_table::split_one() noexcept {
  auto extent = buckets();
  if (extent >= capacity_)
    return false;
  auto level = std::bit_floor(extent);
  locked_bucket from{*this, locked_bucket::by_index{}, extent - level};
  locked_bucket to{*this, locked_bucket::by_index{}, extent};
  auto moves = [&](const row& x) {
    return (x.hash & (2 * level - 1)) == extent;
  };
  to.base->token = from.base->token;
  if ((from.word & used_bit) != 0 && moves(*from.base))
    move_base(from, to, nullptr);
  for (auto* x = from.base->chain; x != nullptr;) {
    auto* next = x->chain;
    if (moves(*x))
      move_chained(from, *x, to);
    x = next;
  }
  // The place in the bucket is the cheap one: do not leave it empty.
  if ((from.word & used_bit) == 0 && from.base->chain != nullptr)
    move_chained(from, *from.base->chain, from);
  extent_.store(extent + 1, std::memory_order_relaxed);
  return true;
}

bool lock_table::merge_one() noexcept {
  auto extent = buckets();
  if (extent <= base_buckets)
    return false;
  auto last = extent - 1;
  auto into = last - std::bit_floor(last);
  {
    locked_bucket to{*this, locked_bucket::by_index{}, into};
    locked_bucket from{*this, locked_bucket::by_index{}, last};
    if ((from.word & used_bit) != 0) {
      row* spare = nullptr;
      if ((to.word & used_bit) != 0) {
        try {
          spare = new (block_pool::take()) row;
        } catch (...) {
          return false; // no memory: the table stays as large as it is
        }
      }
      move_base(from, to, spare);
    }
    while (from.base->chain != nullptr)
      move_chained(from, *from.base->chain, to);
    if (to.base->token < from.base->token)
      to.base->token = from.base->token;
    extent_.store(last, std::memory_order_relaxed);
  }
  if (last % buckets_per_page == 0)
    return_page(last);
  return true;
}

/// Gives the page of 64 buckets that begins at `first` back to the system. All
/// of them are beyond the extent, hence empty. A thread that read the extent
/// before may still want one of their bits, to find that it is in the wrong
/// bucket; so each bit is held while the page is dropped, and is zero, that is
/// free, when the page is next read.
void lock_table::return_page([[maybe_unused]] std::size_t first) noexcept {
#ifndef __SANITIZE_THREAD__
  for (std::size_t i = 0; i < buckets_per_page; ++i)
    static_cast<void>(take_guard(table_[first + i].word));
  if (::madvise(static_cast<void*>(&table_[first]),
                buckets_per_page * sizeof(row), MADV_DONTNEED)
      == 0)
    return;
  for (std::size_t i = 0; i < buckets_per_page; ++i)
    drop_guard(table_[first + i].word, 0);
#endif
}

} // namespace pawl
