// coordinator: the home side of one scope on one node. It owns the view, every
// request of this node's sessions for several nodes or terms, and every hold
// that came of one.
//
//                    open, cancel, release, downgraded
//        clients ----------------------------------------> +-------------+
//        workers ----------------------------------------> | coordinator |
//                    installed                             +-------------+
//        links   ----------------------------------------> |  view       |
//                    link_up, link_down, rejected,         |  requests   |
//                    granted, refused, raised, lost,       |  holds      |
//                    scope_opened, scope_closed, hand_over +-------------+
//                                                              | effects
//                                                              v
//
// Because view and holds have one owner, these are one step each: a peer enters
// the view and is handed all holds; a hold is released on all its nodes; a
// grant is made visible, for the view as it is. So no hold is missed by a peer
// that joins meanwhile, and none is handed over after its release
// (docs/decisions/0002).
//
// While the scope joins, requests wait here; `no_wait` is busy. Afterwards a
// request for a list of nodes also waits for those of them with which the
// exchange is under way.
//
// Invariants: C1 pending requests and holds have nodes that are linked; those
// of every_node requests that ask others, and of every_node holds, are exactly
// the view. C2 each request is pending or granted; who has ended is gone.
// C3 idle requests exist only while something that they wait for is unresolved.
// C4 each request is listed by its session, once.
//
// Not thread-safe. O(requests) per change of the view, else O(nodes + terms).

#pragma once

#include "pawl/core/lock_table.hpp"
#include "pawl/core/membership.hpp"
#include "pawl/core/multi_node_request.hpp"
#include "pawl/core/scope_effect.hpp"
#include "pawl/core/session_ledger.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace pawl {

struct coordinator_options {
  /// Of the scope.
  std::string scope;
  /// Of all configured nodes, sorted; slots are places in it.
  std::vector<std::string> nodes;
  node_slot self = no_node;
  std::chrono::nanoseconds node_timeout{0};
  /// What the nodes of the scope must agree on.
  std::uint64_t fingerprint = 0;
};

class coordinator {
public:
  /// `table` and `clock` are this node's, read only, and outlive it.
  coordinator(coordinator_options options, const lock_table& table,
              const lamport_clock& clock);

  // -- events of the scope ----------------------------------------------------

  void open_scope(time_point now, scope_effects& out);

  /// Ends all requests and gives all holds back.
  void close_scope(scope_effects& out);

  void tick(time_point now, scope_effects& out);

  // -- events of clients ------------------------------------------------------

  /// A new request. It ends in exactly one of `effect::whole`, `effect::ended`.
  void open(request_spec spec, scope_effects& out);

  /// The client's word has ended so. Nothing if it is not pending here: then it
  /// has ended, or `whole` is on its way and is answered by `release`.
  void cancel(const request_id& id, outcome why, scope_effects& out);

  /// Gives terms of a hold up (all if empty); nothing if they are not held.
  void release(const request_id& id, std::span<const std::uint16_t> which,
               scope_effects& out);

  /// The session's hold on that term becomes shared, whatever requests it came
  /// from. On this node it is so already: whoever asks for it does that in the
  /// same step. O(requests of the session).
  void downgraded(const session_id& session, const term& what,
                  scope_effects& out);

  /// It was granted, but its client had ended it: nobody has seen the grant, so
  /// upgrades fall back to what was held before.
  void take_back(const request_id& id, scope_effects& out);

  /// A cycle of partial grants is broken at this request.
  void give_back_and_ask_again(const request_id& id, scope_effects& out);

  /// The session of a pending request has another one, here or for this node
  /// alone.
  void waits_elsewhere(const request_id& id, scope_effects& out);

  // -- events of links and workers --------------------------------------------

  void link_up(node_slot peer, link_epoch epoch, scope_effects& out);
  void peer_is_up(node_slot peer) noexcept;
  void link_down(node_slot peer, link_epoch epoch, scope_effects& out);
  void peer_rejected(node_slot peer, scope_effects& out);

  /// What a peer's scope, or this node's own worker, says to this one. Only of
  /// the present epoch. What is for workers is ignored.
  void receive(node_slot from, const message& what, scope_effects& out);

  /// From a worker: a hand-over is installed.
  void installed(node_slot peer, link_epoch epoch, std::uint32_t holds,
                 scope_effects& out);

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] const membership& members() const noexcept {
    return members_;
  }

  [[nodiscard]] const node_order& order() const noexcept {
    return order_;
  }

  /// Requests that are pending, and holds.
  [[nodiscard]] std::size_t requests() const noexcept {
    return requests_.size();
  }

  [[nodiscard]] const multi_node_request* find(const request_id& id) const;

  /// Appends where pending requests of a session wait. O(its requests).
  void waits_of(const session_id& who, std::vector<wait_name>& out) const;

  /// Whether a granted request of a session is in the way of a request for `what`
  /// in `mode` on that node.
  [[nodiscard]] bool holds_against(const term& what, const session_id& who,
                                   lock_mode mode, node_slot node) const;

  /// The first hold of a session's pending requests, by Lamport time, as they
  /// remember it over attempts.
  [[nodiscard]] std::uint64_t age_of(const session_id& who) const;

  [[nodiscard]] std::optional<time_point> next_deadline() const noexcept {
    return members_.next_deadline();
  }

  void check_invariants() const;

private:
  // By serial, so that what happens to all happens to the oldest first.
  using request_map = std::map<std::uint64_t, multi_node_request>;

  void receive_one(node_slot from, const granted_message& x, scope_effects& o);
  void receive_one(node_slot from, const refused_message& x, scope_effects& o);
  void receive_one(node_slot from, const raised_message& x, scope_effects& o);
  void receive_one(node_slot from, const lost_message& x, scope_effects& o);
  void receive_one(node_slot from, const scope_opened_message& x,
                   scope_effects& o);
  void receive_one(node_slot from, const scope_closed_message& x,
                   scope_effects& o);
  void receive_one(node_slot from, const hand_over_message& x,
                   scope_effects& o);

  void apply(const membership::changes& x, loss why, scope_effects& out);
  void leave(node_slot peer, loss why, scope_effects& out);
  void hand_over_to(node_slot peer, scope_effects& out);
  void follow_view(scope_effects& out);
  void start_what_can(scope_effects& out);
  void start(multi_node_request& x, scope_effects& out);
  void tell_siblings(const multi_node_request& x);
  void ask_anew_for(const session_id& session, const term& what,
                    const multi_node_request* except, scope_effects& out);
  static void give_back_first(scope_effects& all, scope_effects& out);
  [[nodiscard]] bool must_wait(const request_spec& x) const;
  template <class F>
  void for_each(F f);
  multi_node_request* pick(const request_id& id);
  void forget_if_ended(const request_id& id);
  void unlist(const multi_node_request& x);

  const coordinator_options options_;
  const lock_table& table_;
  const lamport_clock& clock_;
  const node_order order_;
  membership members_;
  request_map requests_;
  /// Serials of requests, by serial of their session.
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> of_session_;
  std::vector<std::uint64_t> idle_; // serials of those that were not started
};

} // namespace pawl
