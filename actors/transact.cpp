#include "pawl/actors/transact.hpp"

#include "pawl/actors/jitter.hpp"
#include "pawl/actors/misuse.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/core/back_off.hpp"

#include <atomic>
#include <optional>

namespace pawl {

void check_options(const transact_options& x) {
  if (x.tries == 0)
    throw misuse("a transaction has at least one try");
  if (x.first_delay.count() < 0 || x.most_delay.count() < 0)
    throw misuse("a transaction is not run again before it has ended: its "
                 "delays are not negative");
}

// -- transaction_state --------------------------------------------------------

class transaction_state final : public task_state, public alarm {
public:
  transaction_state(party_ptr owner, std::function<void(transaction)> body,
                    const transact_options& options)
    : task_state(std::move(owner)), body_(std::move(body)),
      tries_(options.tries), delays_(options.first_delay, options.most_delay) {
    // nop
  }

  // -- of its tries -----------------------------------------------------------

  [[nodiscard]] bool over(unsigned number) const noexcept {
    return !current(number) || decision_ != decision::none;
  }

  [[nodiscard]] bool current(unsigned number) const noexcept {
    return current_ == number;
  }

  /// The last handle of a try is gone. From any thread.
  void let_go(unsigned number) noexcept {
    if (current(number))
      nudge(look);
  }

  void enter() noexcept {
    ++depth_;
  }

  void leave() noexcept {
    --depth_;
  }

  void finish() {
    if (decision_ == decision::none)
      decision_ = decision::done;
  }

  /// The first reason counts; what is thrown after `finish()` counts more.
  void fail(task_failure why) {
    if (decision_ == decision::none
        || (decision_ == decision::done && why.exception))
      decide(decision::failed, std::move(why));
  }

  void deadlock(const failure& why) {
    if (decision_ == decision::none)
      decide(decision::again, why);
  }

  /// Carries out what was decided, if nothing of the body is being called.
  /// The caller keeps this alive.
  void settle() {
    if (depth_ > 0 || current_ == 0)
      return;
    if (decision_ == decision::none && try_.expired())
      decision_ = decision::done;
    switch (decision_) {
      case decision::none:
        return;
      case decision::again:
        if (number_ < tries_) {
          back_off();
          return;
        }
        [[fallthrough]];
      case decision::failed:
        close();
        conclude(&*why_);
        return;
      case decision::done:
        close();
        conclude(nullptr);
        return;
    }
  }

  using task_state::token;

private:
  enum class decision : std::uint8_t { none, done, failed, again };

  // -- task_state, alarm ------------------------------------------------------

  void run() override {
    next_try();
  }

  void nudged(unsigned what) override {
    if (current_ != 0)
      settle();
    else if ((what & rang) != 0) // it backs off
      next_try();
  }

  void stop(const task_failure& why) override {
    if (current_ != 0) {
      fail(why);
      settle();
      return;
    }
    party().scope().drop_alarm(*this);
    conclude(&why);
  }

  void rings() noexcept override {
    nudge(rang);
  }

  // -- transitions ------------------------------------------------------------

  void next_try() {
    auto& scope = party().scope();
    auto gate = scope.gate();
    if (is_shut(gate)) {
      task_failure why = make_failure(gate);
      conclude(&why);
      return;
    }
    if (++number_ > 1)
      scope.statistics.count_restart();
    session_ = session_ref{
      new session_state{scope.next_session(), party().shared_from_this()}};
    session_->keep_age(age_);
    decision_ = decision::none;
    current_ = number_;
    auto x = std::make_shared<transaction_try>(
      std::static_pointer_cast<transaction_state>(shared_from_this()), session_,
      number_);
    try_ = x;
    auto body = [this, x] { body_(transaction{x}); };
    transaction_try::call(std::move(x), std::move(body));
  }

  void back_off() {
    age_ = session_->age();
    close();
    party().scope().set_alarm(
      std::static_pointer_cast<transaction_state>(shared_from_this()),
      std::chrono::steady_clock::now() + delays_.next(jitter()));
  }

  /// The try is over: releases what it holds, abandons what it waits for.
  void close() {
    current_ = 0;
    auto session = std::move(session_);
    party().scope().close(*session, outcome::session_ended);
  }

  void conclude(const task_failure* why) {
    body_ = nullptr;
    end(why);
  }

  void decide(decision x, task_failure why) {
    decision_ = x;
    why_ = std::move(why);
  }

  std::function<void(transaction)> body_;
  const unsigned tries_;
  pawl::back_off delays_;
  session_age age_; // of the first try that held something when it met one
  unsigned number_ = 0;
  // -- of the present try -----------------------------------------------------
  session_ref session_;
  std::weak_ptr<transaction_try> try_;
  unsigned depth_ = 0; // calls of the body and its continuations
  decision decision_ = decision::none;
  std::optional<task_failure> why_;
  std::atomic<unsigned> current_{0}; // its number while it is open
};

// -- transaction_try ----------------------------------------------------------

transaction_try::~transaction_try() {
  owner_->let_go(number_);
}

bool transaction_try::over() const noexcept {
  return owner_->over(number_);
}

bool transaction_try::refused(const failure& why) {
  if (over())
    return false;
  auto owner = owner_;
  if (why.why == outcome::deadlock)
    owner->deadlock(why);
  else if (why.why == outcome::cancelled && token().cancelled())
    owner->fail(why);
  else
    return true;
  owner->settle();
  return false;
}

void transaction_try::finish() {
  if (over())
    return;
  auto owner = owner_;
  owner->finish();
  owner->settle();
}

void transaction_try::fail(task_failure why) {
  if (over())
    return;
  auto owner = owner_;
  owner->fail(std::move(why));
  owner->settle();
}

void transaction_try::check_here() const {
  if (!compat::runs_here(owner_->party().self()))
    throw misuse("a transaction is used in the actor that it was made for");
}

const cancel_token& transaction_try::token() const noexcept {
  return owner_->token();
}

void transaction_try::enter() noexcept {
  owner_->enter();
}

void transaction_try::leave() noexcept {
  owner_->leave();
}

void transaction_try::threw() {
  if (owner_->current(number_))
    owner_->fail(caught_failure());
}

void transaction_try::settle(transaction_state& x) {
  x.settle();
}

// -- transact -----------------------------------------------------------------

task detail::make_transaction(const scope& where, caf::scheduled_actor* self,
                              std::function<void(transaction)> body,
                              transact_options options) {
  check_options(options);
  auto state = std::make_shared<transaction_state>(
    where.state()->party_of(self), std::move(body), options);
  state->token(std::move(options.cancel));
  return task{std::move(state)};
}

} // namespace pawl
