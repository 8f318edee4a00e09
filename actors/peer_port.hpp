// peer_port: what a scope needs of the other nodes. net implements it; without
// it a scope lives on one node.
//
// Thread-safe.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace pawl {

/// When the link came up in which a scope has last exchanged its holds with a
/// peer, on the steady clock, in ns; 0: never. Read by any thread.
using exchange_time = std::atomic<std::int64_t>;

class peer_port {
public:
  virtual ~peer_port() = default;

  /// Appends a message to the link's next batch, if `epoch` is its present one;
  /// else it is dropped. Costs no message unless the batch was empty.
  virtual void send(node_slot to, link_epoch epoch, const std::string& scope,
                    message what)
    = 0;

  /// Whether `who` was heard within node-timeout. True for this node.
  [[nodiscard]] virtual bool heard(node_slot who) const = 0;

  /// False when this node itself did not run for half of node-timeout (it was
  /// stopped or suspended), until every link has been heard again, or the
  /// scope's holds have been exchanged over a new one: `exchanged`, by slot.
  [[nodiscard]] virtual bool awake(
    const std::vector<exchange_time>& exchanged) const
    = 0;

  /// The scope has joined: the workers of the peers grant from now on.
  virtual void scope_ready(const std::string& scope) = 0;

  /// The scope is closed on this node.
  virtual void scope_closed(const std::string& scope) = 0;

  /// The links that are up, for a scope that is being opened: each is told to
  /// the scope by `link_up`, before anything else of it; or by `peer_is_up`, if
  /// an older scope of this name has not left it yet.
  virtual void announce_links(const std::string& scope) = 0;
};

} // namespace pawl
