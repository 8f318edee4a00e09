#include "pawl/core/session_ledger.hpp"

#include "pawl/core/ensure.hpp"

#include <new>

namespace pawl {

namespace {

/// One chain, without allocation, up to this many records.
constexpr std::uint32_t small = 16;

/// Then more chains when they hold more than this many records on average.
constexpr std::uint32_t max_chain = 4;

/// Waiters that are compared with a new one; a session with more of them is
/// taken to wait for its term already.
constexpr std::uint32_t max_compared = 16;

} // namespace

void lamport_clock::raise(std::uint64_t seen) noexcept {
  auto now = value_.load(std::memory_order_relaxed);
  while (now <= seen
         && !value_.compare_exchange_weak(now, seen + 1,
                                          std::memory_order_relaxed)) {
    // retry
  }
}

session_ledger::session_ledger(session_id id, const lamport_clock& clock,
                               const void* party) noexcept
  : chains_(&first_chain_), elder_(id.serial), id_(id), clock_(clock),
    party_(party) {
  // nop
}

session_ledger::~session_ledger() {
  if (chains_ != &first_chain_)
    delete[] chains_;
}

// -- life ---------------------------------------------------------------------

void session_ledger::ref() noexcept {
  auto word = take_guard(word_);
  ensure(word >= one, "a session is referenced while it lives");
  drop_guard(word_, word + one);
}

bool session_ledger::try_ref() noexcept {
  auto word = take_guard(word_);
  auto alive = word >= one;
  drop_guard(word_, alive ? word + one : word);
  return alive;
}

void session_ledger::unref() noexcept {
  unlock_minus_one(take_guard(word_));
}

void session_ledger::unlock_minus_one(std::uint64_t word) noexcept {
  ensure(word >= one, "a session's count does not fall below zero");
  auto last = word < 2 * one;
  drop_guard(word_, word - one);
  if (last)
    last_gone();
}

session_ledger::contents session_ledger::close() noexcept {
  contents result;
  auto word = take_guard(word_);
  result.was_open = (word & closed_bit) == 0;
  for (std::uint32_t i = 0; i <= mask_; ++i) {
    for (auto* r = chains_[i]; r != nullptr;) {
      auto* next = r->session_next;
      if (r->what != hold_record::kind::part) {
        unlink(*r);
        r->parties.fetch_add(1, std::memory_order_relaxed);
        r->session_next = result.holds;
        result.holds = r;
      }
      r = next;
    }
  }
  while (waiting_ != nullptr) {
    auto* w = waiting_;
    unlink(*w);
    w->session_next = result.waits;
    result.waits = w;
  }
  drop_guard(word_, word | closed_bit);
  return result;
}

// -- waits --------------------------------------------------------------------

bool session_ledger::enter_wait(waiter& w) noexcept {
  auto word = take_guard(word_);
  if ((word & closed_bit) != 0) {
    drop_guard(word_, word);
    return false;
  }
  // Who waits for nothing in a row (a request for several nodes, whose parts
  // do) is nobody's company.
  auto in_a_row = [](const waiter& x) {
    return x.hold == nullptr || x.hold->what != hold_record::kind::whole;
  };
  auto hash = static_cast<std::uint32_t>(w.what().hash());
  w.company = in_a_row(w) && waits() > max_compared;
  std::uint32_t compared = 0;
  for (auto* x = in_a_row(w) ? waiting_ : nullptr;
       x != nullptr && compared < max_compared; x = x->session_next, ++compared)
    if (in_a_row(*x) && static_cast<std::uint32_t>(x->what().hash()) == hash) {
      w.company = true;
      x->met.store(true, std::memory_order_relaxed);
    }
  w.ref();
  w.entered = true;
  w.session_prev = nullptr;
  w.session_next = waiting_;
  if (waiting_ != nullptr)
    waiting_->session_prev = &w;
  waiting_ = &w;
  waits_.store(waits_.load(std::memory_order_relaxed) + 1,
               std::memory_order_relaxed);
  drop_guard(word_, word);
  return true;
}

void session_ledger::leave_wait(waiter& w) noexcept {
  auto word = take_guard(word_);
  auto listed = w.entered;
  if (listed)
    unlink(w);
  drop_guard(word_, word);
  if (listed)
    w.unref();
}

// -- holds --------------------------------------------------------------------

bool session_ledger::enter(hold_record& r, share whose) noexcept {
  auto word = take_guard(word_);
  if ((word & closed_bit) != 0) {
    drop_guard(word_, word);
    return false;
  }
  link(r);
  drop_guard(word_, whose == share::fresh ? word + one : word);
  return true;
}

outcome session_ledger::settle(waiter& w, bool& won) noexcept {
  auto word = take_guard(word_);
  if ((word & closed_bit) != 0) {
    won = w.judge(outcome::session_ended);
    drop_guard(word_, word);
    return w.state();
  }
  won = w.judge(outcome::granted);
  if (!won) {
    drop_guard(word_, word);
    return w.state();
  }
  auto listed = w.entered;
  if (listed)
    unlink(w);
  for (auto* r = w.hold; r != nullptr;) {
    link(*r);
    word += one;
    r = r->what == hold_record::kind::whole ? r->row_next : nullptr;
  }
  drop_guard(word_, word);
  if (listed)
    w.unref();
  return outcome::granted;
}

hold_record* session_ledger::take_granted(waiter& w) noexcept {
  auto word = take_guard(word_);
  auto* result = w.take_hold();
  drop_guard(word_, word);
  return result;
}

bool session_ledger::leave(hold_record& r) noexcept {
  auto word = take_guard(word_);
  auto listed = r.entered;
  if (listed)
    unlink(r);
  if (listed && r.parties.load(std::memory_order_acquire) == 1) [[likely]] {
    // The owner is the only one who knows the record: its share of the count
    // goes in the same step.
    hold_record::free(&r);
    unlock_minus_one(word);
    return true;
  }
  drop_guard(word_, word);
  drop(r);
  return listed;
}

bool session_ledger::take_out(hold_record& r) noexcept {
  auto word = take_guard(word_);
  auto listed = r.entered;
  if (listed)
    unlink(r);
  drop_guard(word_, word);
  return listed;
}

/// The `whole` record of an owner, or null. Under the bit.
hold_record* session_ledger::find(std::uint32_t hash,
                                  const hold_owner& owner) const noexcept {
  auto* r = chains_[hash & mask_];
  while (r != nullptr
         && (r->what == hold_record::kind::direct || r->owner != &owner))
    r = r->session_next;
  return r;
}

hold_record* session_ledger::take_out_lost(std::uint32_t hash,
                                           const hold_owner& owner) noexcept {
  auto word = take_guard(word_);
  auto* r = find(hash, owner);
  if (r != nullptr) {
    unlink(*r);
    r->parties.fetch_add(1, std::memory_order_relaxed);
    r->parties.fetch_or(hold_record::lost_bit, std::memory_order_acq_rel);
  }
  drop_guard(word_, word);
  return r;
}

void session_ledger::make_shared(std::uint32_t hash,
                                 const hold_owner& owner) noexcept {
  auto word = take_guard(word_);
  if (auto* r = find(hash, owner))
    r->mode.store(lock_mode::shared, std::memory_order_relaxed);
  drop_guard(word_, word);
}

void session_ledger::revoked(hold_record&) noexcept {
  // nop
}

void session_ledger::taken_away(const term&, hold_record& r) noexcept {
  revoked(r);
}

void session_ledger::drop(hold_record& r) noexcept {
  // Acquire and release: the last party must see what the others did.
  auto before = r.parties.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & ~hold_record::lost_bit) != 1)
    return;
  auto* session = r.session;
  hold_record::free(&r);
  session->unref();
}

