// cancel_source and cancel_token: one hand that ends many requests.
//
//   pawl::cancel_source stop;
//   s.lock(t, pawl::exclusive).cancel_with(stop.token()).then(...);
//   stop.cancel();   // every pending request of the token ends `cancelled`
//
// A request that is granted at the same moment may win: then it is granted.
// Thread-safe; a token costs nothing until its request has to wait.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>

namespace pawl {

class pending;

/// What source and tokens share. For pawl's own use.
class cancel_state {
public:
  /// Lists a request that waits. False if cancelled already.
  [[nodiscard]] bool add(pending& x);
  void remove(pending& x) noexcept;
  void cancel();

  [[nodiscard]] bool cancelled() const noexcept {
    return cancelled_.load(std::memory_order_acquire);
  }

private:
  std::mutex lock_;
  pending* first_ = nullptr;
  std::atomic<bool> cancelled_{false};
};

class cancel_token {
public:
  /// Is never cancelled.
  cancel_token() = default;

  explicit cancel_token(std::shared_ptr<cancel_state> state) noexcept
    : state_(std::move(state)) {
    // nop
  }

  [[nodiscard]] bool cancelled() const noexcept {
    return state_ && state_->cancelled();
  }

  [[nodiscard]] const std::shared_ptr<cancel_state>& state() const noexcept {
    return state_;
  }

private:
  std::shared_ptr<cancel_state> state_;
};

class cancel_source {
public:
  cancel_source() : state_(std::make_shared<cancel_state>()) {
    // nop
  }

  [[nodiscard]] cancel_token token() const {
    return cancel_token{state_};
  }

  /// Ends every pending request with a token of this source, and every later
  /// one at once. Idempotent.
  void cancel() const {
    state_->cancel();
  }

private:
  std::shared_ptr<cancel_state> state_;
};

} // namespace pawl
