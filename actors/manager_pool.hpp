// manager_pool: the term_managers of one scope, reused.
//
// A manager is an actor that grants one contended row for as long as somebody
// waits there. A term is contended often for an instant only, so managers are
// kept when idle and taken again; at most `max_idle` of them.
//
// Thread-safe. Everything here costs one short lock, and happens only where
// somebody waits. Managers keep the scope alive; `stop` ends them.

#pragma once

#include "pawl/actors/caf_compat.hpp"
#include "pawl/core/wait_queue.hpp"

#include <memory>
#include <mutex>
#include <vector>

namespace pawl {

class local_locks;

class manager_pool {
public:
  static constexpr std::size_t max_idle = 64;

  manager_pool(caf::actor_system& system, local_locks& locks);

  /// An idle manager, or a new one, which keeps `scope` alive. Once stopped, a
  /// place without an actor: the requests of a scope that ends are ended one by
  /// one, not granted.
  manager_ref take(std::shared_ptr<void> scope);

  /// Gives it the queue that it manages from now on, and tells it to look.
  void start(manager_ref who, wait_queue& q);

  /// Tells it to look.
  void look(manager_ref who);

  /// Its queue is gone: it is idle. False if there are idle ones enough: then
  /// the manager has to end.
  bool give(manager_ref who);

  /// The queue that a manager has now, or null. For the manager itself.
  [[nodiscard]] wait_queue* queue_of(manager_ref who) const;

  /// Managers that manage something now.
  [[nodiscard]] std::size_t busy() const;

  /// Ends all managers.
  void stop();

private:
  /// The number of a place, from 1, is the manager_ref.
  struct place {
    caf::actor who;
    wait_queue* queue = nullptr;
  };

  caf::actor_system& system_;
  local_locks& locks_;
  mutable std::mutex lock_;
  std::vector<place> places_;
  std::vector<manager_ref> idle_;   // have an actor
  std::vector<manager_ref> vacant_; // have none
  bool stopped_ = false;
};

} // namespace pawl
