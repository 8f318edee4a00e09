// cancel_source and cancel_token: one hand that ends many requests and tasks.
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

class cancel_state;

/// What a source ends: a request that waits, a task that runs. Must leave before
/// it is destroyed. For pawl's own use.
class cancel_entry {
public:
  cancel_entry() = default;

  cancel_entry(const cancel_entry&) = delete;
  cancel_entry& operator=(const cancel_entry&) = delete;

protected:
  ~cancel_entry() = default;

private:
  friend class cancel_state;

  /// Makes it stay until `unpin`; false if it is about to go. Called under the
  /// lock of the state, when it has left the list.
  [[nodiscard]] virtual bool pin() noexcept = 0;

  /// Ends it. From any thread, with no lock held.
  virtual void cancel_now() noexcept = 0;

  virtual void unpin() noexcept = 0;

  // -- under the lock of the state --------------------------------------------
  cancel_entry* cancel_next_ = nullptr;
  cancel_entry* cancel_prev_ = nullptr;
  bool cancel_listed_ = false;
};

/// What source and tokens share. For pawl's own use.
class cancel_state {
public:
  /// Lists what can be cancelled. False if cancelled already.
  [[nodiscard]] bool add(cancel_entry& x);
  void remove(cancel_entry& x) noexcept;
  void cancel();

  [[nodiscard]] bool cancelled() const noexcept {
    return cancelled_.load(std::memory_order_acquire);
  }

private:
  std::mutex lock_;
  cancel_entry* first_ = nullptr;
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

  /// Ends every pending request and every task with a token of this source, and
  /// every later one at once. Idempotent.
  void cancel() const {
    state_->cancel();
  }

private:
  std::shared_ptr<cancel_state> state_;
};

} // namespace pawl
