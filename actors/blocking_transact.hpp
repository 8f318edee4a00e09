// transact for threads and blocking actors: the body blocks in `.wait()`, and
// is over when it returns.
//
//   auto moved = pawl::transact(tags, [&](pawl::blocking_transaction& tx)
//                                       -> pawl::expected<int> {
//     auto a = tx.lock("a", pawl::exclusive).wait();
//     if (!a)
//       return a.error();
//     auto b = tx.lock("b", pawl::exclusive).within(2s).wait();
//     if (!b)
//       return b.error();
//     return move(5);
//   });
//
// States and invariants are those of transact.hpp; each try is one call of the
// body. A cancel ends the request in which the body waits, every later one, and
// the delay; a body that does something else is not interrupted, and if it
// comes to its end its result counts.

#pragma once

#include "pawl/actors/expected.hpp"
#include "pawl/actors/request.hpp"
#include "pawl/actors/scope.hpp"
#include "pawl/actors/transact_options.hpp"
#include "pawl/core/back_off.hpp"

#include <chrono>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pawl {

/// What a blocking body without a result returns, in an `expected`.
struct done {
  friend bool operator==(const done&, const done&) = default;
};

/// The tries of a blocking transaction, one after the other. For pawl's own
/// use.
///
///   begin -> (the body runs) -> left -> back_off -> begin ...
///
/// Used by the thread of the body only.
class blocking_tries {
public:
  blocking_tries(party_ptr owner, transact_options options);

  blocking_tries(const blocking_tries&) = delete;
  blocking_tries& operator=(const blocking_tries&) = delete;

  ~blocking_tries() {
    left();
  }

  // -- events -----------------------------------------------------------------

  /// Opens the session of the next try. False: there is none, see `why()`.
  [[nodiscard]] bool begin();

  /// A request of the body has ended without a lock; `by_itself`: it would have
  /// waited for another session of the same thread, which no new try changes.
  void refused(const failure& why, bool by_itself);

  /// The body has left: closes the session.
  void left();

  /// After a deadlock: waits, if there is another try.
  void back_off();

  // -- queries ----------------------------------------------------------------

  /// Why the present try does not count, or why there is no other; else null.
  [[nodiscard]] const failure* why() const noexcept {
    return why_ ? &*why_ : nullptr;
  }

  [[nodiscard]] const session_ref& who() const noexcept {
    return session_;
  }

  [[nodiscard]] const cancel_token& token() const noexcept {
    return options_.cancel;
  }

  [[nodiscard]] unsigned number() const noexcept {
    return number_;
  }

private:
  const party_ptr party_;
  const transact_options options_;
  pawl::back_off delays_;
  session_ref session_;
  session_age age_; // of the first try that held something when it met one
  unsigned number_ = 0;
  bool hopeless_ = false;
  std::optional<failure> why_;
};

/// As transaction_request, for a body that blocks.
template <class Held>
class [[nodiscard]] blocking_transaction_request {
public:
  blocking_transaction_request(blocking_tries& from, request<Held> what)
    : from_(&from), ask_(std::move(what)) {
    // nop
  }

  /// Where: see request::on.
  template <class Nodes>
  blocking_transaction_request&& on(Nodes&& nodes) && {
    std::move(ask_).on(std::forward<Nodes>(nodes));
    return std::move(*this);
  }

  blocking_transaction_request&& on(
    std::initializer_list<std::string> nodes) && {
    std::move(ask_).on(nodes);
    return std::move(*this);
  }

  /// How long: see request::within.
  template <class Rep, class Period>
  blocking_transaction_request&& within(
    std::chrono::duration<Rep, Period> limit) && {
    std::move(ask_).within(limit);
    return std::move(*this);
  }

  /// Ends with `busy` instead of waiting.
  blocking_transaction_request&& no_wait() && {
    std::move(ask_).no_wait();
    return std::move(*this);
  }

  /// Asks and blocks until it is known. Once it has said `deadlock` the try
  /// does not count: the body should return; every further wait says so at
  /// once.
  /// @throws misuse outside the blocking actor that it was made for.
  expected<Held> wait() && {
    if (auto* why = from_->why())
      return *why;
    std::move(ask_).cancel_with(from_->token());
    auto result = std::move(ask_).wait();
    if (!result)
      from_->refused(result.error(), ask_.waited_for_itself());
    return result;
  }

private:
  blocking_tries* from_;
  request<Held> ask_;
};

