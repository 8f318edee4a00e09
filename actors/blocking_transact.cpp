#include "pawl/actors/blocking_transact.hpp"

#include "pawl/actors/jitter.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/core/ensure.hpp"

#include <condition_variable>
#include <mutex>

namespace pawl {

namespace {

/// Waits for a time, a cancel, the end of the scope, or (a blocking actor) its
/// own end. What comes first counts.
class delay final : public alarm,
                    public cancel_entry,
                    public std::enable_shared_from_this<delay> {
public:
  explicit delay(pawl::party& owner) : scope_(owner.scope()) {
    if (owner.what() != party::kind::blocking)
      return;
    self_ = static_cast<caf::blocking_actor*>(owner.self());
    where_ = compat::make_responder(self_);
  }

  /// `granted`: the time has passed, or there is no more of it.
  outcome wait(const cancel_token& token, steady_time until) {
    if (token.state() && !token.state()->add(*this))
      return outcome::cancelled;
    scope_.set_alarm(shared_from_this(), until);
    auto result = self_ != nullptr ? wait_in_actor() : wait_in_thread();
    scope_.drop_alarm(*this);
    if (token.state())
      token.state()->remove(*this);
    return result;
  }

private:
  outcome wait_in_thread() {
    std::unique_lock guard{lock_};
    changed_.wait(guard, [this] { return verdict_ != outcome::pending; });
    return verdict_;
  }

  outcome wait_in_actor() {
    compat::deliverable_ptr nothing;
    if (compat::wait_response(self_, *where_, nothing)
        == compat::wait_result::exiting)
      return outcome::session_ended;
    return wait_in_thread(); // it is known by now
  }

  void ends(outcome how) noexcept {
    {
      std::lock_guard guard{lock_};
      if (verdict_ != outcome::pending)
        return;
      verdict_ = how;
      changed_.notify_all();
    }
    if (where_)
      where_->deliver(nullptr);
  }

  // -- alarm, cancel_entry ----------------------------------------------------

  void rings() noexcept override {
    ends(outcome::granted);
  }

  bool pin() noexcept override {
    pinned_ = weak_from_this().lock();
    return pinned_ != nullptr;
  }

  void cancel_now() noexcept override {
    ends(outcome::cancelled);
  }

  void unpin() noexcept override {
    auto last = std::move(pinned_);
  }

  scope_state& scope_;
  caf::blocking_actor* self_ = nullptr;
  std::optional<compat::responder> where_;
  std::mutex lock_;
  std::condition_variable changed_;
  outcome verdict_ = outcome::pending;
  std::shared_ptr<delay> pinned_; // of the one who cancels
};

} // namespace

blocking_tries::blocking_tries(party_ptr owner, transact_options options)
  : party_(std::move(owner)),
    options_((check_options(options), std::move(options))),
    delays_(options_.first_delay, options_.most_delay) {
  // nop
}

bool blocking_tries::begin() {
  if (why_)
    return false;
  auto& scope = party_->scope();
  auto gate = scope.gate();
  if (is_shut(gate))
    why_ = make_failure(gate);
  else if (token().cancelled())
    why_ = make_failure(outcome::cancelled);
  if (why_)
    return false;
  if (++number_ > 1)
    scope.statistics.count_restart();
  session_ = session_ref{new session_state{scope.next_session(), party_}};
  session_->keep_age(age_);
  return true;
}

void blocking_tries::refused(const failure& why, bool by_itself) {
  if (why.why != outcome::deadlock)
    return;
  why_ = why;
  hopeless_ = by_itself;
}

void blocking_tries::left() {
  if (!session_)
    return;
  if (why_)
    age_ = session_->age();
  auto session = std::move(session_);
  party_->scope().close(*session, outcome::session_ended);
}

void blocking_tries::back_off() {
  ensure(why_.has_value(), "who backs off has met a deadlock");
  if (hopeless_ || number_ == options_.tries)
    return;
  auto until = std::chrono::steady_clock::now() + delays_.next(jitter());
  auto how = std::make_shared<delay>(*party_)->wait(token(), until);
  if (how == outcome::granted)
    why_.reset();
  else
    why_ = make_failure(how);
}

party_ptr detail::party_of_caller(const scope& where,
                                  caf::blocking_actor* self) {
  return self != nullptr ? where.state()->party_of(self)
                         : where.state()->party_of_thread();
}

} // namespace pawl
