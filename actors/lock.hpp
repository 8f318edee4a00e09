// lock: a held lock, as a handle. lock_set: several, granted together.
//
// A handle exists only if the lock was granted. It is released by `release()`,
// by destruction, or with its session; from any thread. Handles may outlive
// scope, actors and actor system: then they are harmless.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/hold_record.hpp"
#include "pawl/core/lock_mode.hpp"
#include "pawl/core/outcome.hpp"

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace pawl {

class pending;
class scope_state;

class [[nodiscard]] lock {
public:
  /// Holds nothing.
  lock() noexcept = default;

  /// For pawl's own use: becomes the owner of `r`. `since` is 0 unless the hold
  /// time is to be measured.
  lock(hold_record* r, std::int64_t since) noexcept
    : record_(r), token_(r->token), since_(since) {
    // nop
  }

  lock(lock&& other) noexcept
    : record_(std::exchange(other.record_, nullptr)),
      token_(other.token_),
      since_(other.since_) {
    // nop
  }

  lock& operator=(lock&& other) noexcept {
    if (this != &other) {
      release();
      record_ = std::exchange(other.record_, nullptr);
      token_ = other.token_;
      since_ = other.since_;
    }
    return *this;
  }

  ~lock() {
    if (record_ != nullptr)
      release();
  }

  /// Gives the lock up. Returns at once, also while parts on other nodes are
  /// under way. Releasing twice never touches a later grant.
  release_result release() noexcept;

  /// Exclusive becomes shared, for all handles of the session on the term;
  /// keeps the token, lets in the shared requests at the head of the queue.
  /// Always succeeds at once; false if nothing is held any more.
  bool downgrade() noexcept;

  /// The token of this grant; larger than that of every earlier exclusive grant
  /// of the term whose nodes overlap. Stays readable after the release.
  [[nodiscard]] fencing_token token() const noexcept {
    return token_;
  }

  /// The mode that was granted, `none` when nothing is held any more. After a
  /// downgrade it is `shared`: at once for the handle that was downgraded, a
  /// moment later for others of its session.
  [[nodiscard]] lock_mode mode() const noexcept;

  /// Whether the lock is held at this moment, computed anew at each call: its
  /// nodes have been heard within node-timeout, and this node has not itself
  /// been out (stopped, suspended) without having heard them again since.
  [[nodiscard]] bool still_held() const noexcept;

  explicit operator bool() const noexcept {
    return record_ != nullptr;
  }

  /// For pawl's own use: gives up what its client has not seen; an upgrade falls
  /// back to the prior mode. Only for a lock for this node alone.
  void give_back() noexcept;

private:
  hold_record* record_ = nullptr;
  fencing_token token_ = 0;
  std::int64_t since_ = 0;
};

/// The locks of one `lock_all`, in canonical order of their terms. Released
/// together, or one by one.
class [[nodiscard]] lock_set {
public:
  lock_set() = default;

  explicit lock_set(std::vector<lock> held) noexcept : held_(std::move(held)) {
    // nop
  }

  void release() noexcept {
    held_.clear();
  }

  [[nodiscard]] bool still_held() const noexcept {
    for (const auto& x : held_)
      if (!x.still_held())
        return false;
    return true;
  }

  /// The largest token of the set; each lock has its own.
  [[nodiscard]] fencing_token token() const noexcept {
    fencing_token result = 0;
    for (const auto& x : held_)
      result = x.token() > result ? x.token() : result;
    return result;
  }

  [[nodiscard]] std::size_t size() const noexcept {
    return held_.size();
  }

  lock& operator[](std::size_t i) noexcept {
    return held_[i];
  }

  auto begin() noexcept {
    return held_.begin();
  }

  auto end() noexcept {
    return held_.end();
  }

private:
  std::vector<lock> held_;
};

} // namespace pawl
