// cluster_listener: what a cluster tells its owner.
//
// Calls about one peer come one after another, in order, from the thread that
// runs the link to it just then; calls about different peers come at the same
// time. They may begin before cluster::start has returned and end when
// cluster::stop has. They should hand work on and return: while one runs its
// link does nothing else. What they throw is logged and lost.
//
// About one peer: link_up and link_down alternate, beginning with link_up; all
// that is received comes between the two, under the same epoch.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"
#include "pawl/net/wire.hpp"

#include <string>

namespace pawl {

class cluster_listener {
public:
  virtual ~cluster_listener() = default;

  /// `floor`: the largest token that the peer knows to have been issued.
  virtual void link_up(node_slot peer, link_epoch epoch, incarnation who,
                       fencing_token floor)
    = 0;

  /// What was sent in this epoch and not received is lost, both ways.
  virtual void link_down(node_slot peer, link_epoch epoch,
                         const std::string& why)
    = 0;

  /// The two nodes do not fit together, or this node runs under a name that is
  /// in use. They go on trying; this is told once per reason.
  virtual void peer_rejected(node_slot peer, wire::reject_kind kind,
                             const std::string& why)
    = 0;

  virtual void receive(node_slot peer, link_epoch epoch,
                       const std::string& scope, message what)
    = 0;

  /// The last message of a batch has been received: a good moment to wake
  /// whoever works on them.
  virtual void batch_received(node_slot) {
    // nop
  }

  /// This node itself did not run for half of node-timeout, as the link to
  /// `peer` saw. Nobody has been declared down for that; see cluster::awake.
  virtual void clock_gap(node_slot) {
    // nop
  }
};

} // namespace pawl
