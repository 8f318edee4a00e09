// session_state: a session of this node: its ledger, the party it belongs to,
// and how its client is told of what happens to its holds. For pawl's own use;
// users have `session`.
//
// Thread-safe.

#pragma once

#include "pawl/actors/hold_event.hpp"
#include "pawl/actors/party.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/session_ledger.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace pawl {

class session_state final : public session_ledger {
public:
  session_state(session_id id, party_ptr owner);

  [[nodiscard]] pawl::party& party() const noexcept {
    return *party_;
  }

  [[nodiscard]] scope_state& scope() const noexcept {
    return party_->scope();
  }

  void on_event(std::function<void(const hold_event&)> f);

  /// Tells the client, in its actor or (thread sessions) on this stack.
  void tell(hold_event what) noexcept;

  void taken_away(const term& what, hold_record& r) noexcept override;

  // -- links of the party's list, under its bit -------------------------------

  session_state* next = nullptr;
  session_state* prev = nullptr;
  session_state* closing = nullptr; // among those that a closing party collects
  bool listed = false;

  // Activities come and go with every message: their memory is kept for reuse
  // by the thread that freed it.
  static void* operator new(std::size_t size);
  static void operator delete(void* memory) noexcept;

private:
  ~session_state() override;

  void last_gone() noexcept override;

  const party_ptr party_;
  std::mutex lock_;
  std::shared_ptr<std::function<void(const hold_event&)>> on_event_;
  compat::responder where_;
};

/// A handle of a session_state that keeps it alive.
class session_ref {
public:
  session_ref() = default;

  /// Takes over one handle.
  explicit session_ref(session_state* x) noexcept : state_(x) {
    // nop
  }

  session_ref(const session_ref& other) noexcept : state_(other.state_) {
    if (state_ != nullptr)
      state_->ref();
  }

  session_ref(session_ref&& other) noexcept
    : state_(std::exchange(other.state_, nullptr)) {
    // nop
  }

  session_ref& operator=(session_ref other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }

  ~session_ref() {
    if (state_ != nullptr)
      state_->unref();
  }

  /// Null from now on; the handle has become somebody else's.
  void give_away() noexcept {
    state_ = nullptr;
  }

  session_state* operator->() const noexcept {
    return state_;
  }

  session_state& operator*() const noexcept {
    return *state_;
  }

  explicit operator bool() const noexcept {
    return state_ != nullptr;
  }

private:
  session_state* state_ = nullptr;
};

} // namespace pawl
