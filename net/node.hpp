// node: one process of a cluster that runs pawl in its actor system.
//
//   pawl::config cfg;                        // pawl.name, pawl.listen, ...
//   caf::actor_system sys{cfg};
//   pawl::node here{sys, cfg};               // joins the cluster
//   pawl::scope tags = here.open("tags");
//
// Without `pawl.name` and peers it is a node by itself, which listens nowhere.
//
// Destroy it (or stop it) before the actor system: that closes its scopes, so
// that what waits is told `shutting_down` and what is held is released, here and
// on the other nodes.
//
// Thread-safe, apart from construction and destruction.

#pragma once

#include "pawl/actors/scope.hpp"
#include "pawl/net/config.hpp"
#include "pawl/net/node_options.hpp"

#include <caf/fwd.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pawl {

/// Why a node could not start: one sentence, which names the option and the
/// value.
class node_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

class node {
public:
  /// Listens, then looks for its peers, without waiting for them.
  /// @throws node_error nothing was started
  node(caf::actor_system& system, const config& options);

  node(caf::actor_system& system, const node_options& options,
       scope_options scopes = {});

  node(const node&) = delete;
  node& operator=(const node&) = delete;

  ~node();

  /// Opens a scope here, or returns the one that is open. It joins: it grants
  /// when every configured peer has handed over what it holds or is down, after
  /// node-timeout and one hand-over at most.
  /// @throws node_error the node has been stopped, or the name is longer than
  ///                    1,024 bytes
  [[nodiscard]] scope open(const std::string& name);

  /// Closes all scopes and says goodbye to the peers. Idempotent. Not from an
  /// actor.
  void stop();

  /// Ends all links without a word, as a crash would. For tests.
  void vanish();

  /// Cuts the network to a peer, or mends it: from now on (or no longer) nothing
  /// arrives from it or leaves for it. For tests.
  void cut(const std::string& peer, bool yes = true);

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] const std::string& name() const noexcept;

  /// The port it listens on; 0 if it does not.
  [[nodiscard]] std::uint16_t port() const noexcept;

  /// The names of the peers to which there is a link.
  [[nodiscard]] std::vector<std::string> linked() const;

private:
  class state;

  std::shared_ptr<state> state_;
};

} // namespace pawl
