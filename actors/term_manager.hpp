// term_manager: the actor that grants one contended row at a time.
//
//   +------+  started (its place has a queue)   +----------+
//   | idle | ---------------------------------> | managing |
//   +------+ <--------------------------------- +----------+
//                 queue empty: detached
//
// All it understands is "look" (and "stop"). A look may be early, late, doubled
// or meant for a queue that it no longer has: it looks at the queue it has, if
// any. Its transitions are those of the queue: local_locks::manage.

#pragma once

#include "pawl/actors/caf_compat.hpp"
#include "pawl/core/wait_queue.hpp"

#include <memory>

namespace pawl {

class local_locks;
class manager_pool;

class term_manager : public caf::event_based_actor {
public:
  /// Grants per look, before other actors get the worker.
  static constexpr std::uint32_t batch = 64;

  /// Pool and locks belong to `scope`, which lives as long as the manager.
  term_manager(caf::actor_config& cfg, std::shared_ptr<void> scope,
               manager_pool* pool, local_locks* locks, manager_ref self);

  caf::behavior make_behavior() override;

  void on_exit() override;

private:
  void look();

  std::shared_ptr<void> scope_;
  manager_pool* pool_;
  local_locks* locks_;
  manager_ref self_;
};

} // namespace pawl
