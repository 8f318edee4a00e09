// open_scope: the scope on one node while it is open: the real machines, and
// what they are given for ports. As the scope's actor, its workers and the
// managers of its rows are in actors/ and net/.

#pragma once

#include "scope_cluster.hpp"

namespace pawl::sim {

struct scope_cluster::open_scope final : lock_port,
                                         worker_port,
                                         session_resolver,
                                         walk_port,
                                         scope_port {
  open_scope(scope_cluster& c, process& p, std::uint64_t life);

  // -- events -----------------------------------------------------------------

  /// Feeds one of the machines and carries out what comes of it.
  template <class F>
  void feed(F f) {
    scope_effects out;
    f(out);
    run(out);
  }

  void run(scope_effects& out);
  void run_of_worker(std::size_t peer, scope_effects& out);
  void receive(std::size_t from, link_epoch epoch, const message& what);
  void receive_as_worker(std::size_t from, link_epoch epoch,
                         const message& what);
  void link_up(std::size_t peer, link_epoch epoch);
  void link_down(std::size_t peer, link_epoch epoch);
  void worker_down(std::size_t peer, link_epoch epoch);
  void begin_walk(const effect::walk& x);
  void check_invariants() const;

  // -- lock_port --------------------------------------------------------------

  manager_ref take_manager() override;
  void start(manager_ref who, wait_queue& q) override;
  void look(manager_ref who) override;
  void release_whole(hold_owner&) override {
    // nop: clients here say so themselves
  }
  void left_waiting(const session_id& who) override;
  void manage(manager_ref who);

  // -- worker_port ------------------------------------------------------------

  void settled(part_waiter& w) noexcept override;
  void enters(part_waiter& w) override;
  void leaves(part_waiter& w) noexcept override;

  // -- session_resolver -------------------------------------------------------

  session_ledger* find(const session_id& who) override;

  // -- walk_port --------------------------------------------------------------

  void waits_of(const session_id& who, std::vector<wait_name>& out) override;
  bool blockers_of(const wait_question& x, std::size_t limit,
                   blocked_wait& out) override;
  bool reachable(node_slot peer) override;
  std::uint64_t own_ends() override;
  bool waits_here(const wait_name& x) override;
  walk_standing standing_of(const walk_claim& x) override;
  bool sentence(const walk_verdict_message& x, scope_effects& out) override;
  void walked(std::size_t visited) override;

  // -- scope_port -------------------------------------------------------------

  void to_peer(node_slot to, message what) override;
  void aged(const request_id& id, std::uint64_t lamport) override;
  bool whole(const request_id& id, std::vector<fencing_token> tokens,
             std::vector<node_slot> nodes) override;
  void ended(const request_id& id, outcome why, node_slot node) override;
  void hold_lost(const request_id& id, std::uint16_t which, loss why,
                 node_slot node) override;
  void downgraded(const request_id&, std::uint16_t) override {
    // nop: clients here know
  }
  void node_left(const request_id& id, node_slot node) override;
  void view_changed(std::vector<node_slot> nodes) override;
  void ready() override;
  void mismatch(node_slot peer) override;
  void walk(const effect::walk& x) override;

  // -- state ------------------------------------------------------------------

  /// The turns of the scope's own actor come behind those of the workers.
  [[nodiscard]] std::size_t own_turn() const noexcept {
    return cluster.options_.nodes;
  }

  waiter* find_waiter(const wait_name& x);

  struct peer_worker {
    std::unique_ptr<worker> machine;
    link_epoch epoch = 0;
  };

  scope_cluster& cluster;
  process& on;
  const std::uint64_t life;
  std::vector<wait_queue*> managers;
  std::map<std::uint64_t, session*> sessions;
  // Those that wait, as on the wait_board; workers look here when they end.
  std::map<request_id, part_waiter*> parts;
  local_locks locks;
  coordinator home;
  worker own;
  walks search;
  effect_executor executor;
  std::vector<effect::walk> starting;
  std::map<std::size_t, peer_worker> workers;
  std::vector<link_epoch> links; // as the scope's actor knows them
  bool is_ready = false;
};

} // namespace pawl::sim
