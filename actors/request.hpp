// request: a lock that is about to be asked for. A builder:
//
//   s.lock("pump-7", pawl::exclusive)
//     .on(pawl::every_node).within(5s)
//     .then([](pawl::lock held) { ... }, [](const pawl::failure& why) { ... });
//
// A builder that is dropped asks for nothing.
//
// `.then` is for event-based actors: called in the actor, it calls one of the
// two continuations in the actor, exactly once, unless the actor ends first.
// What is granted at once is called inline, without a message; inside a
// continuation of the same actor it is queued instead and called by the
// outermost one, in order. The lock is released if the continuation throws.
// `.wait()` is for blocking actors and threads.
//
// Not thread-safe: a builder is used up where it was made.

#pragma once

#include "pawl/actors/expected.hpp"
#include "pawl/actors/lock.hpp"
#include "pawl/actors/pending.hpp"
#include "pawl/actors/session_state.hpp"

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace pawl {

/// `.on(every_node)`: all nodes that have the scope, as they come and go.
struct every_node_t {
  explicit every_node_t() = default;
};

inline constexpr every_node_t every_node{};

namespace detail {

/// Throws `misuse` unless `.then` may be called here.
void check_then(const ask& what);

/// Throws `misuse` unless `.wait()` may be called here.
void check_wait(const ask& what);

/// Grants on the spot, if that is possible without waiting: `granted`. `pending`
/// if it has to wait. Anything else is how the request has ended.
[[nodiscard]] outcome grant_now(ask& what, lock& out);
[[nodiscard]] outcome grant_now(ask& what, lock_set& out);

/// The failure for a request that ended on the spot.
[[nodiscard]] failure refusal(const ask& what, outcome why);

/// Whether `what` would wait for a hold of another session of the same actor or
/// thread, which would have to release it and cannot: it is blocked here.
[[nodiscard]] bool waits_for_itself(const ask& what);

} // namespace detail

template <class Held>
class [[nodiscard]] request {
public:
  request(session_ref who, term_lock what) {
    ask_.who = std::move(who);
    ask_.one = std::move(what);
  }

  /// `what` in canonical order, each term once.
  request(session_ref who, std::vector<term_lock> what) {
    ask_.who = std::move(who);
    ask_.many = std::move(what);
    ask_.several = true;
  }

  request(request&&) noexcept = default;
  request& operator=(request&&) noexcept = default;

  // -- what is wanted ---------------------------------------------------------

  /// On all nodes that have the scope. Default: on this node only.
  request&& on(every_node_t) && {
    ask_.where = ask::place::every_node;
    return std::move(*this);
  }

  /// On exactly these nodes, by name. None: granted, and holds nothing.
  request&& on(std::vector<std::string> nodes) && {
    ask_.where = ask::place::listed;
    ask_.nodes = std::move(nodes);
    return std::move(*this);
  }

  request&& on(std::initializer_list<std::string> nodes) && {
    return std::move(*this).on(std::vector<std::string>{nodes});
  }

  request&& on(std::string node) && {
    return std::move(*this).on(std::vector<std::string>{std::move(node)});
  }

  /// Ends with `timeout` if it is not granted in time. Judged here, by a steady
  /// clock. Default: waits for ever.
  template <class Rep, class Period>
  request&& within(std::chrono::duration<Rep, Period> limit) && {
    ask_.within = std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
    return std::move(*this);
  }

  /// Ends with `busy` instead of waiting.
  request&& no_wait() && {
    ask_.no_wait = true;
    return std::move(*this);
  }

  /// Ends with `cancelled` when the token's source says so.
  request&& cancel_with(cancel_token token) && {
    ask_.cancel = std::move(token);
    return std::move(*this);
  }

  // -- asking -----------------------------------------------------------------

  /// Asks; continues with `on_held(Held)` or `on_failure(const failure&)`.
  /// @throws misuse outside the session's (event-based) actor.
  template <class F, class G>
    requires std::invocable<F&, Held> && std::invocable<G&, const failure&>
  void then(F on_held, G on_failure) && {
    detail::check_then(ask_);
    auto& actor = ask_.who->party();
    Held held;
    auto verdict = detail::grant_now(ask_, held);
    if (verdict == outcome::granted) [[likely]] {
      actor.run([f = std::move(on_held), held = std::move(held)]() mutable {
        f(std::move(held));
      });
    } else if (verdict == outcome::pending) {
      using type = pending_then<Held, F, G>;
      auto* p = new type{std::move(ask_), std::move(on_held),
                         std::move(on_failure)};
      p->start();
    } else {
      actor.run([f = std::move(on_failure),
                 why = detail::refusal(ask_, verdict)]() mutable {
        f(static_cast<const failure&>(why));
      });
    }
  }

  /// As `then(on_held, on_failure)` for those who do not care why not.
  template <class F>
    requires std::invocable<F&, Held>
  void then(F on_held) && {
    std::move(*this).then(std::move(on_held), [](const failure&) {});
  }

  /// Asks and blocks until it is known.
  /// @throws misuse inside an event-based actor.
  expected<Held> wait() && {
    detail::check_wait(ask_);
    Held held;
    auto verdict = detail::grant_now(ask_, held);
    if (verdict == outcome::granted) [[likely]]
      return expected<Held>{std::move(held)};
    if (verdict == outcome::pending && detail::waits_for_itself(ask_))
      verdict = outcome::deadlock;
    waited_for_itself_ = verdict == outcome::deadlock;
    if (verdict != outcome::pending)
      return detail::refusal(ask_, verdict);
    auto* p = new pending_wait{std::move(ask_)};
    p->ref();
    p->start();
    p->await();
    auto result = p->template result<Held>();
    p->unref();
    return result;
  }

  /// For pawl's own use: whether `wait()` was refused because it would have
  /// waited for the thread that called it.
  [[nodiscard]] bool waited_for_itself() const noexcept {
    return waited_for_itself_;
  }

private:
  ask ask_;
  bool waited_for_itself_ = false;
};

} // namespace pawl
