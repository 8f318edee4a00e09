#include "pawl/actors/lock.hpp"

#include "pawl/actors/pending.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/actors/session_state.hpp"

namespace pawl {

namespace {

session_state& session_of(const hold_record& r) noexcept {
  return static_cast<session_state&>(*r.session);
}

pending::whole_hold& whole_of(const hold_record& r) noexcept {
  return static_cast<pending::whole_hold&>(*r.owner);
}

bool downgrade_here(hold_record& r) {
  auto& session = session_of(r);
  auto& scope = session.scope();
  if (!scope.locks.downgrade(r))
    return false;
  // The session may have the term on other nodes, too, or be about to.
  if (scope.wide_requests.load(std::memory_order_relaxed) > 0)
    if (auto what = scope.locks.table().term_of(r))
      scope.put(post::downgraded{session.id(), std::move(*what)});
  return true;
}

} // namespace

release_result lock::release() noexcept {
  if (record_ == nullptr)
    return release_result::already_released;
  auto* r = std::exchange(record_, nullptr);
  auto& scope = session_of(*r).scope();
  if (since_ != 0) [[unlikely]]
    scope.statistics.hold_time(steady_now_ns() - since_);
  // The scope lives as long as one of its sessions or parties: hold on to the
  // party, since this may be the last lock of the last session.
  if (r->what != hold_record::kind::whole)
    return scope.locks.release(*r);
  auto* from = whole_of(*r).from;
  auto result = scope.locks.release(*r);
  from->unref(); // the handle's
  return result;
}

void lock::give_back() noexcept {
  if (auto* r = std::exchange(record_, nullptr))
    session_of(*r).scope().locks.give_back(*r);
}

bool lock::downgrade() noexcept {
  if (record_ == nullptr)
    return false;
  if (record_->what != hold_record::kind::whole)
    return downgrade_here(*record_);
  if (record_->lost() || session_of(*record_).closed())
    return false;
  auto& x = whole_of(*record_);
  auto& scope = x.from->scope();
  record_->mode.store(lock_mode::shared, std::memory_order_relaxed);
  const auto& what = x.from->spec().terms[x.which].what;
  scope.locks.downgrade(what, session_of(*record_));
  scope.put(post::downgraded{session_of(*record_).id(), what});
  return true;
}

lock_mode lock::mode() const noexcept {
  if (record_ == nullptr || record_->lost())
    return lock_mode::none;
  if (record_->what == hold_record::kind::whole
      && session_of(*record_).closed())
    return lock_mode::none;
  return record_->mode.load(std::memory_order_relaxed);
}

bool lock::still_held() const noexcept {
  if (mode() == lock_mode::none)
    return false;
  if (record_->what != hold_record::kind::whole)
    return true;
  return whole_of(*record_).from->nodes_heard();
}

} // namespace pawl
