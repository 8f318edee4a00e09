// scope_actor: the actor of one scope on one node. It owns the view, the wide
// requests (coordinator), the worker of the node's own requests, and the timer.
//
// All it does is feed what its inbox brings to the machines and let the executor
// carry their effects out. Its state diagram is that of membership.
//
// One timer message is pending at a time: the earliest of the next deadline of a
// request, of joining, and of housekeeping, which gives memory of the table back
// that its present rows do not need. A deadline that comes in earlier sets
// another one, and the late one then finds nothing to do.

#pragma once

#include "pawl/actors/caf_compat.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/core/coordinator.hpp"
#include "pawl/core/effect_executor.hpp"
#include "pawl/core/walk.hpp"
#include "pawl/core/worker.hpp"

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <unordered_map>
#include <vector>

namespace pawl {

class scope_actor final : public caf::event_based_actor,
                          private scope_port,
                          private session_resolver,
                          private walk_port {
public:
  /// `ended` is set when it is over.
  scope_actor(caf::actor_config& cfg, scope_ptr scope,
              std::shared_ptr<std::promise<void>> ended);

  caf::behavior make_behavior() override;

  void on_exit() override;

private:
  // -- events -----------------------------------------------------------------

  void open();
  void drain();
  void wake();

  void handle(post::open& x);
  void handle(post::cancel& x);
  void handle(post::release& x);
  void handle(post::downgraded& x);
  void handle(post::settled& x);
  void handle(post::from_peer& x);
  void handle(post::link_up& x);
  void handle(post::peer_is_up& x);
  void handle(post::link_down& x);
  void handle(post::rejected& x);
  void handle(post::effects& x);
  void handle(post::walk& x);
  void handle(post::elsewhere& x);
  void handle(post::close_party& x);
  void handle(post::arm& x);
  void handle(post::stop& x);

  // -- scope_port -------------------------------------------------------------

  void to_peer(node_slot to, message what) override;
  void aged(const request_id& id, std::uint64_t lamport) override;
  bool whole(const request_id& id, std::vector<fencing_token> tokens,
             std::vector<node_slot> nodes) override;
  void ended(const request_id& id, outcome why, node_slot node) override;
  void hold_lost(const request_id& id, std::uint16_t which, loss why,
                 node_slot node) override;
  void downgraded(const request_id& id, std::uint16_t which) override;
  void node_left(const request_id& id, node_slot node) override;
  void view_changed(std::vector<node_slot> nodes) override;
  void ready() override;
  void mismatch(node_slot peer) override;
  void walk(const effect::walk& x) override;

  // -- session_resolver -------------------------------------------------------

  session_ledger* find(const session_id& who) override;

  // -- walk_port --------------------------------------------------------------

  void waits_of(const session_id& who, std::vector<wait_name>& out) override;
  bool blockers_of(const wait_question& what, std::size_t limit,
                   blocked_wait& out) override;
  bool reachable(node_slot peer) override;
  std::uint64_t own_ends() override;
  bool waits_here(const wait_name& what) override;
  walk_standing standing_of(const walk_claim& x) override;
  bool sentence(const walk_verdict_message& x, scope_effects& out) override;
  void walked(std::size_t visited) override;

  // -- helpers ----------------------------------------------------------------

  [[nodiscard]] std::chrono::nanoseconds now() const;
  void run(scope_effects& out);
  void set_timer();
  void note_exchange(node_slot peer);
  void keep_house();
  void forget(const request_id& id);
  void end_patience();
  void start_walk(const wait_name& what, bool all_waits);
  template <class F>
  bool with_waiter(const wait_name& what, F f);
  [[nodiscard]] bool still_pending(const wait_name& what);
  [[nodiscard]] standing how_in_the_way(const walk_claim& x);
  pending* find(const request_id& id);
  std::string name_or_nothing(node_slot x) const;

  struct entry {
    pending* what = nullptr; // with a reference
    std::size_t holds = 0;   // of its terms, once granted
  };

  scope_ptr scope_;
  std::shared_ptr<std::promise<void>> ended_;
  pawl::coordinator home_;
  worker own_;
  walks search_;
  effect_executor executor_;
  /// Walks that begin later, if their wait is still there then. All wait for the
  /// same time, so the first is the next.
  struct patient_walk {
    std::chrono::steady_clock::time_point due;
    effect::walk what;
  };
  std::deque<patient_walk> patient_;
  std::vector<effect::walk> starting_;
  std::unordered_map<request_id, entry> requests_;
  struct session_entry {
    session_state* state = nullptr;
    std::size_t requests = 0;
  };
  std::unordered_map<session_id, session_entry> sessions_; // of requests_
  struct link {
    link_epoch epoch = 0; // 0: no link
    std::int64_t since = 0;
    /// The peer has installed what this node has handed over.
    bool acknowledged = false;
  };
  std::vector<link> links_; // by slot
  std::chrono::steady_clock::time_point armed_
    = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point housekeeping_at_;
  bool stopping_ = false;
};

} // namespace pawl
