#include "pawl/actors/party.hpp"

#include "pawl/actors/pending.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/actors/session_state.hpp"
#include "pawl/core/guard_bit.hpp"

namespace pawl {

namespace {

/// More sessions or holds than this are closed by the scope's actor: the functor
/// may run on the network thread.
constexpr std::size_t close_at_once = 64;

/// Its address is a thread's tag.
thread_local char thread_tag;

party::kind kind_of(const caf::local_actor* self) {
  return compat::is_blocking(self) ? party::kind::blocking
                                   : party::kind::event_based;
}

} // namespace

party::party(std::shared_ptr<scope_state> scope)
  : scope_(std::move(scope)),
    self_(nullptr),
    id_(0),
    kind_(kind::thread),
    tag_(&thread_tag) {
  // nop
}

party::party(std::shared_ptr<scope_state> scope, caf::local_actor* self)
  : scope_(std::move(scope)),
    self_(self),
    id_(self->id()),
    kind_(kind_of(self)),
    tag_(this) {
  if (kind_ != kind::event_based)
    return;
  port_.emplace(static_cast<caf::scheduled_actor*>(self),
                [this](const compat::deliverable_ptr& what) {
                  // Anything else: what an exception had left in the queue.
                  auto keep = shared_from_this();
                  if (auto* x = dynamic_cast<delivery*>(what.get()))
                    static_cast<pending_response&>(x->what()).complete();
                  else if (auto* y = dynamic_cast<errand*>(what.get()))
                    y->run();
                  else if (!running_)
                    run([] {});
                });
}

party::~party() = default;

// -- sessions -----------------------------------------------------------------

bool party::add(session_state& x) noexcept {
  auto word = take_guard(word_);
  auto open = (word & closed_bit) == 0;
  if (open) {
    x.listed = true;
    x.prev = nullptr;
    x.next = sessions_;
    if (sessions_ != nullptr)
      sessions_->prev = &x;
    sessions_ = &x;
  }
  drop_guard(word_, word);
  return open;
}

void party::remove(session_state& x) noexcept {
  auto word = take_guard(word_);
  if (x.listed) {
    (x.prev != nullptr ? x.prev->next : sessions_) = x.next;
    if (x.next != nullptr)
      x.next->prev = x.prev;
    x.listed = false;
  }
  drop_guard(word_, word);
}

bool party::has_whole(const session_state& mine, std::uint32_t hash) {
  auto found = false;
  auto word = take_guard(word_);
  for (auto* x = sessions_; x != nullptr; x = x->next)
    if (x != &mine)
      x->for_each_hold([&](const hold_record& r) {
        found = found
                || (r.what == hold_record::kind::whole && r.hash == hash);
      });
  drop_guard(word_, word);
  return found;
}

void party::close() noexcept {
  auto word = take_guard(word_);
  std::size_t work = 0;
  // Counted under the bit; sessions cannot go while they are listed.
  for (auto* x = sessions_; x != nullptr && work <= close_at_once; x = x->next)
    work += 1 + x->holds();
  drop_guard(word_, word | closed_bit);
  scope_->forget(id_);
  if (work <= close_at_once)
    close_sessions();
  else
    scope_->put(post::close_party{shared_from_this()});
}

void party::close_sessions() noexcept {
  // The bit of a session is taken inside that of its party here, and nowhere
  // the other way round.
  auto word = take_guard(word_);
  session_state* closing = nullptr;
  for (auto* x = sessions_; x != nullptr; x = x->next) {
    if (!x->try_ref())
      continue; // about to remove itself
    x->closing = closing;
    closing = x;
  }
  drop_guard(word_, word | closed_bit);
  auto gate = scope_->gate();
  auto why = is_shut(gate) ? gate : outcome::session_ended;
  while (closing != nullptr) {
    auto* x = closing;
    closing = x->closing;
    scope_->close(*x, why);
    x->unref();
  }
}

// -- continuations ------------------------------------------------------------

void party::drain() {
  while (!queued_.empty()) {
    auto next = std::move(queued_.front());
    queued_.pop_front();
    next->call();
  }
}

void party::postpone() noexcept {
  if (!port_ || closed())
    return;
  try {
    port_->expect();
    port_->where().deliver(std::make_shared<compat::deliverable>());
  } catch (...) {
    // No memory for a message: the next continuation of the actor drains.
  }
}

} // namespace pawl
