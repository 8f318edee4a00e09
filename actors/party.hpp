// party: an actor (or a thread) as one scope knows it: its open sessions, and
// the continuations that run in it.
//
//      +------+       the actor terminates        +--------+
//      | open | ---------------------------------> | closed |
//      +------+                                    +--------+
//
//   open:    sessions are added and removed.
//   closed:  no session is added: one opened now is born ended. All that were
//            listed have been closed, or are being closed by a pawl actor.
//
// There is one party per (actor, scope), with one termination functor, however
// many sessions the actor opens: functors cannot be taken back.
//
// Continuations. `run` calls at once, unless a continuation of the same actor
// is being called further down the stack: then it is queued, and the outermost
// one calls it when it has returned. So a chain of locks that are all free does
// not grow the stack. While it calls, `run` uses nothing of session or request:
// the continuation may destroy them, or quit.
//
// Thread-safety: sessions may be removed by any thread; the rest belongs to the
// actor. Invariant P1: closed implies that every session still listed is closed
// or will be by whoever closed the party.

#pragma once

#include "pawl/actors/caf_compat.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

namespace pawl {

class scope_state;
class session_state;

/// What is to be done in the actor when it arrives at the party's port.
class errand : public compat::deliverable {
public:
  virtual void run() = 0;
};

class party : public std::enable_shared_from_this<party> {
public:
  enum class kind : std::uint8_t { event_based, blocking, thread };

  /// For a plain thread, or several of them.
  explicit party(std::shared_ptr<scope_state> scope);

  party(std::shared_ptr<scope_state> scope, caf::local_actor* self);

  party(const party&) = delete;
  party& operator=(const party&) = delete;

  ~party();

  // -- sessions ---------------------------------------------------------------

  /// False if the actor has ended.
  [[nodiscard]] bool add(session_state& x) noexcept;

  void remove(session_state& x) noexcept;

  /// Whether a session other than `mine` lists a hold for several nodes of a
  /// term with this hash.
  [[nodiscard]] bool has_whole(const session_state& mine, std::uint32_t hash);

  /// The actor has ended: closes all its sessions. From any thread. Hands large
  /// work to the scope's actor.
  void close() noexcept;

  /// Second half of `close`, maybe later and elsewhere.
  void close_sessions() noexcept;

  // -- continuations (in the actor) -------------------------------------------

  /// Calls `f()`, or queues it.
  template <class F>
  void run(F f) {
    if (running_) {
      queued_.push_back(std::make_unique<closure<F>>(std::move(f)));
      return;
    }
    auto keep = shared_from_this();
    running_guard guard{*this};
    f();
    drain();
  }

  /// Where results for this actor are delivered; null for threads.
  [[nodiscard]] compat::response_port* port() noexcept {
    return port_ ? &*port_ : nullptr;
  }

  // -- properties -------------------------------------------------------------

  [[nodiscard]] kind what() const noexcept {
    return kind_;
  }

  [[nodiscard]] caf::local_actor* self() const noexcept {
    return self_;
  }

  [[nodiscard]] caf::actor_id id() const noexcept {
    return id_;
  }

  [[nodiscard]] scope_state& scope() const noexcept {
    return *scope_;
  }

  /// Tells whose sessions block whom: the same for all sessions of one actor,
  /// and for all that one thread has attached.
  [[nodiscard]] const void* tag() const noexcept {
    return tag_;
  }

  [[nodiscard]] bool closed() const noexcept {
    return (word_.load(std::memory_order_acquire) & closed_bit) != 0;
  }

private:
  struct callable {
    virtual ~callable() = default;
    virtual void call() = 0;
  };

  template <class F>
  struct closure final : callable {
    explicit closure(F x) : f(std::move(x)) {
      // nop
    }
    void call() override {
      f();
    }
    F f;
  };

  /// An exception that leaves a continuation goes where one of the actor's
  /// handler goes; what is queued runs later, if the actor lives on.
  struct running_guard {
    explicit running_guard(party& x) noexcept : self(x) {
      self.running_ = true;
    }
    ~running_guard() {
      self.running_ = false;
      if (!self.queued_.empty())
        self.postpone();
    }
    party& self;
  };

  void drain();
  void postpone() noexcept;

  static constexpr std::uint64_t closed_bit = 2;

  const std::shared_ptr<scope_state> scope_;
  caf::local_actor* const self_; // valid while the actor lives
  const caf::actor_id id_;
  const kind kind_;
  const void* const tag_;
  // -- of the actor -----------------------------------------------------------
  bool running_ = false; // a continuation is being called
  std::deque<std::unique_ptr<callable>> queued_;
  std::optional<compat::response_port> port_;
  // -- guarded by bit 0 of word_ ----------------------------------------------
  std::atomic<std::uint64_t> word_{0};
  session_state* sessions_ = nullptr;
};

using party_ptr = std::shared_ptr<party>;

} // namespace pawl
