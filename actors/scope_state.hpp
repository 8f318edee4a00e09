// scope_state: one open scope on one node: its locks, its parties, its
// deadlines, and the inbox of its actor. For pawl's own use; users have `scope`.
//
//   +------+   stop (closed by the user, or the node shuts down)   +---------+
//   | open | ----------------------------------------------------> | stopped |
//   +------+                                                       +---------+
//
//   open:     requests are taken; while the scope joins they wait.
//   stopped:  requests end with `scope_closed` or `shutting_down`. What waited
//             has been ended so, what was held is released; managers and scope
//             actor end. Handles go on being harmless.
//
// The inbox. What clients, managers, links and workers have for the scope's
// actor is appended to one list; only the first one sends a message. So the
// actor gets batches that grow with load, and nobody waits for anybody.
//
// Thread-safe.

#pragma once

#include "pawl/actors/caf_compat.hpp"
#include "pawl/actors/party.hpp"
#include "pawl/actors/manager_pool.hpp"
#include "pawl/actors/peer_port.hpp"
#include "pawl/actors/scope_options.hpp"
#include "pawl/actors/steady_now.hpp"
#include "pawl/actors/wait_board.hpp"
#include "pawl/core/deadlines.hpp"
#include "pawl/core/local_locks.hpp"
#include "pawl/core/message.hpp"
#include "pawl/core/scope_effect.hpp"
#include "pawl/core/statistics.hpp"
#include "pawl/core/worker.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace pawl {

class pending;
class session_state;

/// What is put into the inbox of a scope's actor.
namespace post {

/// A wide request starts. One reference comes with it.
struct open {
  pending* what;
};

struct cancel {
  request_id id;
  outcome why;
};

/// A hold of a granted wide request is given up. One reference comes with it.
struct release {
  pending* what;
  std::uint16_t which;
};

/// A session has made its hold on this node shared; it may have it elsewhere.
/// (By its term, not by a request: that may be gone when this is heard of.)
struct downgraded {
  session_id who;
  term what;
};

/// A waiter of the node's own worker. One reference comes with it.
struct settled {
  part_waiter* what;
};

/// From a peer, for the coordinator.
struct from_peer {
  node_slot from;
  link_epoch epoch;
  message what;
};

struct link_up {
  node_slot peer;
  link_epoch epoch;
  std::int64_t at; // steady_now_ns() then, or a little later
};

/// There is no link yet that the scope may use, but the peer is up.
struct peer_is_up {
  node_slot peer;
};

struct link_down {
  node_slot peer;
  link_epoch epoch;
};

struct rejected {
  node_slot peer;
};

/// What the worker of a peer wants done.
struct effects {
  scope_effects what;
};

/// A client's request waits, and may close a cycle.
struct walk {
  wait_name what;
};

/// The session of a wide request waits for or holds something else, too.
struct elsewhere {
  request_id id;
};

/// An actor with many locks has ended.
struct close_party {
  party_ptr who;
};

/// A deadline has become the earliest one.
struct arm {};

struct stop {
  outcome why;
};

} // namespace post

using scope_post
  = std::variant<post::open, post::cancel, post::release, post::downgraded,
                 post::settled, post::from_peer, post::link_up,
                 post::peer_is_up, post::link_down, post::rejected,
                 post::effects, post::walk, post::elsewhere, post::close_party,
                 post::arm, post::stop>;

/// Something that has to end before the locks of its scope do.
class stop_first {
public:
  virtual ~stop_first() = default;
  virtual void stop() = 0;
  virtual bool wait_stopped(std::chrono::milliseconds limit) = 0;
};

/// Rings once, at its time or when its scope is shut, unless it is taken back.
/// While it is set the scope keeps it alive.
class alarm : public deadline_entry {
public:
  virtual ~alarm() = default;

  /// From any thread, with no lock held.
  virtual void rings() noexcept = 0;

private:
  friend class scope_state;

