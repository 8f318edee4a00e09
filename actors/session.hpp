// session: one activity in a scope: what it holds, what it waits for, its age.
//
// It is the owner of re-entrance and the context of deadlock detection.
// Requests of one session do not exclude each other; those of different
// sessions do, also of sessions of the same actor. An actor interleaves its
// handlers, so what one message sets off is best a session of its own
// (scope::activity); an actor that takes locks step by step keeps one
// (scope::attach).
//
// A session object is a light handle. The session lives while the object, a
// lock of it or a pending request of it lives, or until its actor ends: then
// everything it holds is released and everything it waits for is abandoned.
// An activity that is opened after its actor has ended is born ended.
//
// Thread-safe: the handle is a value; a session may be used from any thread,
// but `.then` only in its actor.

#pragma once

#include "pawl/actors/hold_event.hpp"
#include "pawl/actors/make_term.hpp"
#include "pawl/actors/request.hpp"
#include "pawl/actors/session_state.hpp"

#include <functional>
#include <utility>
#include <vector>

namespace pawl {

class session {
public:
  explicit session(session_ref state) noexcept : state_(std::move(state)) {
    // nop
  }

  // -- requests ---------------------------------------------------------------

  /// Asks for one term, any value that CAF can inspect. Nothing happens until
  /// `.then` or `.wait()`.
  template <class T>
  [[nodiscard]] request<pawl::lock> lock(T&& what, lock_mode mode) const& {
    return request<pawl::lock>{
      state_, term_lock{make_term(std::forward<T>(what)), mode}};
  }

  template <class T>
  [[nodiscard]] request<pawl::lock> lock(T&& what, lock_mode mode) && {
    return request<pawl::lock>{
      std::move(state_), term_lock{make_term(std::forward<T>(what)), mode}};
  }

  /// Asks for several terms at once, in canonical order, all or nothing.
  [[nodiscard]] request<lock_set> lock_all(std::vector<term> what,
                                           lock_mode mode) const;

  /// The same, each term in a mode of its own. Of doubles the stronger counts.
  [[nodiscard]] request<lock_set> lock_all(std::vector<term_lock> what) const;

  // -- events -----------------------------------------------------------------

  /// Calls `f` for each hold that is lost or shrinks: in the session's actor;
  /// for the session of a thread on a thread of pawl's, which it must not
  /// block. Replaces an earlier one. To be called in the actor.
  void on_lost(std::function<void(const hold_event&)> f) const {
    state_->on_event(std::move(f));
  }

  /// Ends the session now: releases what it holds, abandons what it waits for.
  void end() const;

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] const session_id& id() const noexcept {
    return state_->id();
  }

  [[nodiscard]] bool ended() const noexcept {
    return state_->closed();
  }

  /// Handles of locks that it has.
  [[nodiscard]] std::size_t holds() const noexcept {
    return state_->holds();
  }

private:
  session_ref state_;
};

} // namespace pawl
