// worker: acts in this node's lock table in the name of one peer's sessions.
//
// Each node has one per peer and link epoch, and one for its own requests for
// several nodes or terms. There is no actor per lock and none per request. For
// its peer's sessions it keeps a ledger of its own each, made with the
// session's first request and dropped with its last; for its own node's
// sessions it uses the client's ledger.
//
// A request on this node:
//
//   +-----------+ set_ready +--------+   settled    +---------+
//   | held back | --------> | taking | -----------> | granted |
//   +-----------+           +--------+ last term    +---------+
//         |                   |  |                       |
//         |                   |  | settled: a term       | release of all
//         |                   |  v was refused           |
//         +-------------------+--------------------------+--> gone
//           abandon, a newer attempt, the end of the epoch
//
// It takes its terms in the order given, one after another, and answers once:
// `granted` with all of them, or `refused` with none. What an abandon gives
// back falls back to the mode that the session had before. An abandon or a
// release of an unknown request does nothing and leaves no trace: links keep
// their order, so neither can come before its request.
//
// Hand-over. The every_node holds of a peer that joins, or comes back after a
// cut, are put into the rows whoever is there. A row in which holds conflict is
// settled by its top hold: the one with the largest token, at equal tokens the
// exclusive one. All that conflict with it have lost: their homes are told and
// take them back, by `release` if granted, by `abandon` if partial; until then
// all lie in the row. But a partial grant gives way whatever its token. Whether
// the top one is partial is asked at its home first: either it gives way, or a
// `raise` comes back. By that time whatever its home had said earlier (a
// downgrade, say) has arrived too, so nobody loses against a hold that is over.
//
// Invariants: K1 the records of a request are those of its terms before `next`,
// except released ones. K2 it waits only while taking, with one waiter. K3 a
// session is listed iff a request of it is. K4 nothing is held back when ready.
//
// Not thread-safe, except part_waiter::settled. Costs: O(terms) per message.

#pragma once

#include "pawl/core/local_locks.hpp"
#include "pawl/core/message.hpp"
#include "pawl/core/scope_effect.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <unordered_map>
#include <vector>

namespace pawl {

class part_waiter;

/// How a settled waiter finds back to its worker.
class worker_port {
public:
  virtual ~worker_port();

  /// From any thread, once per waiter that had to wait. The port passes `w`,
  /// with one reference, to `worker::settled`: the actor by a message to
  /// itself, never on this stack.
  virtual void settled(part_waiter& w) noexcept = 0;

  /// A waiter is about to wait, or waits; it does not any more. What is between
  /// the two is what a search for a deadlock can find. By the worker's thread.
  virtual void enters(part_waiter& w) = 0;
  virtual void leaves(part_waiter& w) noexcept = 0;
};

/// Where the worker of a node's own requests finds the sessions of clients.
class session_resolver {
public:
  virtual ~session_resolver();

  /// The session with one more handle, or null if it is gone.
  [[nodiscard]] virtual session_ledger* find(const session_id& who) = 0;
};

/// What a part's record points to. Lives as long as the record is in a row.
struct part_owner : hold_owner {
  /// What its node knows about it. Only holds that met a hand-over are asked
  /// for, so most stay `unknown`.
  enum class standing : std::uint8_t { unknown, asked, whole, lost };

  std::uint16_t which = 0;
  /// Any worker may write it, under the bit of the row's bucket.
  mutable std::atomic<standing> known{standing::unknown};
};

/// One term's wait. It goes on living beside the hold that came of it.
class part_waiter final : public waiter {
public:
  part_waiter(worker_port& port, session_ledger& who, const term_lock& what,
              const request_message& from, std::uint16_t which);

  /// What its hold says about itself.
  part_owner owner;

  /// The worker goes on to other work. False: it is settled already, and the
  /// port will not hear of it.
  [[nodiscard]] bool park() noexcept;

private:
  enum class stage : std::uint8_t { asking, parked, settled };

  void settled() noexcept override;

