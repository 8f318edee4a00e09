#include "pawl/actors/manager_pool.hpp"

#include "pawl/actors/term_manager.hpp"
#include "pawl/actors/type_ids.hpp"
#include "pawl/core/local_locks.hpp"

namespace pawl {

manager_pool::manager_pool(caf::actor_system& system, local_locks& locks)
  : system_(system), locks_(locks) {
  // nop
}

manager_ref manager_pool::take(std::shared_ptr<void> scope) {
  std::lock_guard guard{lock_};
  if (!idle_.empty() && !stopped_) {
    auto who = idle_.back();
    idle_.pop_back();
    return who;
  }
  manager_ref who = 0;
  if (!vacant_.empty()) {
    who = vacant_.back();
    vacant_.pop_back();
  } else {
    places_.emplace_back();
    who = static_cast<manager_ref>(places_.size());
  }
  if (!stopped_)
    places_[who - 1].who = system_.spawn<term_manager, caf::hidden>(
      std::move(scope), this, &locks_, who);
  return who;
}

void manager_pool::start(manager_ref who, wait_queue& q) {
  {
    std::lock_guard guard{lock_};
    places_[who - 1].queue = &q;
  }
  look(who);
}

void manager_pool::look(manager_ref who) {
  caf::actor hdl;
  {
    std::lock_guard guard{lock_};
    hdl = places_[who - 1].who;
  }
  compat::anon_send(hdl, look_atom_v);
}

bool manager_pool::give(manager_ref who) {
  std::lock_guard guard{lock_};
  auto& x = places_[who - 1];
  x.queue = nullptr;
  if (!stopped_ && idle_.size() < max_idle) {
    idle_.push_back(who);
    return true;
  }
  x.who = nullptr;
  vacant_.push_back(who);
  return false;
}

wait_queue* manager_pool::queue_of(manager_ref who) const {
  std::lock_guard guard{lock_};
  return places_[who - 1].queue;
}

std::size_t manager_pool::busy() const {
  std::lock_guard guard{lock_};
  return places_.size() - idle_.size() - vacant_.size();
}

void manager_pool::stop() {
  std::lock_guard guard{lock_};
  if (stopped_)
    return;
  stopped_ = true;
  for (auto& x : places_)
    if (x.who)
      compat::anon_send(x.who, stop_atom_v);
  for (auto& x : places_)
    x.who = nullptr;
}

} // namespace pawl
