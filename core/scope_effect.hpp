// What the machines of one scope want done outside. They never call anybody:
// each event appends to a list, and whoever fed the event carries the list out,
// in order. The same list, in the same order, for the same events.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"
#include "pawl/core/outcome.hpp"

#include <cstdint>
#include <variant>
#include <vector>

namespace pawl {

/// Why a hold for several nodes, or a part of it, was taken away.
enum class loss : std::uint8_t {
  /// A node of its list went down.
  node_down,
  /// The scope was closed, here or on a node of its list.
  scope_closed,
  /// A cut has healed, and a hold with a larger token was there.
  outranked,
};

namespace effect {

/// To a peer, over its link, or to this node: then to the worker or, for an
/// answer, to the coordinator of this node itself.
struct send {
  node_slot to;
  message what;
};

/// The request has a part of what it asks for, and an age from now on.
struct aged {
  request_id id;
  std::uint64_t lamport = 0;
};

/// The request is held on all its nodes. The executor judges the word of the
/// client's request now; if that has ended meanwhile it calls `release`.
struct whole {
  request_id id;
  std::vector<fencing_token> tokens;
  std::vector<node_slot> nodes;
};

/// The request ended otherwise; nothing of it remains once what is under way
/// has arrived. `node` is the one concerned, if any.
struct ended {
  request_id id;
  outcome why = outcome::pending;
  node_slot node = no_node;
};

/// These terms of a granted request, by index, are not held any more.
struct hold_lost {
  request_id id;
  std::vector<std::uint16_t> which;
  loss why = loss::node_down;
  node_slot node = no_node;
};

/// A term of a granted request, which was held exclusively, is held shared now.
struct downgraded {
  request_id id;
  std::uint16_t which = 0;
};

/// An `every_node` hold shrank, and stays valid.
struct node_left {
  request_id id;
  node_slot node = no_node;
};

/// These nodes, sorted, have the scope open and are asked by `every_node`.
struct view_changed {
  std::vector<node_slot> nodes;
};

/// The scope has joined: it grants from now on. Tell the workers.
struct ready {};

/// A peer's scope of this name has other settings; it is not in the view.
struct mismatch {
  node_slot peer = no_node;
};

/// From a worker: the hand-over of its peer is installed. Tell the coordinator.
struct installed {
  node_slot peer = no_node;
  link_epoch epoch = 0;
  std::uint32_t holds = 0;
};

/// From a worker: a wait was entered on this node, or what is known of it has
/// changed, and it may close a cycle. Begin a search; if `patient`, a little
/// later, whether it waits then or not: its session may, elsewhere.
struct walk {
  wait_name what;
  bool all_waits = false;
  bool patient = false;
};

} // namespace effect

using scope_effect
  = std::variant<effect::send, effect::aged, effect::whole, effect::ended,
                 effect::hold_lost, effect::downgraded, effect::node_left,
                 effect::view_changed, effect::ready, effect::mismatch,
                 effect::installed, effect::walk>;

using scope_effects = std::vector<scope_effect>;

} // namespace pawl
