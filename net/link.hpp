// link: the actor that keeps this node linked to one peer.
//
// A shell around link_machine: it gives the machine the time, connections and
// frames, and carries out what the machine hands back. Frames are one type of
// CAF message that holds bytes, from link to link; a transport of the machine
// is a handle of a remote actor, watched while the machine uses it.
//
// Nothing but frames, one timer and one wake-up ever lies in its mailbox: what
// clients send waits in the outbox. So a heartbeat never queues behind lock
// traffic, only behind frames that came before it.
//
// Started by cluster, ended by a stop_link; it says goodbye then.

#pragma once

#include "pawl/actors/log.hpp"
#include "pawl/actors/type_ids.hpp"
#include "pawl/net/cluster_board.hpp"
#include "pawl/net/cluster_listener.hpp"
#include "pawl/net/connector.hpp"
#include "pawl/net/link_machine.hpp"
#include "pawl/net/node_options.hpp"
#include "pawl/net/outbox.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pawl {

/// What a link is made of; shared with the cluster.
struct link_parts {
  link_machine::config machine;
  endpoint address;
  std::shared_ptr<cluster_listener> listener;
  std::shared_ptr<cluster_board> board;
  std::shared_ptr<outbox> box;
  stop_flag stop;
  /// While set, frames are dropped both ways: see cluster::cut.
  stop_flag cut;
};

// -- what only this process can send to a link --------------------------------

/// The node listens now: dial.
struct start_link : compat::deliverable {};

/// Say goodbye and end. `quietly`: end without a word, as if killed; for tests.
struct stop_link : compat::deliverable {
  explicit stop_link(bool quietly_arg) : quietly(quietly_arg) {
    // nop
  }

  bool quietly;
};

/// A hello under the peer's name came in at the door.
struct greeting : compat::deliverable {
  wire::hello what;
  caf::strong_actor_ptr from;
};

// -- the actor ----------------------------------------------------------------

class link : public caf::event_based_actor {
public:
  link(caf::actor_config& cfg, link_parts parts);

  caf::behavior make_behavior() override;

  const char* name() const override;

  void on_exit() override;

private:
  using transport = link_machine::transport;

  // -- events -----------------------------------------------------------------

  void received(const compat::byte_vector& frame);
  void received(const compat::local_ptr& x);
  void drain();

  /// Goes on with what clients have sent, later: other events come between.
  void drain_again();

  /// Every event: one step of the machine, and what follows from it.
  template <class Event>
  void step(Event event);

  void schedule(link_machine::time_point now);

  // -- effects ----------------------------------------------------------------

  void perform(link_machine::effects& todo);
  void perform(link_machine::dial& x);
  void perform(link_machine::transmit& x);
  void perform(link_machine::drop& x);
  void perform(link_machine::up& x);
  void perform(link_machine::down& x);
  void perform(link_machine::deliver& x);
  void perform(link_machine::rejected& x);
  void perform(link_machine::clock_gap& x);
  void perform(link_machine::note& x);

  template <class Call>
  void tell(Call call);

  // -- transports -------------------------------------------------------------

  transport way_of(const caf::strong_actor_ptr& who);
  void settle_ways();
  void connect_failed(const std::string& why);

  [[nodiscard]] std::string between() const;

  // -- members ----------------------------------------------------------------

  struct way {
    caf::strong_actor_ptr who;
    bool watched = false;
  };

  link_parts parts_;
  link_machine machine_;
  compat::monitors monitors_;
  caf::io::middleman_actor connector_;
  std::map<transport, way> ways_;
  transport last_way_ = 0;
  /// Taken from the outbox, and how much of it the machine has.
  std::vector<outbox::item> taken_;
  std::size_t moved_ = 0;
  bool draining_ = false;
  log_limiter log_;
  std::string last_failure_;
  std::uint64_t timer_ = 0;
  link_machine::time_point timer_due_ = link_machine::time_point::max();
};

} // namespace pawl
