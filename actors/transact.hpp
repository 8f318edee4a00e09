// transact: runs a body that locks as it goes. If one of its requests ends in
// `deadlock`, all that it took is released, and after a short delay the body is
// run again, with the age of its first try: whatever came later is younger, and
// of a cycle the youngest loses, so it cannot starve.
//
//   pawl::transact(tags, self, [=](pawl::transaction tx) {
//     tx.lock("a", pawl::exclusive).then([=](pawl::lock a) {
//       tx.lock("b", pawl::exclusive).within(2s)
//         .then([a = std::move(a)](pawl::lock b) { ... });
//     });
//   }).then([] { ... }, [](const pawl::task_failure& why) { ... });
//
//   auto sum = pawl::transact(tags, [](pawl::blocking_transaction& tx)
//                                     -> pawl::expected<int> {
//     auto a = tx.lock("a", pawl::shared).wait();
//     if (!a)
//       return a.error();
//     ...
//   });                                     // for threads and blocking actors
//
// The body may be run several times, so what it does before it has all of its
// locks should do no harm if it is done twice. Only `deadlock` starts it anew:
// any other end of a request is the body's business, or fails the transaction
// if the body has no continuation for it. `probe_limit` does too: nobody has
// found a cycle then, and the same search through the same crowd again would
// only make it larger.
//
//               the body is over
//   +--------+  (finish, or nothing of it is left)   +-------+
//   | trying | ------------------------------------> | ended |
//   +--------+  fail, an exception, a cancel,        +-------+
//     |    ^    a deadlock of the last try               ^
//     |    |                                             |
//     |    | its time has come                           | a cancel,
//     |    | (the body is run again)                     | the scope is closed
//     v    |                                             |
//   +-------------+                                      |
//   | backing off | -------------------------------------+
//   +-------------+
//     entered by: a deadlock, after all that the try took was released
//
//   trying:      one session is open; it keeps its age even if it holds
//                nothing. The body is being called, or waits for something.
//   backing off: no session is open, nothing is held, nothing waits; an alarm
//                of the scope is set.
//   ended:       the same, without the alarm.
//
// Each transition is a function of transaction_state (transact.cpp), or of
// blocking_tries for the blocking form (blocking_transact.hpp), whose states
// are the same.
//
// Invariants:
//   T1 at most one session is open, in `trying` only; it is closed before the
//      delay, and before the end is told: locks do not outlive a transaction.
//   T2 all tries after the first that met a deadlock while it held something
//      have the age that this one had then.
//   T3 the body is called at most `tries` times; every call but the first
//      counts as a restart.
//   T4 once a try is over none of its continuations is called any more; what
//      they were waiting for is released.
//   T5 what is decided while the body, or a continuation of it, is being called
//      is carried out when the outermost call has returned.
//   T6 when the actor ends, its session goes with it (session.hpp); in back-off
//      there is none. What is left is memory, until the alarm rings.
//
// How a body is over. In an event-based actor: with `finish()`, or when the
// last copy of its `transaction` and of the continuations of its requests is
// gone: whoever waits for something else (a response) keeps a copy of the
// transaction there. In a thread or a blocking actor: when it returns.
//
// Cost: a session per try; a transaction that never waits sends no message.

#pragma once

#include "pawl/actors/request.hpp"
#include "pawl/actors/scope.hpp"
#include "pawl/actors/task.hpp"
#include "pawl/actors/transact_options.hpp"

#include <chrono>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pawl {

class transaction_state;

/// One try of a transaction. For pawl's own use.
class transaction_try {
public:
  transaction_try(std::shared_ptr<transaction_state> owner, session_ref who,
                  unsigned number) noexcept
    : owner_(std::move(owner)), session_(std::move(who)), number_(number) {
    // nop
  }

  transaction_try(const transaction_try&) = delete;
  transaction_try& operator=(const transaction_try&) = delete;

  ~transaction_try();

  [[nodiscard]] bool over() const noexcept;

  /// Calls a continuation of the body, and drops it.
  template <class F>
  static void call(std::shared_ptr<transaction_try> x, F f) {
    auto owner = x->owner_;
    x->enter();
    try {
      auto once = std::move(f);
      once();
    } catch (...) {
      x->threw();
    }
    x->leave();
    x.reset();
    settle(*owner);
  }

  /// A request of it has ended. True: the body has to be told.
  [[nodiscard]] bool refused(const failure& why);

  void finish();
  void fail(task_failure why);
  void check_here() const;

  [[nodiscard]] const session_ref& who() const noexcept {
    return session_;
  }

  [[nodiscard]] unsigned number() const noexcept {
    return number_;
  }

  [[nodiscard]] const cancel_token& token() const noexcept;

private:
  void enter() noexcept;
  void leave() noexcept;
  void threw();
  static void settle(transaction_state& x);

  const std::shared_ptr<transaction_state> owner_;
  const session_ref session_;
  const unsigned number_;
};

