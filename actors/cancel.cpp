#include "pawl/actors/cancel.hpp"

namespace pawl {

bool cancel_state::add(cancel_entry& x) {
  std::lock_guard guard{lock_};
  if (cancelled())
    return false;
  x.cancel_listed_ = true;
  x.cancel_prev_ = nullptr;
  x.cancel_next_ = first_;
  if (first_ != nullptr)
    first_->cancel_prev_ = &x;
  first_ = &x;
  return true;
}

void cancel_state::remove(cancel_entry& x) noexcept {
  std::lock_guard guard{lock_};
  if (!x.cancel_listed_)
    return;
  (x.cancel_prev_ != nullptr ? x.cancel_prev_->cancel_next_ : first_)
    = x.cancel_next_;
  if (x.cancel_next_ != nullptr)
    x.cancel_next_->cancel_prev_ = x.cancel_prev_;
  x.cancel_listed_ = false;
}

void cancel_state::cancel() {
  for (;;) {
    cancel_entry* next = nullptr;
    {
      // One at a time: ending a request takes it out of this very list.
      std::lock_guard guard{lock_};
      cancelled_.store(true, std::memory_order_release);
      next = first_;
      if (next == nullptr)
        return;
      first_ = next->cancel_next_;
      if (first_ != nullptr)
        first_->cancel_prev_ = nullptr;
      next->cancel_listed_ = false;
      if (!next->pin())
        continue;
    }
    next->cancel_now();
    next->unpin();
  }
}

} // namespace pawl