/// What a body in a thread or a blocking actor is given. To be used there,
/// until the body returns.
class blocking_transaction {
public:
  /// For pawl's own use.
  explicit blocking_transaction(blocking_tries& x) noexcept : tries_(&x) {
    // nop
  }

  /// Asks for one term: see session::lock.
  template <class T>
  [[nodiscard]] blocking_transaction_request<pawl::lock> lock(T&& what,
                                                              lock_mode mode) {
    return {*tries_, request<pawl::lock>{
                       tries_->who(),
                       term_lock{make_term(std::forward<T>(what)), mode}}};
  }

  /// Asks for several terms at once: see session::lock_all.
  [[nodiscard]] blocking_transaction_request<lock_set> lock_all(
    std::vector<term> what, lock_mode mode) {
    return {*tries_, session{tries_->who()}.lock_all(std::move(what), mode)};
  }

  [[nodiscard]] blocking_transaction_request<lock_set> lock_all(
    std::vector<term_lock> what) {
    return {*tries_, session{tries_->who()}.lock_all(std::move(what))};
  }

  /// Whether the transaction was cancelled: its requests end so, a body that
  /// does something else may look here from time to time.
  [[nodiscard]] bool cancelled() const noexcept {
    return tries_->token().cancelled();
  }

  /// Which try of the body this is, from 1.
  [[nodiscard]] unsigned number() const noexcept {
    return tries_->number();
  }

private:
  blocking_tries* tries_;
};

namespace detail {

template <class T>
struct blocking_result {
  using type = expected<T>;
};

template <>
struct blocking_result<void> {
  using type = expected<done>;
};

template <class T>
struct blocking_result<expected<T>> {
  using type = expected<T>;
};

template <class F>
using blocking_result_of = typename blocking_result<
  std::invoke_result_t<F&, blocking_transaction&>>::type;

template <class F>
blocking_result_of<F> transact_blocking(blocking_tries& tries, F& body) {
  using body_result = std::invoke_result_t<F&, blocking_transaction&>;
  auto call = [&]() -> blocking_result_of<F> {
    blocking_transaction tx{tries};
    if constexpr (std::is_void_v<body_result>) {
      body(tx);
      return done{};
    } else {
      return body(tx);
    }
  };
  while (tries.begin()) {
    try {
      auto result = call();
      tries.left();
      if (tries.why() == nullptr)
        return result;
    } catch (...) {
      tries.left();
      if (tries.why() == nullptr)
        throw;
    }
    tries.back_off();
  }
  return *tries.why();
}

[[nodiscard]] party_ptr party_of_caller(const scope& where,
                                        caf::blocking_actor* self);

} // namespace detail

/// Runs `body(blocking_transaction&)` in this thread, which may be no actor's.
/// Returns what the body returns: T or expected<T> as expected<T>, nothing as
/// expected<done>; `deadlock` when the last try has met one, `cancelled` when
/// it was cancelled between two tries. What the body throws is thrown, after
/// all that it took was released. Whatever a body returns or throws after it
/// was told `deadlock` is dropped.
/// @throws misuse if the options make no sense
template <class F>
requires std::invocable<F&, blocking_transaction&> detail::blocking_result_of<F>
transact(const scope& where, F body, transact_options options = {}) {
  blocking_tries tries{detail::party_of_caller(where, nullptr),
                       std::move(options)};
  return detail::transact_blocking(tries, body);
}

/// The same in a blocking actor (of a scoped_actor pass `ptr()`). One that is
/// told to exit while it waits or backs off ends with `session_ended`.
template <class F>
requires std::invocable<F&, blocking_transaction&> detail::blocking_result_of<F>
transact(const scope& where, caf::blocking_actor* self, F body,
         transact_options options = {}) {
  blocking_tries tries{detail::party_of_caller(where, self),
                       std::move(options)};
  return detail::transact_blocking(tries, body);
}

} // namespace pawl