/// A request of a transaction, about to be asked; see request.hpp. `Held` is
/// lock or lock_set.
template <class Held>
class [[nodiscard]] transaction_request {
public:
  transaction_request(std::shared_ptr<transaction_try> from, request<Held> what)
    : from_(std::move(from)), ask_(std::move(what)) {
    // nop
  }

  /// Where: see request::on.
  template <class Nodes>
  transaction_request&& on(Nodes&& nodes) && {
    std::move(ask_).on(std::forward<Nodes>(nodes));
    return std::move(*this);
  }

  transaction_request&& on(std::initializer_list<std::string> nodes) && {
    std::move(ask_).on(nodes);
    return std::move(*this);
  }

  /// How long: see request::within.
  template <class Rep, class Period>
  transaction_request&& within(std::chrono::duration<Rep, Period> limit) && {
    std::move(ask_).within(limit);
    return std::move(*this);
  }

  /// Ends with `busy` instead of waiting.
  transaction_request&& no_wait() && {
    std::move(ask_).no_wait();
    return std::move(*this);
  }

  /// Asks; continues with `on_held(Held)` or `on_failure(const failure&)`. None
  /// of the two is called when the try is over by then: on `deadlock`, and when
  /// the transaction was cancelled. What they throw fails the transaction.
  /// @throws misuse outside the transaction's actor.
  template <class F, class G>
  requires std::invocable<F&, Held> && std::invocable<G&, const failure&>
  void then(F on_held, G on_failure) && {
    std::move(ask_)
      .cancel_with(from_->token())
      .then(
        [from = from_, f = std::move(on_held)](Held held) mutable {
          if (!from->over())
            transaction_try::call(
              std::move(from),
              [f = std::move(f), held = std::move(held)]() mutable {
                f(std::move(held));
              });
        },
        [from = from_, g = std::move(on_failure)](const failure& why) mutable {
          if (!from->refused(why))
            return;
          transaction_try::call(std::move(from),
                                [g = std::move(g), &why]() mutable { g(why); });
        });
  }

  /// As above; any failure fails the transaction.
  template <class F>
  requires std::invocable<F&, Held>
  void then(F on_held) && {
    auto from = from_;
    std::move(*this).then(std::move(on_held),
                          [from](const failure& why) { from->fail(why); });
  }

private:
  std::shared_ptr<transaction_try> from_;
  request<Held> ask_;
};

/// What a body in an event-based actor is given: through it, it locks. A light
/// handle of one try; copy it into continuations. To be used in the actor only;
/// copies may be dropped anywhere.
class transaction {
public:
  /// For pawl's own use.
  explicit transaction(std::shared_ptr<transaction_try> x) noexcept
    : try_(std::move(x)) {
    // nop
  }

  /// Asks for one term: see session::lock.
  template <class T>
  [[nodiscard]] transaction_request<pawl::lock> lock(T&& what,
                                                     lock_mode mode) const {
    return {try_,
            request<pawl::lock>{
              try_->who(), term_lock{make_term(std::forward<T>(what)), mode}}};
  }

  /// Asks for several terms at once: see session::lock_all.
  [[nodiscard]] transaction_request<lock_set> lock_all(std::vector<term> what,
                                                       lock_mode mode) const {
    return {try_, session{try_->who()}.lock_all(std::move(what), mode)};
  }

  [[nodiscard]] transaction_request<lock_set> lock_all(
    std::vector<term_lock> what) const {
    return {try_, session{try_->who()}.lock_all(std::move(what))};
  }

  /// The body is over, whatever still waits. Does nothing if the try is over.
  void finish() const {
    try_->check_here();
    try_->finish();
  }

  /// The body gives up: `why` arrives where the transaction was started. The
  /// first reason counts. Does nothing if the try is over.
  void fail(failure why) const {
    try_->check_here();
    try_->fail(std::move(why));
  }

  /// The same for reasons of the body's own (`body_failed`).
  void fail(std::string message) const {
    fail(body_failure(std::move(message)));
  }

  /// Whether this try has ended: nothing of it is held any more.
  [[nodiscard]] bool over() const noexcept {
    return try_->over();
  }

  /// Which try of the body this is, from 1.
  [[nodiscard]] unsigned number() const noexcept {
    return try_->number();
  }

private:
  std::shared_ptr<transaction_try> try_;
};

namespace detail {

[[nodiscard]] task make_transaction(const scope& where,
                                    caf::scheduled_actor* self,
                                    std::function<void(transaction)> body,
                                    transact_options options);

} // namespace detail

/// A task that runs `body(transaction)` in the event-based actor `self`; see
/// above. Nothing happens until `.then` (or its turn in a combination). Calls
/// of the body are inside `.then` if it is not run again.
/// @throws misuse if the options make no sense
template <class F>
requires std::invocable<F&, transaction>
[[nodiscard]] task transact(const scope& where, caf::scheduled_actor* self,
                            F body, transact_options options = {}) {
  auto shared = std::make_shared<F>(std::move(body)); // need not be copyable
  return detail::make_transaction(
    where, self, [shared](transaction x) { (*shared)(std::move(x)); },
    std::move(options));
}

} // namespace pawl
