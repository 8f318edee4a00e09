#include "pawl/actors/term_manager.hpp"

#include "pawl/actors/manager_pool.hpp"
#include "pawl/actors/type_ids.hpp"
#include "pawl/core/local_locks.hpp"

namespace pawl {

term_manager::term_manager(caf::actor_config& cfg, std::shared_ptr<void> scope,
                           manager_pool* pool, local_locks* locks,
                           manager_ref self)
  : caf::event_based_actor(cfg),
    scope_(std::move(scope)),
    pool_(pool),
    locks_(locks),
    self_(self) {
  // nop
}

void term_manager::on_exit() {
  scope_.reset();
}

caf::behavior term_manager::make_behavior() {
  return {
    [this](look_atom) { look(); },
    [this](stop_atom) { quit(); },
  };
}

void term_manager::look() {
  auto* q = pool_->queue_of(self_);
  if (q == nullptr)
    return;
  auto result = locks_->manage(*q, batch);
  if (!result.idle) {
    if (result.more)
      compat::send(this, this, look_atom_v);
    return;
  }
  if (!pool_->give(self_))
    quit();
}

} // namespace pawl
