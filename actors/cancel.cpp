#include "pawl/actors/cancel.hpp"

#include "pawl/actors/pending.hpp"
#include "pawl/actors/scope_state.hpp"

namespace pawl {

bool cancel_state::add(pending& x) {
  std::lock_guard guard{lock_};
  if (cancelled())
    return false;
  x.cancel_listed = true;
  x.cancel_prev = nullptr;
  x.cancel_next = first_;
  if (first_ != nullptr)
    first_->cancel_prev = &x;
  first_ = &x;
  return true;
}

void cancel_state::remove(pending& x) noexcept {
  std::lock_guard guard{lock_};
  if (!x.cancel_listed)
    return;
  (x.cancel_prev != nullptr ? x.cancel_prev->cancel_next : first_)
    = x.cancel_next;
  if (x.cancel_next != nullptr)
    x.cancel_next->cancel_prev = x.cancel_prev;
  x.cancel_listed = false;
}

void cancel_state::cancel() {
  for (;;) {
    pending* next = nullptr;
    {
      // One at a time: ending a request takes it out of this very list.
      std::lock_guard guard{lock_};
      cancelled_.store(true, std::memory_order_release);
      next = first_;
      if (next == nullptr)
        return;
      first_ = next->cancel_next;
      if (first_ != nullptr)
        first_->cancel_prev = nullptr;
      next->cancel_listed = false;
      next->ref();
    }
    next->scope().locks.end(*next, outcome::cancelled);
    next->unref();
  }
}

} // namespace pawl
