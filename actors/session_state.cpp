#include "pawl/actors/session_state.hpp"

#include "pawl/actors/log.hpp"
#include "pawl/actors/scope_state.hpp"

#include <fmt/format.h>

#include <new>

namespace pawl {

namespace {

/// Freed sessions of one thread. Under a sanitizer there is none, so that a use
/// after free is seen.
class spare_sessions {
public:
  static constexpr std::size_t most = 64;

  ~spare_sessions() {
    while (first_ != nullptr)
      ::operator delete(pop());
  }

  void* pop() noexcept {
    auto* x = first_;
    if (x != nullptr) {
      first_ = x->next;
      --count_;
    }
    return x;
  }

  bool push(void* memory) noexcept {
    if (count_ == most)
      return false;
    first_ = new (memory) spare{first_};
    ++count_;
    return true;
  }

private:
  struct spare {
    spare* next;
  };
  spare* first_ = nullptr;
  std::size_t count_ = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool reuse = false;
#else
constexpr bool reuse = true;
#endif

thread_local spare_sessions spares;

/// What carries an event to the session's actor.
struct event_delivery final : compat::deliverable {
  explicit event_delivery(hold_event x) : what(std::move(x)) {
    // nop
  }
  hold_event what;
};

using event_callback = std::shared_ptr<std::function<void(const hold_event&)>>;

/// One response handler serves one event; it installs the next one first. The
/// actor must not go on living for it, so it is there only in actors that have
/// asked for events.
void install(caf::scheduled_actor* self, compat::responder where,
             event_callback f) {
  compat::detail::install_response_handler(
    self, where.id(), [self, where, f](const compat::deliverable_ptr& x) {
      install(self, where, f);
      if (auto* event = dynamic_cast<event_delivery*>(x.get()))
        (*f)(event->what);
    });
}

} // namespace

void* session_state::operator new(std::size_t size) {
  if (reuse)
    if (auto* x = spares.pop())
      return x;
  return ::operator new(size);
}

void session_state::operator delete(void* memory) noexcept {
  if (!reuse || !spares.push(memory))
    ::operator delete(memory);
}

session_state::session_state(session_id id, party_ptr owner)
  : session_ledger(id, *owner->scope().clock, owner->tag()),
    party_(std::move(owner)) {
  scope().sessions.fetch_add(1, std::memory_order_relaxed);
  if (party_->add(*this))
    return;
  scope().close(*this, outcome::session_ended); // born ended
}

session_state::~session_state() {
  if (!closed())
    scope().sessions.fetch_sub(1, std::memory_order_relaxed);
}

void session_state::last_gone() noexcept {
  party_->remove(*this);
  delete this;
}

void session_state::on_event(std::function<void(const hold_event&)> f) {
  auto shared = std::make_shared<std::function<void(const hold_event&)>>(
    std::move(f));
  if (party_->what() == party::kind::event_based) {
    auto* self = static_cast<caf::scheduled_actor*>(party_->self());
    auto where = compat::make_responder(self);
    install(self, where, shared);
    std::lock_guard guard{lock_};
    where_ = where;
    on_event_ = std::move(shared);
    return;
  }
  std::lock_guard guard{lock_};
  on_event_ = std::move(shared);
}

void session_state::tell(hold_event what) noexcept {
  event_callback f;
  compat::responder where;
  {
    std::lock_guard guard{lock_};
    f = on_event_;
    where = where_;
  }
  if (!f)
    return;
  try {
    if (where)
      where.deliver(std::make_shared<event_delivery>(std::move(what)));
    else
      (*f)(what);
  } catch (...) {
    // The client's callback is the client's business.
  }
}

void session_state::taken_away(const term& what, hold_record& r) noexcept {
  auto& where = scope();
  where.statistics.count_lost();
  hold_event event;
  event.what = hold_event::kind::lost;
  try {
    event.term = what;
    event.node = where.name_of(where.self());
    log_line(log_level::warning,
             fmt::format("scope {}: a hold on {} is lost: a larger token was "
                         "met ({})",
                         where.name(), to_string(what), event.node));
  } catch (...) {
    // No memory: it is told all the same.
  }
  event.token = r.token;
  tell(std::move(event));
}

} // namespace pawl
