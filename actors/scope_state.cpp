#include "pawl/actors/scope_state.hpp"

#include "pawl/actors/pending.hpp"
#include "pawl/actors/session_state.hpp"
#include "pawl/actors/scope_actor.hpp"
#include "pawl/actors/type_ids.hpp"
#include "pawl/core/ensure.hpp"

#include <algorithm>
#include <future>

namespace pawl {

namespace {

std::atomic<std::uint64_t> instances{1};

/// How long the end of a scope waits for what has to end before it. Services
/// that take longer than their own limit are killed by then.
constexpr std::chrono::milliseconds stop_patience{15'000};

/// Verdicts that can be read afterwards.
constexpr std::size_t kept_reports = 64;

/// Serials are taken in blocks, so that threads do not share a counter.
constexpr std::uint64_t serial_block = 1024;
std::atomic<std::uint64_t> next_block{1};

std::uint64_t next_serial(std::uint64_t base) noexcept {
  thread_local std::uint64_t next = 0;
  thread_local std::uint64_t left = 0;
  if (left == 0) {
    next = next_block.fetch_add(1, std::memory_order_relaxed) * serial_block;
    left = serial_block;
  }
  --left;
  return base + next++;
}

lock_table_options table_options(const scope_options& options,
                                 const scope_place& place) {
  lock_table_options result;
  result.slot = place.self;
  result.floor = fencing::floor_at(place.started_unix_ns);
  result.max_waiters = options.max_waiters;
  return result;
}

} // namespace

scope_state::scope_state(caf::actor_system& system, std::string name,
                         scope_options options, scope_place place,
                         std::shared_ptr<lamport_clock> node_clock,
                         std::shared_ptr<peer_port> port)
  : locks(table_options(options, place), *this),
    clock(std::move(node_clock)),
    exchanged(place.names.size()),
    system_(system),
    name_(std::move(name)),
    options_(options),
    place_(std::move(place)),
    port_(std::move(port)),
    instance_(instances.fetch_add(1)),
    started_(std::chrono::steady_clock::now()),
    managers_(system, locks),
    ways_back_(place_.names.size()) {
  // nop
}

scope_state::~scope_state() = default;

void scope_state::start() {
  auto ended = std::make_shared<std::promise<void>>();
  auto actor = system_.spawn<scope_actor, caf::hidden>(shared_from_this(),
                                                       ended);
  {
    std::lock_guard guard{actor_lock_};
    actor_ = actor;
    actor_ended_ = ended->get_future().share();
  }
  // It runs already: who has put something meanwhile found nobody to wake.
  compat::anon_send(actor, drain_atom_v);
}

void scope_state::stop_before(std::weak_ptr<stop_first> x) {
  {
    std::lock_guard guard{actor_lock_};
    if (!stops_) {
      std::erase_if(stop_before_, [](const auto& y) { return y.expired(); });
      stop_before_.push_back(std::move(x));
      return;
    }
  }
  if (auto late = x.lock())
    late->stop();
}

void scope_state::stop(outcome why) {
  std::shared_future<void> ended;
  std::vector<std::weak_ptr<stop_first>> first;
  auto again = false;
  {
    std::lock_guard guard{actor_lock_};
    ended = actor_ended_;
    first.swap(stop_before_);
    again = std::exchange(stops_, true);
  }
  auto may_block = compat::running_actor() == 0;
  for (auto& x : first)
    if (auto y = x.lock())
      y->stop();
  for (auto& x : first)
    if (auto y = x.lock(); y && may_block)
      y->wait_stopped(stop_patience);
  shut(why);
  if (!again)
    put(post::stop{why});
  if (may_block && ended.valid())
    ended.wait();
}

// -- sessions -----------------------------------------------------------------

party_ptr scope_state::party_of(caf::local_actor* self) {
  // The last one that this thread was asked for: an actor takes many locks in a
  // row. The ids tell which; but it may be gone: an actor may ask in its
  // destructor, and a scope that has been closed.
  struct cache {
    std::uint64_t instance = 0;
    caf::actor_id actor = 0;
    std::weak_ptr<party> last;
  };
  thread_local cache last;
  auto id = self->id();
  party_ptr result;
  if (last.instance == instance_ && last.actor == id)
    result = last.last.lock();
  if (result)
    return result;
  auto fresh = false;
  {
    std::lock_guard guard{parties_lock_};
    auto& place = parties_[id];
    if (!place) {
      place = std::make_shared<party>(shared_from_this(), self);
      fresh = true;
    }
    result = place;
  }
  if (fresh) {
    std::weak_ptr<party> weak = result;
    compat::on_terminate(self, [weak](const caf::error&) noexcept {
      if (auto x = weak.lock())
        x->close();
    });
  }
  last = {instance_, id, result};
  return result;
}

party_ptr scope_state::party_of_thread() {
  auto result = std::make_shared<party>(shared_from_this());
  std::lock_guard guard{parties_lock_};
  std::erase_if(threads_, [](const auto& x) { return x.expired(); });
  threads_.push_back(result);
  return result;
}

void scope_state::forget(caf::actor_id who) {
  party_ptr keep; // destroyed without the lock
  std::lock_guard guard{parties_lock_};
  if (auto i = parties_.find(who); i != parties_.end()) {
    keep = std::move(i->second);
    parties_.erase(i);
  }
}

void scope_state::close_parties() {
  std::vector<party_ptr> all;
  {
    std::lock_guard guard{parties_lock_};
    for (auto& [id, x] : parties_)
      all.push_back(std::move(x));
    parties_.clear();
    for (auto& x : threads_)
      if (auto strong = x.lock())
        all.push_back(std::move(strong));
    threads_.clear();
  }
  for (auto& x : all)
    x->close_sessions();
}

void scope_state::close(session_state& x, outcome why) {
  if (locks.close(x, why))
    sessions.fetch_sub(1, std::memory_order_relaxed);
}

bool scope_state::wide_hold_of_party(const session_state& mine,
                                     const term& what) {
  std::vector<party_ptr> parties{mine.party().shared_from_this()};
  {
    std::lock_guard guard{parties_lock_};
    for (auto& x : threads_)
      if (auto y = x.lock(); y && y->tag() == mine.party().tag())
        parties.push_back(std::move(y));
  }
  auto hash = lock_table::low(what.hash());
  return std::any_of(parties.begin(), parties.end(), [&](const auto& x) {
    return x->has_whole(mine, hash);
  });
}

session_id scope_state::next_session() {
  return {place_.self, next_serial(place_.serial_base)};
}

request_id scope_state::next_request() {
  return {place_.self, next_serial(place_.serial_base)};
}

// -- requests -----------------------------------------------------------------

void scope_state::ask_here(pending& x) {
  if (gate() == outcome::pending) [[likely]] {
    locks.lock(x);
    seek_deadlock(x);
    return;
  }
  if (!locks.enlist(x))
    return;
  {
    std::lock_guard guard{joining_lock_};
    if (gate() == outcome::busy) {
      x.ref();
      joining_.push_back(&x);
      return;
    }
  }
  auto now = gate();
  if (is_shut(now))
    locks.end(x, now);
  else {
    locks.hang(x);
    seek_deadlock(x);
  }
}

/// A request that waits can close a cycle only if its session holds something
/// or waits for something else. An upgrade that went past others, too.
void scope_state::seek_deadlock(pending& x) {
  auto& who = x.client();
  if (x.state() == outcome::pending)
    clock->tick(); // who takes a first lock after this is younger
  if (x.overtook
      || (x.state() == outcome::pending
          && (who.holds_something() || who.waits() > 1)))
    put(post::walk{{who.id(), x.request, 0, self()}});
}

void scope_state::holds_while_it_waits(const session_state& who) {
  for (const auto& x : board.waits_of(who.id()))
    if (x->wide())
      put(post::elsewhere{x->request});
}

bool scope_state::wait_ready(std::chrono::milliseconds limit) {
  std::unique_lock guard{joining_lock_};
  joined_.wait_for(guard, limit, [this] { return gate() != outcome::busy; });
  return gate() == outcome::pending;
}

void scope_state::ready() {
  std::vector<pending*> waiting;
  {
    std::lock_guard guard{joining_lock_};
    if (gate() != outcome::busy)
      return;
    gate_.store(outcome::pending, std::memory_order_release);
    waiting.swap(joining_);
    joined_.notify_all();
  }
  for (auto* x : waiting) {
    locks.hang(*x);
    seek_deadlock(*x);
    x->unref();
  }
}

void scope_state::shut(outcome why) {
  std::vector<pending*> waiting;
  {
    std::lock_guard guard{joining_lock_};
    if (is_shut(gate()))
      return;
    gate_.store(why, std::memory_order_release);
    waiting.swap(joining_);
    joined_.notify_all();
  }
  for (auto* x : waiting) {
    locks.end(*x, why);
    x->unref();
  }
  ring_all();
}

void scope_state::set_deadline(pending& x) {
  auto earliest = false;
  {
    std::lock_guard guard{deadlines_lock_};
    deadlines_.insert(x, *x.deadline());
    earliest = arm(*x.deadline());
  }
  if (earliest)
    put(post::arm{});
}

/// Under the lock. True: the scope's actor has to set its timer anew.
bool scope_state::arm(steady_time due) noexcept {
  if (due >= armed_)
    return false;
  armed_ = due;
  return true;
}

void scope_state::drop_deadline(pending& x) noexcept {
  if (!x.deadline())
    return;
  std::lock_guard guard{deadlines_lock_};
  deadlines_.remove(x);
}

void scope_state::set_alarm(std::shared_ptr<alarm> x, steady_time due) {
  auto earliest = false;
  auto shut = false;
  {
    std::lock_guard guard{deadlines_lock_};
    shut = alarms_shut_;
    if (!shut) {
      alarms_.insert(*x, due);
      earliest = arm(due);
      x->set_ = x;
    }
  }
  if (shut)
    x->rings();
  else if (earliest)
    put(post::arm{});
}

void scope_state::drop_alarm(alarm& x) noexcept {
  std::shared_ptr<alarm> last; // goes without the lock
  std::lock_guard guard{deadlines_lock_};
  alarms_.remove(x);
  last = std::move(x.set_);
}

std::shared_ptr<alarm> scope_state::take_alarm(steady_time now) {
  std::lock_guard guard{deadlines_lock_};
  auto* due = alarms_.pop_due(now);
  return due != nullptr ? std::move(static_cast<alarm*>(due)->set_) : nullptr;
}

void scope_state::ring_all() {
  {
    std::lock_guard guard{deadlines_lock_};
    alarms_shut_ = true;
  }
  while (auto x = take_alarm(steady_time::max()))
    x->rings();
}

std::optional<steady_time> scope_state::end_due(steady_time now) {
  while (auto x = take_alarm(now))
    x->rings();
  for (;;) {
    pending* next = nullptr;
    {
      std::lock_guard guard{deadlines_lock_};
      auto* due = deadlines_.pop_due(now);
      if (due == nullptr) {
        auto result = deadlines_.next();
        if (auto other = alarms_.next())
          result = result ? std::min(*result, *other) : *other;
        armed_ = result.value_or(steady_time::max());
        return result;
      }
      next = static_cast<pending*>(due);
      next->ref();
    }
    locks.end(*next, outcome::timeout);
    next->unref();
  }
}

// -- of the scope's actor -----------------------------------------------------

void scope_state::put(scope_post what) {
  auto first = false;
  auto closed = false;
  {
    std::lock_guard guard{inbox_lock_};
    closed = inbox_closed_;
    if (!closed) {
      first = inbox_.empty();
      inbox_.push_back(std::move(what));
    }
  }
  if (first)
    compat::anon_send(actor(), drain_atom_v);
  // Nobody reads any more. What has a reference drops it, last of all: it may
  // be the last one of this scope.
  if (closed)
    dispose(what);
}

void scope_state::dispose(scope_post& what) {
  if (auto* x = std::get_if<post::open>(&what)) {
    x->what->refuse(gate(), name_of(self()));
    x->what->unref();
  } else if (auto* y = std::get_if<post::release>(&what)) {
    y->what->unref();
  } else if (auto* z = std::get_if<post::settled>(&what)) {
    z->what->unref();
  } else if (auto* m = std::get_if<post::from_peer>(&what)) {
    // These are answered, also by a scope that has just been closed.
    if (port_ && std::holds_alternative<scope_opened_message>(m->what))
      port_->send(m->from, m->epoch, name_, hand_over_message{false, {}, 0});
    else if (port_ && std::holds_alternative<scope_closed_message>(m->what))
      port_->send(m->from, m->epoch, name_, scope_closed_ack_message{});
    else if (auto* q = std::get_if<walk_question_message>(&m->what);
             port_ && q != nullptr)
      port_->send(m->from, m->epoch, name_, nothing_known(*q));
  } else if (auto* p = std::get_if<post::close_party>(&what)) {
    p->who->close_sessions();
  }
}

std::vector<scope_post> scope_state::take_posts() {
  std::lock_guard guard{inbox_lock_};
  return std::exchange(inbox_, {});
}

void scope_state::close_inbox() {
  std::vector<scope_post> rest;
  {
    std::lock_guard guard{inbox_lock_};
    inbox_closed_ = true;
    rest.swap(inbox_);
  }
  managers_.stop();
  {
    std::lock_guard guard{actor_lock_};
    actor_ = nullptr;
  }
  for (auto& x : rest)
    dispose(x);
}

caf::actor scope_state::actor() {
  std::lock_guard guard{actor_lock_};
  return actor_;
}

void scope_state::view(std::vector<node_slot> nodes) {
  std::lock_guard guard{view_lock_};
  view_ = std::move(nodes);
}

std::vector<node_slot> scope_state::view() const {
  std::lock_guard guard{view_lock_};
  return view_;
}

// -- lock_port, worker_port ---------------------------------------------------

manager_ref scope_state::take_manager() {
  return managers_.take(shared_from_this());
}

void scope_state::start(manager_ref who, wait_queue& q) {
  managers_.start(who, q);
}

void scope_state::look(manager_ref who) {
  managers_.look(who);
}

void scope_state::release_whole(hold_owner& x) {
  auto& hold = static_cast<pending::whole_hold&>(x);
  put(post::release{hold.from, hold.which});
}

void scope_state::left_waiting(const session_id& who) {
  put(post::walk{{who, {}, 0, self()}});
}

void scope_state::settled(part_waiter& w) noexcept {
  put(post::settled{&w});
}

void scope_state::enters(part_waiter& w) {
  board.add(w);
}

void scope_state::leaves(part_waiter& w) noexcept {
  board.remove(w);
}

// -- deadlocks ----------------------------------------------------------------

void scope_state::report(deadlock_report x) {
  std::lock_guard guard{reports_lock_};
  if (reports_.size() == kept_reports)
    reports_.pop_front();
  reports_.push_back(std::move(x));
}

std::vector<deadlock_report> scope_state::deadlocks() const {
  std::lock_guard guard{reports_lock_};
  return {reports_.begin(), reports_.end()};
}

worker_port& scope_state::way_back(
  node_slot peer, const std::function<std::unique_ptr<worker_port>()>& make) {
  std::lock_guard guard{ways_back_lock_};
  auto& place = ways_back_[to_index(peer)];
  if (!place)
    place = make();
  return *place;
}

// -- nodes --------------------------------------------------------------------

const std::string& scope_state::name_of(node_slot x) const {
  static const std::string nobody = "(no node)";
  auto index = to_index(x);
  return index < place_.names.size() ? place_.names[index] : nobody;
}

std::optional<node_slot> scope_state::slot_of(std::string_view name) const {
  auto i = std::lower_bound(place_.names.begin(), place_.names.end(), name);
  if (i == place_.names.end() || *i != name)
    return std::nullopt;
  return static_cast<node_slot>(i - place_.names.begin());
}

fencing_token scope_state::highest_token() const {
  auto since = std::chrono::steady_clock::now() - started_;
  auto own = fencing::floor_at(place_.started_unix_ns)
             + fencing::reach(
               std::chrono::duration_cast<std::chrono::nanoseconds>(since));
  return std::max(own, locks.table().highest_token());
}

} // namespace pawl