  worker_port& port_;
  std::atomic<stage> stage_{stage::asking};
};

struct worker_options {
  node_slot self = no_node;
  /// Whose sessions: a peer, or this node itself.
  node_slot peer = no_node;
  link_epoch epoch = 0;
  std::chrono::nanoseconds node_timeout{0};
};

class worker {
public:
  /// All outlive the worker, and `port` also every waiter that hangs in
  /// `locks`: one that was granted while it was taken back tells it later.
  /// `sessions` is asked if the peer is this node.
  worker(const worker_options& options, local_locks& locks, worker_port& port,
         lamport_clock& clock, session_resolver& sessions);

  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  /// As close_epoch.
  ~worker();

  // -- events -----------------------------------------------------------------

  /// What its peer says to it: request, abandon, release, downgrade, raise,
  /// hand_over, scope_closed, waits_elsewhere. Anything else is not for it and
  /// is ignored. A hand-over goes to the coordinator first, then here.
  void receive(const message& what, scope_effects& out);

  /// A waiter was granted or has ended. Takes over the port's reference.
  void settled(part_waiter& w, scope_effects& out);

  /// The scope has joined: what was held back is taken now, in order.
  void set_ready(scope_effects& out);

  /// The scope is closed on this node: who waits is told so, all is given up.
  void close_scope(scope_effects& out);

  /// The link is gone, and all that came over it.
  void close_epoch(scope_effects& out);

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] std::size_t requests() const noexcept {
    return requests_.size();
  }

  [[nodiscard]] std::size_t sessions() const noexcept {
    return sessions_.size();
  }

  void check_invariants() const;

private:
  enum class phase : std::uint8_t { joining, ready, closed };

  /// The record of one term of a request, and what keeps its owner alive.
  struct held {
    hold_record* record = nullptr; // null once it is given up
    fencing_token token = 0;       // as granted
    part_waiter* from = nullptr;
    std::unique_ptr<part_owner> installed;
  };

  struct entry {
    request_message ask;
    session_ledger* session = nullptr;
    std::vector<held> holds;        // one per term taken
    part_waiter* waiting = nullptr; // known to the port while parked
    bool held_back = false;

    [[nodiscard]] bool complete() const noexcept {
      return holds.size() == ask.terms.size();
    }
  };

  void receive_one(const request_message& x, scope_effects& out);
  void receive_one(const abandon_message& x, scope_effects& out);
  void receive_one(const release_message& x, scope_effects& out);
  void receive_one(const downgrade_message& x, scope_effects& out);
  void receive_one(const raise_message& x, scope_effects& out);
  void receive_one(const hand_over_message& x, scope_effects& out);
  void receive_one(const scope_closed_message& x, scope_effects& out);
  void receive_one(const waits_elsewhere_message& x, scope_effects& out);

  [[nodiscard]] outcome acceptable(const request_message& x) const noexcept;
  [[nodiscard]] bool acceptable(const handed_over& x) const noexcept;
  void take(entry& e, scope_effects& out);
  bool take_result(entry& e, scope_effects& out);
  void look_at_what_is_kept(const entry& e, std::size_t which,
                            scope_effects& out);
  void begin_walk(const entry& e, bool raced, scope_effects& out);
  void drop(const request_id& id, scope_effects& out);
  void let_go(entry& e, std::size_t which, bool unseen, scope_effects& out);
  void install(const handed_over& x, scope_effects& out);

  struct rival;
  void settle_row(const term& what, scope_effects& out);
  [[nodiscard]] static const part_owner& owner_of(const held& x) noexcept;

  [[nodiscard]] entry* find(const request_id& id) noexcept;
  [[nodiscard]] session_ledger* enter_session(const session_id& who,
                                              const session_age& age);
  void leave_session(session_ledger& who);

  /// A session with requests here.
  struct session_entry {
    session_ledger* ledger = nullptr; // one handle is ours
    std::size_t requests = 0;
  };

  const worker_options options_;
  local_locks& locks_;
  worker_port& port_;
  lamport_clock& clock_;
  session_resolver& resolver_;
  phase phase_ = phase::joining;
  std::unordered_map<request_id, std::unique_ptr<entry>> requests_;
  std::unordered_map<session_id, session_entry> sessions_;
  std::vector<request_id> held_back_; // in order of arrival
};

} // namespace pawl
