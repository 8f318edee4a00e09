// cluster: this node among its peers. Listens, owns the links, knows who is up.
//
// It is a door and a link per peer. The door is the only actor that is
// published; it takes nothing but hellos, from anybody, and hands each to the
// link of the peer that it names. Everything else goes from link to link.
//
// Start it before anything sends, stop it (or destroy it) before its actor
// system ends: links are actors that wait for ever.

#pragma once

#include "pawl/actors/peer_port.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"
#include "pawl/net/cluster_listener.hpp"
#include "pawl/net/node_options.hpp"

#include <caf/fwd.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace pawl {

class cluster_board;

/// Thread-safe, apart from start and stop.
class cluster {
public:
  using time_point = std::chrono::steady_clock::time_point;

  // -- start and stop ---------------------------------------------------------

  /// Listens, then looks for the peers; or says in one sentence why not, and
  /// nothing was started. Blocks until the port is open: not from an actor. The
  /// system needs the middleman and pawl's message types: see net/config.hpp.
  static std::variant<std::unique_ptr<cluster>, std::string> start(
    caf::actor_system& sys, const cluster_plan& plan,
    std::shared_ptr<cluster_listener> listener);

  cluster(const cluster&) = delete;

  cluster& operator=(const cluster&) = delete;

  ~cluster();

  /// Says goodbye to all peers and ends all links, before it returns (after 5 s
  /// at most). Later calls do nothing. Not from an actor.
  void stop();

  /// Ends all links without a word, as a crash would. For tests.
  void stop_quietly();

  /// From now on (or no longer) nothing that this node and `peer` send each
  /// other arrives here or leaves. Cut on both nodes, it is a cut network with
  /// both sides alive. For tests.
  void cut(node_slot peer, bool yes);

  // -- sending ----------------------------------------------------------------

  /// Appends a message to the link's next batch. It is dropped if `epoch` is
  /// not, or not any more, that of the link when the batch is made: link_down
  /// tells. Costs no message unless the outbox was empty. `to` is another node.
  void send(node_slot to, link_epoch epoch, std::string scope, message what);

  // -- who is up --------------------------------------------------------------

  /// 0: the link is down. The listener may not have been told yet.
  [[nodiscard]] link_epoch epoch(node_slot peer) const noexcept;

  /// When this node sent the latest that the peer has confirmed. Until
  /// node-timeout later the peer has not found this node silent.
  [[nodiscard]] time_point last_heard(node_slot peer) const noexcept;

  /// Whether the peer is linked and that time has not passed.
  [[nodiscard]] bool heard(node_slot peer) const noexcept;

  /// False when this node itself did not run for half of node-timeout, until
  /// every link has been heard since, or a new one has served for an exchange of
  /// holds (`exchanged`, by slot), or it was down when node-timeout had passed.
  [[nodiscard]] bool awake(
    const std::vector<exchange_time>& exchanged) const noexcept;

  // -- what nodes tell each other all along -----------------------------------

  /// The largest token known to be issued by anybody; raise it with what this
  /// node issues.
  [[nodiscard]] fencing_token floor() const noexcept;
  void raise_floor(fencing_token x) noexcept;

  /// Lamport time: larger than all that has been heard of.
  std::uint64_t next_lamport() noexcept;

  // -- this node --------------------------------------------------------------

  [[nodiscard]] const cluster_plan& plan() const noexcept;

  /// Of this start.
  [[nodiscard]] incarnation who() const noexcept;

  /// The port it listens on, also if the options left the choice.
  [[nodiscard]] std::uint16_t port() const noexcept;

private:
  struct parts;

  explicit cluster(std::unique_ptr<parts> x);

  void stop(bool quietly);

  std::unique_ptr<parts> parts_;
};

} // namespace pawl
