#include "pawl/actors/task.hpp"

#include "pawl/actors/misuse.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/core/ensure.hpp"

#include <limits>
#include <unordered_map>

#include <fmt/format.h>

namespace pawl {

// -- failures -----------------------------------------------------------------

failure body_failure(std::string message) {
  auto result = make_failure(outcome::body_failed);
  result.message = std::move(message);
  return result;
}

task_failure caught_failure() {
  task_failure result;
  try {
    throw;
  } catch (const std::exception& x) {
    result = body_failure(fmt::format("an exception: {}", x.what()));
  } catch (...) {
    result = body_failure("an exception of unknown type");
  }
  result.exception = std::current_exception();
  return result;
}

// -- task_state ---------------------------------------------------------------

/// Brings a nudge into the actor.
struct task_state::nudge_errand final : errand {
  explicit nudge_errand(std::shared_ptr<task_state> x) : who(std::move(x)) {
    // nop
  }
  void run() override {
    who->arrived();
  }
  std::shared_ptr<task_state> who;
};

task_state::~task_state() {
  if (token_.state())
    token_.state()->remove(*this);
}

void task_state::token(cancel_token x) {
  if (phase_ != phase::created)
    throw misuse("a task is given its cancel token before it is started");
  token_ = std::move(x);
}

void task_state::start(std::unique_ptr<task_ending> ending) {
  if (party_->what() != party::kind::event_based
      || !compat::runs_here(party_->self()))
    throw misuse("a task is started by the event-based actor that it was made "
                 "for");
  if (phase_ != phase::created)
    throw misuse("a task is started once: make another one");
  auto keep = shared_from_this();
  phase_ = phase::running;
  ending_ = std::move(ending);
  if (token_.cancelled()) {
    cancel();
    return;
  }
  run();
  if (!ended())
    expect_nudges();
}

void task_state::cancel() {
  if (ended())
    return;
  auto keep = shared_from_this();
  stop(make_failure(outcome::cancelled));
}

void task_state::end(const task_failure* why) {
  ensure(phase_ == phase::running, "a task ends once");
  phase_ = phase::ended;
  if (token_.state())
    token_.state()->remove(*this);
  // The response that is due: a nudge is under way, or nothing is sent.
  if (expecting_ && (nudges_.fetch_or(sent) & sent) == 0)
    party_->port()->where().deliver(nullptr);
  auto ending = std::move(ending_);
  if (why != nullptr)
    ending->failed(*why);
  else
    ending->done();
}

// -- nudges -------------------------------------------------------------------

void task_state::nudge(unsigned what) noexcept {
  if ((nudges_.fetch_or(what | sent) & sent) != 0)
    return;
  party_->port()->where().deliver(
    std::make_shared<nudge_errand>(shared_from_this()));
}

/// What has been nudged so far is acted on here.
void task_state::expect_nudges() {
  party_->port()->expect();
  expecting_ = true;
  auto what = nudges_.exchange(0) & ~sent;
  if (token_.state() && !token_.state()->add(*this))
    what |= cancelled;
  act_on(what | look);
}

void task_state::arrived() {
  if (ended())
    return;
  party_->port()->expect();
  act_on(nudges_.exchange(0));
}

void task_state::act_on(unsigned what) {
  if ((what & cancelled) != 0)
    cancel();
  else
    nudged(what);
}

// -- cancel_entry -------------------------------------------------------------

bool task_state::pin() noexcept {
  pinned_ = weak_from_this().lock();
  return pinned_ != nullptr;
}

void task_state::cancel_now() noexcept {
  nudge(cancelled);
}

void task_state::unpin() noexcept {
  auto last = std::move(pinned_);
}

// -- combinations -------------------------------------------------------------

namespace {

class task_group final : public task_state {
public:
  task_group(party_ptr owner, detail::task_source source, std::size_t at_once)
    : task_state(std::move(owner)), source_(std::move(source)),
      at_once_(at_once) {
    // nop
  }

private:
  struct child_ending final : task_ending {
    child_ending(std::shared_ptr<task_group> to, std::size_t child)
      : group(std::move(to)), which(child) {
      // nop
    }
    void done() override {
      group->child_ended(which, nullptr);
    }
    void failed(const task_failure& why) override {
      group->child_ended(which, &why);
    }
    std::shared_ptr<task_group> group;
    std::size_t which;
  };

  // -- events -----------------------------------------------------------------

  void run() override {
    advance();
  }

  void nudged(unsigned) override {
    // Children nudge themselves.
  }

  void stop(const task_failure& why) override {
    if (!failure_)
      failure_ = why;
    advance();
  }

  void child_ended(std::size_t which, const task_failure* why) {
    children_.erase(which);
    if (why != nullptr && !failure_)
      failure_ = *why;
    advance();
  }

  // -- helpers ----------------------------------------------------------------

  /// Gives, or stops, or ends. What it starts or cancels may end at once and
  /// come back here: then the loop that runs already goes on.
  void advance() {
    if (advancing_)
      return;
    advancing_ = true;
    while (!failure_ && !exhausted_ && children_.size() < at_once_)
      give();
    if (failure_ && !stopped_)
      stop_children();
    advancing_ = false;
    if (!children_.empty() || !(failure_ || exhausted_) || ended())
      return;
    source_ = nullptr;
    end(failure_ ? &*failure_ : nullptr);
  }

  void give() {
    std::shared_ptr<task_state> child;
    try {
      auto next = source_();
      if (!next) {
        exhausted_ = true;
        return;
      }
      child = next->state();
    } catch (...) {
      failure_ = caught_failure();
      return;
    }
    auto which = ++given_;
    children_.emplace(which, child);
    try {
      child->start(std::make_unique<child_ending>(
        std::static_pointer_cast<task_group>(shared_from_this()), which));
    } catch (const misuse&) {
      failure_ = caught_failure(); // of another actor, or started before
      children_.erase(which);
    }
  }

  void stop_children() {
    stopped_ = true;
    std::vector<std::shared_ptr<task_state>> all;
    for (auto& [which, x] : children_)
      if (auto child = x.lock())
        all.push_back(std::move(child));
    for (auto& x : all)
      x->cancel();
  }

  detail::task_source source_;
  const std::size_t at_once_;
  std::unordered_map<std::size_t, std::weak_ptr<task_state>> children_;
  std::size_t given_ = 0;
  std::optional<task_failure> failure_; // the first one
  bool exhausted_ = false;
  bool stopped_ = false;
  bool advancing_ = false;
};

constexpr auto no_limit = std::numeric_limits<std::size_t>::max();

detail::task_source source_of(std::vector<task> tasks) {
  auto all = std::make_shared<std::vector<task>>(std::move(tasks));
  return [all, next = std::size_t{0}]() mutable -> std::optional<task> {
    if (next == all->size())
      return std::nullopt;
    return std::move((*all)[next++]);
  };
}

} // namespace

task detail::make_group(const scope& where, caf::scheduled_actor* self,
                        task_source source, std::size_t at_once) {
  if (at_once == 0)
    throw misuse("for_each has to run at least one task at a time");
  return task{std::make_shared<task_group>(where.state()->party_of(self),
                                           std::move(source), at_once)};
}

task serial(const scope& where, caf::scheduled_actor* self,
            std::vector<task> tasks) {
  return detail::make_group(where, self, source_of(std::move(tasks)), 1);
}

task parallel(const scope& where, caf::scheduled_actor* self,
              std::vector<task> tasks) {
  return detail::make_group(where, self, source_of(std::move(tasks)), no_limit);
}

} // namespace pawl