// -- queries ------------------------------------------------------------------

bool session_ledger::may_hold(std::uint32_t hash) noexcept {
  auto word = take_guard(word_);
  auto found = false;
  for (auto* r = chains_[hash & mask_]; r != nullptr && !found;
       r = r->session_next)
    found = r->hash == hash;
  drop_guard(word_, word);
  return found;
}

bool session_ledger::lists(std::uint32_t hash,
                           const hold_owner& owner) const noexcept {
  auto word = take_guard(word_);
  auto* r = find(hash, owner);
  drop_guard(word_, word);
  return r != nullptr;
}

void session_ledger::age(const session_age& x) noexcept {
  auto word = take_guard(word_);
  foreign_age_ = true;
  lamport_.store(x.lamport, std::memory_order_relaxed);
  elder_.store(x.who.serial, std::memory_order_relaxed);
  drop_guard(word_, word);
}

void session_ledger::claim_age(std::uint64_t lamport) noexcept {
  auto word = take_guard(word_);
  ++claims_;
  lamport_.store(std::min(age().lamport, lamport), std::memory_order_relaxed);
  drop_guard(word_, word);
}

void session_ledger::drop_claim() noexcept {
  auto word = take_guard(word_);
  --claims_;
  forget_age();
  drop_guard(word_, word);
}

