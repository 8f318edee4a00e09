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
  return scope.locks.release(*r);
}

bool lock::downgrade() noexcept {
  if (record_ == nullptr)
    return false;
  auto& locks = session_of(*record_).scope().locks;
  if (record_->what != hold_record::kind::whole)
    return locks.downgrade(*record_);
  if (record_->lost() || session_of(*record_).closed())
    return false;
  auto& x = whole_of(*record_);
  record_->mode.store(lock_mode::shared, std::memory_order_relaxed);
  x.from->scope().put(post::downgrade{x.request, x.which});
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
