// scope: an independent lock space, as its users see it.
//
//   pawl::scope tags = node.open("tags");
//   tags.activity(self).lock("pump-7", pawl::shared).then(...);
//
// A scope is a light handle; copy it into actors. It is open on the nodes that
// opened it. Thread-safe.

#pragma once

#include "pawl/actors/caf_compat.hpp"
#include "pawl/actors/make_term.hpp"
#include "pawl/actors/scope_options.hpp"
#include "pawl/actors/session.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/outcome.hpp"
#include "pawl/core/statistics.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pawl {

/// A session that holds a term on this node.
struct holder {
  session_id session;
  /// The node where the session lives.
  std::string home;
  lock_mode mode = lock_mode::none;
  fencing_token token = 0;
};

/// A request that waits for a term on this node, in the order of the queue.
struct waiting {
  session_id session;
  std::string home;
  lock_mode mode = lock_mode::none;
  /// An upgrade: ahead of the queue.
  bool upgrade = false;
};

/// What is left in a scope on one node. All zero when idle.
struct residue {
  std::size_t rows = 0;
  std::size_t sessions = 0;
  std::size_t requests = 0;
  std::size_t waits = 0;
  friend bool operator==(const residue&, const residue&) = default;
};

class scope {
public:
  /// For pawl's own use.
  explicit scope(std::shared_ptr<scope_state> state) noexcept
    : state_(std::move(state)) {
    // nop
  }

  // -- sessions ---------------------------------------------------------------

  /// A session for one activity of `self`: one message's work. Costs no
  /// message. To be called by the actor itself.
  [[nodiscard]] session activity(caf::local_actor* self) const;

  /// A long-lived session for an actor that takes locks step by step. The same
  /// thing as an activity; the word says how long you keep it.
  [[nodiscard]] session attach(caf::local_actor* self) const;

  /// A session for a thread that is no actor. It ends with its last handle.
  [[nodiscard]] session attach() const;

  // -- what is going on -------------------------------------------------------

  /// Who holds a term on this node. O(holders).
  [[nodiscard]] std::vector<holder> holders_of(const term& what) const;

  template <class T>
  [[nodiscard]] std::vector<holder> holders(const T& what) const {
    return holders_of(make_term(what));
  }

  /// Who waits for a term on this node, first in line first. O(waiters).
  [[nodiscard]] std::vector<waiting> waiters_of(const term& what) const;

  template <class T>
  [[nodiscard]] std::vector<waiting> waiters(const T& what) const {
    return waiters_of(make_term(what));
  }

  /// The names of the nodes that `every_node` asks now.
  [[nodiscard]] std::vector<std::string> ready_nodes() const;

  /// Whether the scope has joined: it grants.
  [[nodiscard]] bool ready() const noexcept;

  /// Blocks until it has joined; false if it has not within `limit`.
  [[nodiscard]] bool wait_ready(std::chrono::milliseconds limit) const;

  [[nodiscard]] pawl::statistics::snapshot statistics() const;

  /// The last 64 deadlocks of which a session of this node was told, oldest
  /// first.
  [[nodiscard]] std::vector<deadlock_report> deadlocks() const;

  /// Counts what there is on this node. Walks the table: for reports and tests.
  [[nodiscard]] pawl::residue residue() const;

  [[nodiscard]] const std::string& name() const noexcept;

  /// This node's name.
  [[nodiscard]] const std::string& node() const noexcept;

  // -- end --------------------------------------------------------------------

  /// Closes the scope on this node: what waits ends with `scope_closed`, what
  /// is held is released. The node does it when it ends.
  void close() const;

  /// For pawl's own use.
  [[nodiscard]] const std::shared_ptr<scope_state>& state() const noexcept {
    return state_;
  }

private:
  std::shared_ptr<scope_state> state_;
};

/// Opens a scope for the actors of one system, without any other node. Must be
/// closed before the system goes. (With other nodes: pawl::node.)
[[nodiscard]] scope open_local_scope(caf::actor_system& system,
                                     std::string name,
                                     scope_options options = {});

} // namespace pawl