void session_ledger::keep_age(const session_age& first) noexcept {
  auto word = take_guard(word_);
  kept_age_ = true;
  if (first.lamport != session_age::holds_nothing) {
    ensure(first.who.home == id_.home, "a body is run again where it ran");
    lamport_.store(first.lamport, std::memory_order_relaxed);
    elder_.store(first.who.serial, std::memory_order_relaxed);
  }
  drop_guard(word_, word);
}

void session_ledger::check_invariants() const {
  auto word = take_guard(word_);
  std::uint32_t records = 0;
  std::uint32_t clients = 0;
  for (std::uint32_t i = 0; i <= mask_; ++i) {
    for (auto* r = chains_[i]; r != nullptr; r = r->session_next) {
      ++records;
      clients += r->what != hold_record::kind::part;
      ensure(r->entered && r->session == this, "L3: a listed record says so");
      ensure((r->hash & mask_) == i, "L3: a record is in its chain");
    }
  }
  std::uint32_t waits = 0;
  for (auto* w = waiting_; w != nullptr; w = w->session_next) {
    ++waits;
    ensure(w->entered, "a listed waiter says so");
  }
  ensure((word & closed_bit) == 0 || (clients == 0 && waits == 0),
         "L1: a closed ledger lists nothing of its clients");
  ensure(word / one >= records + waits, "L2: the count covers what is listed");
  ensure(records == holds() && waits == this->waits(), "the counts are right");
  auto ageless = age().lamport == session_age::holds_nothing;
  ensure(foreign_age_
           || (kept_age_ ? !ageless || records == 0
                         : ageless == (records + claims_ == 0)),
         "L4: who holds nothing has no age, unless it keeps one");
  drop_guard(word_, word);
}

// -- helpers, under the bit ---------------------------------------------------

void session_ledger::link(hold_record& r) noexcept {
  auto count = holds() + 1;
  holds_.store(count, std::memory_order_relaxed);
  if (count == 1 && !foreign_age_
      && age().lamport == session_age::holds_nothing)
    lamport_.store(clock_.now(), std::memory_order_relaxed);
  if (count > small && count > max_chain * (mask_ + 1)) [[unlikely]]
    grow();
  auto& first = chains_[r.hash & mask_];
  r.entered = true;
  r.session_prev = nullptr;
  r.session_next = first;
  if (first != nullptr)
    first->session_prev = &r;
  first = &r;
}

void session_ledger::forget_age() noexcept {
  if (holds() == 0 && claims_ == 0 && !foreign_age_ && !kept_age_)
    lamport_.store(session_age::holds_nothing, std::memory_order_relaxed);
}

void session_ledger::unlink(hold_record& r) noexcept {
  (r.session_prev != nullptr ? r.session_prev->session_next
                             : chains_[r.hash & mask_])
    = r.session_next;
  if (r.session_next != nullptr)
    r.session_next->session_prev = r.session_prev;
  r.entered = false;
  auto count = holds() - 1;
  holds_.store(count, std::memory_order_relaxed);
  if (count > 0)
    return;
  forget_age();
  if (chains_ != &first_chain_) {
    delete[] chains_;
    chains_ = &first_chain_;
    first_chain_ = nullptr;
    mask_ = 0;
  }
}

void session_ledger::unlink(waiter& w) noexcept {
  (w.session_prev != nullptr ? w.session_prev->session_next : waiting_)
    = w.session_next;
  if (w.session_next != nullptr)
    w.session_next->session_prev = w.session_prev;
  w.entered = false;
  waits_.store(waits() - 1, std::memory_order_relaxed);
}

void session_ledger::grow() noexcept {
  auto size = (mask_ + 1) * 8;
  auto* fresh = new (std::nothrow) hold_record*[size]();
  if (fresh == nullptr)
    return; // longer chains, nothing else
  for (std::uint32_t i = 0; i <= mask_; ++i) {
    for (auto* r = chains_[i]; r != nullptr;) {
      auto* next = r->session_next;
      auto& first = fresh[r->hash & (size - 1)];
      r->session_prev = nullptr;
      r->session_next = first;
      if (first != nullptr)
        first->session_prev = r;
      first = r;
      r = next;
    }
  }
  if (chains_ != &first_chain_)
    delete[] chains_;
  chains_ = fresh;
  mask_ = size - 1;
}

} // namespace pawl
