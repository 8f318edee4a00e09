#include "pawl/actors/wait_board.hpp"

#include "pawl/actors/pending.hpp"

namespace pawl {

// -- clients' requests --------------------------------------------------------

std::vector<waiter_ref<pending>> wait_board::add(pending& x) {
  std::vector<waiter_ref<pending>> others;
  auto& s = shard_of(x.client().id());
  std::lock_guard guard{s.lock};
  auto [first, last] = s.requests.equal_range(x.client().id().serial);
  for (; first != last; ++first)
    others.push_back(keep(*first->second));
  s.requests.emplace(x.client().id().serial, &x);
  return others;
}

void wait_board::remove(pending& x) noexcept {
  auto& s = shard_of(x.client().id());
  std::lock_guard guard{s.lock};
  auto [first, last] = s.requests.equal_range(x.client().id().serial);
  for (; first != last; ++first)
    if (first->second == &x) {
      s.requests.erase(first);
      return;
    }
}

std::vector<waiter_ref<pending>> wait_board::waits_of(const session_id& who) {
  std::vector<waiter_ref<pending>> result;
  auto& s = shard_of(who);
  std::lock_guard guard{s.lock};
  auto [first, last] = s.requests.equal_range(who.serial);
  for (; first != last; ++first)
    result.push_back(keep(*first->second));
  return result;
}

waiter_ref<pending> wait_board::find(const session_id& who,
                                     const request_id& request) {
  auto& s = shard_of(who);
  std::lock_guard guard{s.lock};
  auto [first, last] = s.requests.equal_range(who.serial);
  for (; first != last; ++first)
    if (first->second->request == request)
      return keep(*first->second);
  return nullptr;
}

// -- parts --------------------------------------------------------------------

void wait_board::add(part_waiter& x) {
  std::lock_guard guard{parts_lock_};
  parts_[x.request] = &x;
}

void wait_board::remove(part_waiter& x) noexcept {
  std::lock_guard guard{parts_lock_};
  // Another attempt may have come meanwhile.
  if (auto i = parts_.find(x.request); i != parts_.end() && i->second == &x)
    parts_.erase(i);
}

waiter_ref<part_waiter> wait_board::find(const request_id& request,
                                         attempt_number attempt) {
  std::lock_guard guard{parts_lock_};
  auto i = parts_.find(request);
  return i != parts_.end() && i->second->attempt == attempt
           ? keep(*i->second)
           : nullptr;
}

} // namespace pawl
