// membership: one scope's view of its peers, on one node.
//
// The scope:
//                 open          every peer resolved
//   +----------+      +---------+          +-------+   close    +--------+
//   | unopened | ---> | joining | -------> | ready | ---------> | closed |
//   +----------+      +---------+          +-------+            +--------+
//                          +------------------------- close --------^
//
//   joining: grants nothing here, and its own requests wait; what peers ask is
//            answered at once, so there is no circular wait.
//   ready:   for good. A peer that comes, or comes back, is exchanged with
//            while the scope grants.
//
// Each configured peer:
//
//   +---------+ link_up   +--------+  hand_over, installed   +---------+
//   | unheard | --------> | linked | ----------------------> | settled |
//   +---------+           +--------+                         +---------+
//        |                 ^   |  \     scope_closed  |           ^
//        | node-timeout,   |   |   \                  v           |
//        | rejected        |   |    \ not open   +--------+  scope_opened
//        |         link_up |   |     +---------> | absent | ------+
//        v                 |   v link_down       +--------+
//   +------+ --------------+   |  (from any linked state)   |
//   | down | <-----------------+----------------------------+
//   +------+
//
//   A peer is resolved when it is settled, absent or down: it then holds
//   nothing for all nodes that this node does not know of.
//
// The exchange. When a link comes up, and when the scope is opened, each side
// says `scope_opened`. Whoever hears that and has the scope open puts the peer
// into its view *and* hands over its every_node holds, in one step (the
// coordinator's, which also releases them: so no hold is granted, released and
// handed over in the wrong order). Who has not opened it answers "not open".
// Each `scope_opened` is answered, also by a scope that is being closed; until
// then a `scope_closed` does not resolve the peer: it may be of an older scope.
// A peer that receives the holds installs them before anything else of that
// link, acknowledges, and has the sender in its view from then on.
//
// A link that closes, and a link with a new epoch, end everything of the old
// epoch first. A peer's absence of 'handshake' within node-timeout of opening
// counts as down, so that a black hole delays readiness by no more than that.
// It does not count of a peer that is known to be up, and may hold anything:
// while a link is there that the scope's former life on this node has not left
// yet, and when it has refused this node because another one
// runs under its name (`peer_is_up`, for both). The second node of a name becomes ready
// only when the first one is gone and the peer has taken this one in.
//
// Invariants:
//   V1 a peer is in the view only if it is linked, settled or absent-no-more,
//      and the scope is open.
//   V2 ready implies that no peer was unresolved when it became ready.
//   V3 unheard and down have no epoch; the others have one.
//   V4 only an unheard peer is waited for because it is known to be up.
//
// Not thread-safe: it belongs to the coordinator. Events are O(peers).

#pragma once

#include "pawl/core/ids.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace pawl {

/// Of a steady clock, counted from anywhere.
using time_point = std::chrono::nanoseconds;

class membership {
public:
  enum class phase : std::uint8_t { unopened, joining, ready, closed };

  enum class peer_state : std::uint8_t {
    unheard,
    linked,
    settled,
    absent,
    down,
  };

  /// What an event brought about; the coordinator acts on it in this order.
  struct changes {
    /// Left the view: what they did for us is gone.
    std::vector<node_slot> left;
    /// Is to be told `scope_opened`.
    std::vector<node_slot> greet;
    /// Is to be told that the scope is not open here.
    std::vector<node_slot> decline;
    /// Is to be handed the holds over, and has just entered the view, or is in
    /// it again from the start.
    std::vector<node_slot> hand_over;
    /// Has handed over, all is installed: is to be told so.
    std::vector<node_slot> acknowledge;
    bool view_changed = false;
    bool became_ready = false;
    /// Some peer may have been resolved.
    bool resolved = false;
  };

  /// `peers` configured nodes with slots from 0, `self` among them.
  membership(node_slot self, std::size_t peers,
             std::chrono::nanoseconds node_timeout);

  // -- events of the scope ----------------------------------------------------

  /// The scope is opened on this node.
  [[nodiscard]] changes open(time_point now);

  [[nodiscard]] changes close();

  /// Peers that nobody has heard of in time are down.
  [[nodiscard]] changes tick(time_point now);

  // -- events of a link -------------------------------------------------------

  [[nodiscard]] changes link_up(node_slot peer, link_epoch epoch);

  /// A peer that is not heard of yet is up, and not to be taken for down for want
  /// of a link: link_up will follow, or link_down if a link that an older scope of
  /// this name has not left yet closes before.
  void peer_is_up(node_slot peer) noexcept;

  /// Nothing if `epoch` is not the present one.
  [[nodiscard]] changes link_down(node_slot peer, link_epoch epoch);

  /// The handshake failed for good: wrong version, wrong configuration.
  [[nodiscard]] changes rejected(node_slot peer);

  // -- messages ---------------------------------------------------------------

  [[nodiscard]] changes scope_opened(node_slot from);

  /// The peer's scope cannot work with this one.
  [[nodiscard]] changes mismatched(node_slot from);

  [[nodiscard]] changes scope_closed(node_slot from);

  /// `open`: installing has begun, `installed` follows.
  [[nodiscard]] changes handed_over(node_slot from, bool open);

  /// The worker of the peer has installed what it handed over in this epoch.
  [[nodiscard]] changes installed(node_slot peer, link_epoch epoch);

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] phase state() const noexcept {
    return phase_;
  }

  [[nodiscard]] bool is_open() const noexcept {
    return phase_ == phase::joining || phase_ == phase::ready;
  }

  [[nodiscard]] peer_state state_of(node_slot peer) const noexcept;

  /// Whether there is a link to it; true for this node.
  [[nodiscard]] bool linked(node_slot peer) const noexcept;

  [[nodiscard]] bool in_view(node_slot node) const noexcept;

  /// What `every_node` asks: this node and the peers in the view, by slot.
  /// Empty when the scope is not open.
  [[nodiscard]] std::vector<node_slot> view() const;

  /// Whether each peer is settled, absent or down.
  [[nodiscard]] bool resolved(node_slot peer) const noexcept;

  /// When `tick` may have something to do.
  [[nodiscard]] std::optional<time_point> next_deadline() const noexcept;

  void check_invariants() const;

private:
  struct peer_record {
    peer_state state = peer_state::unheard;
    bool in_view = false;
    /// Its hand-over is being installed.
    bool installing = false;
    /// It has closed the scope meanwhile: absent once that is done.
    bool closing = false;
    /// Unheard, but up: it is waited for.
    bool known_up = false;
    link_epoch epoch = 0;
  };

  [[nodiscard]] peer_record* linked_peer(node_slot peer) noexcept;
  void enter_view(node_slot peer, changes& out);
  void leave_view(node_slot peer, changes& out);
  [[nodiscard]] bool counts_as_down_in_time(std::size_t peer) const noexcept;
  void take_down(node_slot peer, changes& out);
  void resolve(node_slot peer, peer_state state, changes& out);
  void ready_if_resolved(changes& out);

  node_slot self_;
  std::chrono::nanoseconds node_timeout_;
  phase phase_ = phase::unopened;
  time_point opened_at_{0};
  std::vector<peer_record> peers_; // by slot; the own one is not used
};

} // namespace pawl
