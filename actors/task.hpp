// task: a piece of work of an event-based actor that can be started, cancelled
// and combined; whatever goes wrong in it arrives where it was started.
//
//   pawl::serial(tags, self, {first, second})
//     .cancel_with(stop.token())
//     .then([] { ... }, [](const pawl::task_failure& why) { ... });
//
// A task is a transaction (transact.hpp) or a combination of tasks:
//   serial     one after the other; after the first failure none is started
//   parallel   all at once, each in a session of its own; the first failure
//              cancels the others, and arrives when all of them have ended
//   for_each   the task that `f` makes of each element, at most `n` at a time
//
//                      then / its turn in a combination
//      +---------+    +---------+      end       +-------+
//      | created | -> | running | -------------> | ended |
//      +---------+    +---------+                +-------+
//
//   created:  nothing happens; a task that is dropped does nothing.
//   running:  it does what it is made for. Nudges (a cancel, a timer, the last
//             handle of something) come as messages to its actor.
//   ended:    its ending has been called, once; it holds nothing.
//
// A combination has one more state inside `running`:
//
//      +--------+  a child failed, a cancel, `f` threw   +----------+
//      | giving | ----------------------------------->   | stopping |
//      +--------+                                        +----------+
//
//   giving:   while fewer than `n` children run, the next is started.
//   stopping: none is started; those that run have been cancelled.
//   From both it ends when no child runs (and, if giving, none is left).
//
// Invariants:
//   K1 the ending of a task is called at most once; exactly once unless its
//      actor ends first.
//   K2 a combination ends after all of its children.
//   K3 a task that waits for something has one response due at its actor, and
//      exactly one is delivered for it: a nudge, or nothing when it ends.
//   K4 a combination knows its children weakly: what a child waits for keeps
//      the child, the child keeps the combination. When the actor ends, all
//      that the child waits for goes, and with it both.
//
// No recursion: children that end at once are started in a loop, continuations
// go through `party::run`. A task does not keep its actor alive, apart from an
// actor without a behavior, which waits for its response (as with requests).
//
// Not thread-safe: a task belongs to its actor. Cancel sources are.

#pragma once

#include "pawl/actors/cancel.hpp"
#include "pawl/actors/party.hpp"
#include "pawl/actors/scope.hpp"
#include "pawl/core/outcome.hpp"

#include <atomic>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

namespace pawl {

/// Why a task did not end well: a lock that it did not get (`why`, as with a
/// request), or `body_failed`.
struct task_failure : failure {
  task_failure() = default;

  task_failure(failure x) : failure(std::move(x)) {
    // nop
  }

  /// What the body, or the `f` of a for_each, threw; else null.
  std::exception_ptr exception;
};

/// The failure for an exception that is being handled.
[[nodiscard]] task_failure caught_failure();

/// The failure of a body that gives up for a reason of its own.
[[nodiscard]] failure body_failure(std::string message);

/// Who is told how a task has ended. For pawl's own use.
class task_ending {
public:
  virtual ~task_ending() = default;
  virtual void done() = 0;
  virtual void failed(const task_failure& why) = 0;
};

/// What all tasks have in common. For pawl's own use; users have `task`.
class task_state : public cancel_entry,
                   public std::enable_shared_from_this<task_state> {
public:
  explicit task_state(party_ptr owner) noexcept : party_(std::move(owner)) {
    // nop
  }

  virtual ~task_state();

  /// @throws misuse if it has been started: then it is listed with the old one
  void token(cancel_token x);

  /// Starts it, in the actor, once.
  /// @throws misuse outside the actor
  void start(std::unique_ptr<task_ending> ending);

  /// Ends it with `cancelled`, in the actor. It may take until a body that is
  /// being called has returned.
  void cancel();

  [[nodiscard]] pawl::party& party() const noexcept {
    return *party_;
  }

protected:
  enum class phase : std::uint8_t { created, running, ended };

  // -- of the kind of task ----------------------------------------------------

  virtual void run() = 0;

  /// A nudge has arrived.
  virtual void nudged(unsigned what) = 0;

  /// Stops what runs, and ends with `why`, now or soon.
  virtual void stop(const task_failure& why) = 0;

  // -- for it -----------------------------------------------------------------

  static constexpr unsigned look = 1; // something may have changed
  static constexpr unsigned rang = 2; // a timer

  /// Has `nudged(what)` called in the actor, unless the task has ended. From
  /// any thread, by whoever keeps the task alive.
  void nudge(unsigned what) noexcept;

  /// Tells how it has ended: null for well. Nothing of the task is used
  /// afterwards, by a caller that keeps it alive.
  void end(const task_failure* why);

  [[nodiscard]] bool ended() const noexcept {
    return phase_ == phase::ended;
  }

  [[nodiscard]] const cancel_token& token() const noexcept {
    return token_;
  }

private:
  struct nudge_errand;

  static constexpr unsigned cancelled = 4;
  static constexpr unsigned sent = 8; // a delivery is due or must not be made

  void expect_nudges();
  void arrived();
  void act_on(unsigned what);

  // -- cancel_entry -----------------------------------------------------------

  bool pin() noexcept override;
  void cancel_now() noexcept override;
  void unpin() noexcept override;

  const party_ptr party_;
  cancel_token token_;
  std::unique_ptr<task_ending> ending_;
  phase phase_ = phase::created;
  bool expecting_ = false;
  std::atomic<unsigned> nudges_{sent};
  std::shared_ptr<task_state> pinned_; // of the one who cancels
};

namespace detail {

/// The user's continuations, called as those of a request are.
template <class F, class G>
class task_continuation final : public task_ending {
public:
  task_continuation(party_ptr actor, F on_done, G on_failure)
    : actor_(std::move(actor)), on_done_(std::move(on_done)),
      on_failure_(std::move(on_failure)) {
    // nop
  }

