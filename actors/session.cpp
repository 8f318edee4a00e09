#include "pawl/actors/session.hpp"

#include "pawl/actors/scope_state.hpp"
#include "pawl/core/multi_node_request.hpp"

namespace pawl {

request<lock_set> session::lock_all(std::vector<term> what,
                                    lock_mode mode) const {
  std::vector<term_lock> list;
  list.reserve(what.size());
  for (auto& x : what)
    list.push_back({std::move(x), mode});
  return lock_all(std::move(list));
}

request<lock_set> session::lock_all(std::vector<term_lock> what) const {
  to_canonical_order(what);
  return request<lock_set>{state_, std::move(what)};
}

void session::end() const {
  state_->scope().close(*state_, outcome::session_ended);
}

} // namespace pawl
