#include "pawl/actors/scope.hpp"

#include "pawl/actors/scope_state.hpp"

#include <thread>

namespace pawl {

// -- sessions -----------------------------------------------------------------

session scope::activity(caf::local_actor* self) const {
  auto id = state_->next_session();
  return session{session_ref{new session_state{id, state_->party_of(self)}}};
}

session scope::attach(caf::local_actor* self) const {
  return activity(self);
}

session scope::attach() const {
  auto id = state_->next_session();
  return session{session_ref{new session_state{id, state_->party_of_thread()}}};
}

// -- what is going on ---------------------------------------------------------

std::vector<holder> scope::holders_of(const term& what) const {
  std::vector<holder> result;
  state_->locks.table().for_each_holder(what, [&](const hold_record& r) {
    holder x;
    x.session = r.what == hold_record::kind::direct
                  ? session_id{state_->self(), r.serial}
                  : r.owner->session;
    x.mode = r.mode.load(std::memory_order_relaxed);
    x.token = r.token;
    result.push_back(std::move(x));
  });
  for (auto& x : result)
    x.home = state_->name_of(x.session.home);
  return result;
}

std::vector<waiting> scope::waiters_of(const term& what) const {
  std::vector<waiting> result;
  state_->locks.table().for_each_waiter(what, [&](waiter& w) {
    result.push_back({w.session().id(), {}, w.mode(), w.upgrade});
  });
  for (auto& x : result)
    x.home = state_->name_of(x.session.home);
  return result;
}

std::vector<std::string> scope::ready_nodes() const {
  std::vector<std::string> result;
  for (auto x : state_->view())
    result.push_back(state_->name_of(x));
  return result;
}

bool scope::ready() const noexcept {
  return state_->gate() == outcome::pending;
}

bool scope::wait_ready(std::chrono::milliseconds limit) const {
  return state_->wait_ready(limit);
}

pawl::statistics::snapshot scope::statistics() const {
  return state_->statistics.read();
}

std::vector<deadlock_report> scope::deadlocks() const {
  return state_->deadlocks();
}

residue scope::residue() const {
  pawl::residue result;
  result.rows = state_->locks.table().rows();
  result.sessions = state_->sessions.load(std::memory_order_relaxed);
  result.requests = state_->wide_requests.load(std::memory_order_relaxed);
  result.waits = state_->locks.table().waiters();
  return result;
}

const std::string& scope::name() const noexcept {
  return state_->name();
}

const std::string& scope::node() const noexcept {
  return state_->name_of(state_->self());
}

void scope::close() const {
  state_->stop(outcome::scope_closed);
}

scope open_local_scope(caf::actor_system& system, std::string name,
                       scope_options options) {
  scope_place place;
  place.started_unix_ns = static_cast<std::uint64_t>(
    std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch())
      .count());
  auto state = std::make_shared<scope_state>(
    system, std::move(name), options, std::move(place),
    std::make_shared<lamport_clock>(), nullptr);
  state->start();
  return scope{std::move(state)};
}

} // namespace pawl