  void done() override {
    actor_->run([f = std::move(on_done_)]() mutable { f(); });
  }

  void failed(const task_failure& why) override {
    actor_->run([g = std::move(on_failure_), why]() mutable {
      g(static_cast<const task_failure&>(why));
    });
  }

private:
  const party_ptr actor_;
  F on_done_;
  G on_failure_;
};

} // namespace detail

class [[nodiscard]] task {
public:
  /// For pawl's own use.
  explicit task(std::shared_ptr<task_state> state) noexcept
    : state_(std::move(state)) {
    // nop
  }

  /// Ends with `cancelled` when the token's source says so, whatever the task
  /// is doing: what it holds is released then. Work that a body has given to
  /// others is theirs; a body that is being called returns first.
  task&& cancel_with(cancel_token token) && {
    state_->token(std::move(token));
    return std::move(*this);
  }

  /// Starts it; continues with `on_done()` or
  /// `on_failure(const task_failure&)`, in the actor, exactly once, unless the
  /// actor ends first. By then everything that the task took is released.
  /// @throws misuse outside the task's (event-based) actor.
  template <class F, class G>
  requires std::invocable<F&> && std::invocable<G&, const task_failure&>
  void then(F on_done, G on_failure) && {
    using type = detail::task_continuation<F, G>;
    auto state = std::move(state_);
    state->start(std::make_unique<type>(state->party().shared_from_this(),
                                        std::move(on_done),
                                        std::move(on_failure)));
  }

  /// As `then(on_done, on_failure)` for those who do not care why not. An
  /// exception goes where one of the actor's handler goes.
  template <class F>
  requires std::invocable<F&>
  void then(F on_done) && {
    std::move(*this).then(std::move(on_done), [](const task_failure& why) {
      if (why.exception)
        std::rethrow_exception(why.exception);
    });
  }

  /// For pawl's own use.
  [[nodiscard]] const std::shared_ptr<task_state>& state() const noexcept {
    return state_;
  }

private:
  std::shared_ptr<task_state> state_;
};

namespace detail {

/// Gives the next task, or none.
using task_source = std::function<std::optional<task>()>;

[[nodiscard]] task make_group(const scope& where, caf::scheduled_actor* self,
                              task_source source, std::size_t at_once);

} // namespace detail

/// One after the other, in order. None: done at once. All tasks of a
/// combination belong to the actor `self`.
[[nodiscard]] task serial(const scope& where, caf::scheduled_actor* self,
                          std::vector<task> tasks);

/// All at once. The actor interleaves them; they do not exclude each other but
/// by their locks.
[[nodiscard]] task parallel(const scope& where, caf::scheduled_actor* self,
                            std::vector<task> tasks);

/// The task `f(x)` for each `x` of `elements` in order, at most `at_once` of
/// them at a time (at least 1). Each is made when its turn comes. O(at_once)
/// memory beside the elements.
/// @throws misuse if at_once is 0
template <std::ranges::forward_range Range, class F>
requires std::invocable<F&, std::ranges::range_reference_t<Range>>
[[nodiscard]] task for_each(const scope& where, caf::scheduled_actor* self,
                            Range elements, std::size_t at_once, F f) {
  struct walk {
    Range elements;
    F f;
    std::ranges::iterator_t<Range> next;
  };
  auto all
    = std::make_shared<walk>(walk{std::move(elements), std::move(f), {}});
  all->next = std::ranges::begin(all->elements);
  return detail::make_group(
    where, self,
    [all]() -> std::optional<task> {
      if (all->next == std::ranges::end(all->elements))
        return std::nullopt;
      return all->f(*all->next++);
    },
    at_once);
}

} // namespace pawl
