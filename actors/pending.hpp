// pending: a request of this node's clients that could not be granted at once.
//
// It is the waiter of the row (a request for one term on this node), or of the
// coordinator (a request for several nodes or terms: "wide"). Whoever judges
// its word ends it; `settled()` then takes it out of the deadlines and of its
// cancel token and hands it to its client: to the actor, as a response (then),
// or to the thread that waits (wait).
//
// References: one of whoever starts it until `start` returns; the ledger's and
// the queue's while it waits; the coordinator's (wide); one per delivery; one
// per hold of a wide request, until that is given up. Deadlines and cancel
// token keep none: they are left before the last one goes.

#pragma once

#include "pawl/actors/cancel.hpp"
#include "pawl/actors/expected.hpp"
#include "pawl/actors/lock.hpp"
#include "pawl/actors/session_state.hpp"
#include "pawl/core/deadlines.hpp"
#include "pawl/core/multi_node_request.hpp"
#include "pawl/core/waiter.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace pawl {

using steady_time = std::chrono::steady_clock::time_point;

/// What a builder has collected: one ask, before it is asked.
struct ask {
  enum class place : std::uint8_t { here, listed, every_node };

  ask(session_ref session, term_lock what)
    : who(std::move(session)), one(std::move(what)) {
    // nop
  }

  ask(session_ref session, std::vector<term_lock> what)
    : who(std::move(session)), many(std::move(what)), several(true) {
    // nop
  }

  /// Null once it was granted on the spot.
  session_ref who;
  /// One term, or several in canonical order.
  term_lock one;
  std::vector<term_lock> many;
  bool several = false;
  place where = place::here;
  bool no_wait = false;
  std::vector<std::string> nodes;
  std::optional<std::chrono::nanoseconds> within;
  cancel_token cancel;
};

class pending : public waiter, public deadline_entry, public cancel_entry {
public:
  /// What the record of one term of a wide request points to.
  struct whole_hold : hold_owner {
    pending* from = nullptr;
    std::uint16_t which = 0;
    fencing_token token = 0; // once granted
  };

  ~pending() override;

  // -- start ------------------------------------------------------------------

  /// Asks. Drops the starter's reference: the request lives on while anybody
  /// needs it.
  void start();

  // -- of the coordinator (wide requests) -------------------------------------

  [[nodiscard]] bool wide() const noexcept {
    return wide_;
  }

  [[nodiscard]] const request_spec& spec() const noexcept {
    return spec_;
  }

  /// A part of it is held: from now until it ends its session is that old.
  void aged(std::uint64_t lamport);

  /// Granted on these nodes with these tokens. Judges the word and enters the
  /// holds into the ledger; false: give back what was granted.
  bool whole(const std::vector<fencing_token>& tokens,
             std::vector<node_slot> nodes);

  /// Ends it, on the coordinator's word. `node` is the one concerned.
  void refuse(outcome why, std::string node);

  /// A search for a deadlock has come to a verdict. False: it had ended before.
  bool condemn(outcome why, std::vector<cycle_edge> cycle);

  /// Once granted: whether its client has that term still.
  [[nodiscard]] bool has(std::uint16_t which) const noexcept;

  /// A hold of it, by term, is shared from now on, for all its handles.
  void downgraded(std::uint16_t which);

  /// Its hold of a term, one that its client still has, shrank by a node.
  void node_left(std::uint16_t which, node_slot node);

  /// A hold of it, by term, is not held any more. False if its client had given
  /// it up already.
  bool lost(std::uint16_t which, std::string node);

  // -- of its holds -----------------------------------------------------------

  [[nodiscard]] bool nodes_heard() const;

  // -- properties -------------------------------------------------------------

  [[nodiscard]] session_state& client() const noexcept {
    return static_cast<session_state&>(session());
  }

  [[nodiscard]] scope_state& scope() const noexcept {
    return client().scope();
  }

  [[nodiscard]] const std::optional<steady_time>& deadline() const noexcept {
    return deadline_;
  }

protected:
  explicit pending(ask&& what);

  /// Once granted: the handles. In the order of the terms.
  void take(lock& out);
  void take(lock_set& out);

  /// Why it was not.
  [[nodiscard]] failure why() const;

private:
  lock handle_of(hold_record& r) noexcept;
  void report() noexcept;
  void drop_claim() noexcept;
  void settled() noexcept override;

  // -- cancel_entry -----------------------------------------------------------

  bool pin() noexcept override;
  void cancel_now() noexcept override;
  void unpin() noexcept override;

  /// Hands it to its client. From any thread.
  virtual void deliver() noexcept = 0;

  hold_record* next_hold() noexcept;
  [[nodiscard]] std::int64_t sampled_now() const noexcept;

  const bool wide_;
  request_spec spec_; // wide
  std::unique_ptr<whole_hold[]> wholes_;
  std::optional<steady_time> deadline_;
  steady_time asked_;
  cancel_token cancel_;
  mutable std::mutex lock_; // of what the coordinator writes afterwards
  std::vector<node_slot> nodes_;
  std::vector<cycle_edge> cycle_; // of a deadlock; before the continuation
  enum class claim : std::uint8_t { none, made, over };
  claim claim_ = claim::none; // on the age of its session
  std::string node_;          // concerned in the failure; before settled()
};

/// The delivery of a settled request to its actor.
class delivery final : public compat::deliverable {
public:
  explicit delivery(pending& x) noexcept : what_(x) {
    what_.ref();
  }

  ~delivery() override {
    what_.unref();
  }

  [[nodiscard]] pending& what() const noexcept {
    return what_;
  }

private:
  pending& what_;
};

/// A request whose result goes to an event-based actor.
class pending_response : public pending {
public:
  /// In the actor, when its response has arrived.
  virtual void complete() = 0;

protected:
  explicit pending_response(ask&& what);

private:
  void deliver() noexcept override;

  compat::responder where_;
};

template <class Held, class F, class G>
class pending_then final : public pending_response {
public:
  pending_then(ask&& what, F on_held, G on_failure)
    : pending_response(std::move(what)), on_held_(std::move(on_held)),
      on_failure_(std::move(on_failure)) {
    // nop
  }

  void complete() override {
    auto& actor = client().party();
    if (state() == outcome::granted) {
      Held held;
      take(held);
      actor.run([f = std::move(on_held_), held = std::move(held)]() mutable {
        f(std::move(held));
      });
    } else {
      actor.run([f = std::move(on_failure_), why = why()]() mutable {
        f(static_cast<const failure&>(why));
      });
    }
  }

private:
  F on_held_;
  G on_failure_;
};

/// A request for which a thread or a blocking actor waits.
class pending_wait final : public pending {
public:
  explicit pending_wait(ask&& what);

  /// Blocks until it is settled. The caller has a reference of its own.
  void await();

  template <class Held>
  expected<Held> result() {
    if (state() != outcome::granted)
      return why();
    Held held;
    take(held);
    return held;
  }

private:
  void deliver() noexcept override;
  void await_in_thread();
  void await_in_actor(caf::blocking_actor* self);

  std::mutex done_lock_;
  std::condition_variable done_changed_;
  bool done_ = false;
  std::optional<compat::responder> where_;
};

} // namespace pawl
