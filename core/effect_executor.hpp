// effect_executor: carries out, in order, what the machines of one scope want
// done: the coordinator, and the worker of the node's own requests.
//
// The one place where effects become calls. Actors and the simulator use it
// alike; only their ports differ. It knows no CAF.
//
// An effect may feed an event to a machine, whose effects come behind those
// that are listed already: no recursion, and the same order for the same
// events.
//
// Not thread-safe: it belongs to whoever owns the machines.

#pragma once

#include "pawl/core/coordinator.hpp"
#include "pawl/core/scope_effect.hpp"
#include "pawl/core/worker.hpp"

#include <string>
#include <vector>

namespace pawl {

/// What the executor needs of the world.
class scope_port {
public:
  virtual ~scope_port();

  /// To a peer, if there is a link.
  virtual void to_peer(node_slot to, message what) = 0;

  /// The request's session is at least that old: session_ledger::claim_age.
  virtual void aged(const request_id& id, std::uint64_t lamport) = 0;

  /// The request is held everywhere. Judges the client's word and enters the
  /// holds into the ledger; false: it has ended, give back.
  [[nodiscard]] virtual bool whole(const request_id& id,
                                   std::vector<fencing_token> tokens,
                                   std::vector<node_slot> nodes)
    = 0;

  virtual void ended(const request_id& id, outcome why, node_slot node) = 0;

  virtual void hold_lost(const request_id& id, std::uint16_t which, loss why,
                         node_slot node)
    = 0;

  virtual void downgraded(const request_id& id, std::uint16_t which) = 0;

  virtual void node_left(const request_id& id, node_slot node) = 0;

  virtual void view_changed(std::vector<node_slot> nodes) = 0;

  /// The scope has joined.
  virtual void ready() = 0;

  virtual void mismatch(node_slot peer) = 0;

  /// A search for a deadlock is to begin.
  virtual void walk(const effect::walk& x) = 0;
};

class effect_executor {
public:
  effect_executor(node_slot self, coordinator& home, worker& own,
                  scope_port& port);

  /// Carries out what is listed, and what comes of it, until nothing is left.
  void run(scope_effects list);

  /// Effects carried out so far.
  [[nodiscard]] std::uint64_t executed() const noexcept {
    return executed_;
  }

private:
  void execute(effect::send& x);
  void execute(effect::aged& x);
  void execute(effect::whole& x);
  void execute(effect::ended& x);
  void execute(effect::hold_lost& x);
  void execute(effect::downgraded& x);
  void execute(effect::node_left& x);
  void execute(effect::view_changed& x);
  void execute(effect::ready& x);
  void execute(effect::mismatch& x);
  void execute(effect::installed& x);
  void execute(effect::walk& x);

  const node_slot self_;
  coordinator& home_;
  worker& own_;
  scope_port& port_;
  scope_effects next_;
  std::uint64_t executed_ = 0;
};

/// Whether a message is for the worker of its sender. Else it is for the
/// scope's actor: the coordinator, or its walks; `hand_over` and `scope_closed`
/// are for both, the coordinator first.
[[nodiscard]] bool for_worker(const message& what) noexcept;
[[nodiscard]] bool for_coordinator(const message& what) noexcept;

} // namespace pawl