  std::shared_ptr<alarm> set_; // under the scope's lock of deadlines
};

/// Whether a scope takes no requests any more.
[[nodiscard]] inline bool is_shut(outcome gate) noexcept {
  return gate == outcome::scope_closed || gate == outcome::shutting_down;
}

class scope_state final : public lock_port,
                          public worker_port,
                          public std::enable_shared_from_this<scope_state> {
public:
  /// `port` reaches the other nodes; null if there are none. `clock` is the
  /// node's.
  scope_state(caf::actor_system& system, std::string name, scope_options options,
              scope_place place, std::shared_ptr<lamport_clock> clock,
              std::shared_ptr<peer_port> port);

  ~scope_state() override;

  /// Spawns the scope's actor. Once, after construction.
  void start();

  /// Ends it all; see above. Blocks until the scope's actor has ended, unless
  /// called by an actor. Idempotent.
  void stop(outcome why);

  /// `x` is stopped, and waited for, before the scope ends anything.
  void stop_before(std::weak_ptr<stop_first> x);

  // -- sessions ---------------------------------------------------------------

  /// The party of the actor that calls.
  [[nodiscard]] party_ptr party_of(caf::local_actor* self);

  /// A party for sessions of the thread that calls.
  [[nodiscard]] party_ptr party_of_thread();

  /// The actor of a party has ended.
  void forget(caf::actor_id who);

  /// Ends a session of this scope.
  void close(session_state& x, outcome why);

  /// Whether another session of the same party has a hold of `what`, which is
  /// for several nodes, in the way of a request in `mode`.
  [[nodiscard]] bool wide_hold_of_party(const session_state& mine,
                                        const term& what);

  [[nodiscard]] session_id next_session();
  [[nodiscard]] request_id next_request();

  // -- requests ---------------------------------------------------------------

  /// `pending` if requests are taken and granted; otherwise how they end. While
  /// the scope joins: `busy`.
  [[nodiscard]] outcome gate() const noexcept {
    return gate_.load(std::memory_order_acquire);
  }

  /// Blocks until the scope has joined; false if it has not within `limit`.
  [[nodiscard]] bool wait_ready(std::chrono::milliseconds limit);

  /// Hangs a waiter on its row, now or when the scope has joined.
  void ask_here(pending& x);

  /// A session took a lock at once while it waits on other nodes, which may
  /// have been told that it holds nothing: they look for deadlocks now.
  void holds_while_it_waits(const session_state& who);

  void set_deadline(pending& x);
  void drop_deadline(pending& x) noexcept;

  /// Sets an alarm that is not set. Costs no timer: all share the scope's. After
  /// the scope was shut it rings at once.
  void set_alarm(std::shared_ptr<alarm> x, alarm::time_point due);

  /// Takes it back; it may be ringing already.
  void drop_alarm(alarm& x) noexcept;

  /// Ends what is due; the next time to come back, if there is one.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point>
  end_due(std::chrono::steady_clock::time_point now);

  // -- of the scope's actor ---------------------------------------------------

  void put(scope_post what);

  /// Takes what has been put, in order. Empty: the next `put` sends a message.
  [[nodiscard]] std::vector<scope_post> take_posts();

  /// The scope has joined: whoever waits for that is asked now.
  void ready();

  /// No more requests are taken.
  void shut(outcome why);

  /// The scope's actor ends: nothing that is put is read any more.
  void close_inbox();

  /// What is still kept: ends it all, on behalf of `stop`.
  void close_parties();

  void view(std::vector<node_slot> nodes);
  [[nodiscard]] std::vector<node_slot> view() const;

  // -- lock_port, worker_port -------------------------------------------------

  manager_ref take_manager() override;
  void start(manager_ref who, wait_queue& q) override;
  void look(manager_ref who) override;
  void release_whole(hold_owner& x) override;
  void left_waiting(const session_id& who) override;
  void settled(part_waiter& w) noexcept override;
  void enters(part_waiter& w) override;
  void leaves(part_waiter& w) noexcept override;

  // -- deadlocks --------------------------------------------------------------

  /// Notes a verdict on a session of this node. The last 64 are kept.
  void report(deadlock_report x);

  [[nodiscard]] std::vector<deadlock_report> deadlocks() const;

  /// How the waiters of a peer's worker find back to it; made when it is asked
  /// for first. Here because it has to outlive all that hang in the table.
  [[nodiscard]] worker_port& way_back(
    node_slot peer,
    const std::function<std::unique_ptr<worker_port>()>& make);

  // -- nodes ------------------------------------------------------------------

  [[nodiscard]] const std::string& name_of(node_slot x) const;
  [[nodiscard]] std::optional<node_slot> slot_of(std::string_view name) const;

  [[nodiscard]] const scope_place& place() const noexcept {
    return place_;
  }

  [[nodiscard]] node_slot self() const noexcept {
    return place_.self;
  }

  [[nodiscard]] peer_port* port() const noexcept {
    return port_.get();
  }

  [[nodiscard]] const std::string& name() const noexcept {
    return name_;
  }

  [[nodiscard]] const scope_options& options() const noexcept {
    return options_;
  }

  [[nodiscard]] caf::actor_system& system() const noexcept {
    return system_;
  }

  /// The largest token that this node may have issued or seen.
  [[nodiscard]] fencing_token highest_token() const;

  // -- for everybody ----------------------------------------------------------

  wait_board board; // outlives what is listed on it
  local_locks locks;
  pawl::statistics statistics;
  const std::shared_ptr<lamport_clock> clock;

  /// Wide requests that the coordinator knows, pending and granted.
  std::atomic<std::size_t> wide_requests{0};
  /// Sessions open in the scope.
  std::atomic<std::size_t> sessions{0};
  /// By slot: when the link came up over which each side has installed what the
  /// other one holds, and said so (or the peer has not opened the scope).
  std::vector<exchange_time> exchanged;

private:
  void dispose(scope_post& what);
  void seek_deadlock(pending& x);
  [[nodiscard]] bool arm(std::chrono::steady_clock::time_point due) noexcept;
  [[nodiscard]] std::shared_ptr<alarm>
  take_alarm(std::chrono::steady_clock::time_point now);
  void ring_all();
  [[nodiscard]] caf::actor actor();

  caf::actor_system& system_;
  const std::string name_;
  const scope_options options_;
  const scope_place place_;
  const std::shared_ptr<peer_port> port_;
  const std::uint64_t instance_; // of this process: for caches of threads
  const std::chrono::steady_clock::time_point started_;
  manager_pool managers_;
  std::atomic<outcome> gate_{outcome::busy};

  std::mutex actor_lock_;
  caf::actor actor_;
  std::shared_future<void> actor_ended_;
  std::vector<std::weak_ptr<stop_first>> stop_before_;
  bool stops_ = false; // what is to end before it has been told

  std::mutex inbox_lock_;
  std::vector<scope_post> inbox_;
  bool inbox_closed_ = false;

  std::mutex parties_lock_;
  std::unordered_map<caf::actor_id, party_ptr> parties_;
  std::vector<std::weak_ptr<party>> threads_;

  std::mutex deadlines_lock_;
  deadlines deadlines_;
  deadlines alarms_;
  bool alarms_shut_ = false;
  std::chrono::steady_clock::time_point armed_
    = std::chrono::steady_clock::time_point::max();

  std::mutex joining_lock_;
  std::condition_variable joined_;
  std::vector<pending*> joining_; // each with a reference

  mutable std::mutex reports_lock_;
  std::deque<deadlock_report> reports_;

  std::mutex ways_back_lock_;
  std::vector<std::unique_ptr<worker_port>> ways_back_; // by slot

  mutable std::mutex view_lock_;
  std::vector<node_slot> view_;
};

using scope_ptr = std::shared_ptr<scope_state>;

} // namespace pawl
