// lock_fixture: what the tests of the lock machine share: a port whose managers
// are looks in a list, sessions and waiters that count themselves, and a small
// world of them.
//
// The looks are worked off by whoever calls `pump`: a test at random moments,
// or a thread. Like actors, a manager runs in one thread at a time.

#pragma once

#include "pawl/core/block_pool.hpp"
#include "pawl/core/local_locks.hpp"
#include "pawl/core/term.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pawl::test {

/// The managers of a test. Idle ones are reused, the last first: that is when
/// stray looks hurt most.
class manual_port final : public lock_port {
public:
  manager_ref take_manager() override {
    std::lock_guard guard{lock_};
    if (!idle_.empty()) {
      auto who = idle_.back();
      idle_.pop_back();
      return who;
    }
    places_.emplace_back();
    return static_cast<manager_ref>(places_.size());
  }

  void start(manager_ref who, wait_queue& q) override {
    std::lock_guard guard{lock_};
    auto& place = places_[who - 1];
    EXPECT_EQ(place.queue, nullptr) << "a manager is given one queue";
    place.queue = &q;
    place.tag = tag;
    looks_.push_back(who);
  }

  void look(manager_ref who) override {
    std::lock_guard guard{lock_};
    looks_.push_back(who);
  }

  void release_whole(hold_owner& x) override {
    std::lock_guard guard{lock_};
    wholes.push_back(&x);
  }

  void left_waiting(const session_id& who) override {
    std::lock_guard guard{lock_};
    left.push_back(who);
  }

  /// Looks that nobody has worked off.
  [[nodiscard]] std::size_t pending() const {
    std::lock_guard guard{lock_};
    return looks_.size();
  }

  /// Managers that have a queue.
  [[nodiscard]] std::size_t busy() const {
    std::lock_guard guard{lock_};
    return static_cast<std::size_t>(
      std::count_if(places_.begin(), places_.end(),
                    [](const place& x) { return x.queue != nullptr; }));
  }

  [[nodiscard]] std::size_t managers() const {
    std::lock_guard guard{lock_};
    return places_.size();
  }

  /// What `tag` was when the queue was attached whose manager looks at `index`;
  /// -1 if that look is a stray one.
  [[nodiscard]] int tag_of_look(std::size_t index) const {
    std::lock_guard guard{lock_};
    const auto& place = places_[looks_[index] - 1];
    return place.queue != nullptr ? place.tag : -1;
  }

  /// A look that nobody asked for, to a manager that exists.
  void stray(std::size_t which) {
    std::lock_guard guard{lock_};
    if (!places_.empty())
      looks_.push_back(static_cast<manager_ref>(which % places_.size()) + 1);
  }

  /// Works off the look at `index`. False if there is none.
  bool pump(local_locks& locks, std::size_t index = 0,
            std::uint32_t limit = 64) {
    manager_ref who = 0;
    wait_queue* q = nullptr;
    {
      std::lock_guard guard{lock_};
      if (index >= looks_.size())
        return false;
      who = looks_[index];
      looks_.erase(looks_.begin() + static_cast<std::ptrdiff_t>(index));
      auto& place = places_[who - 1];
      if (place.running) {
        place.again = true; // it finds the look when it has done this one
        return true;
      }
      if (place.queue == nullptr)
        return true; // early, late, or for a queue that it no longer has
      q = place.queue;
      place.running = true;
    }
    auto result = locks.manage(*q, limit);
    std::lock_guard guard{lock_};
    auto& place = places_[who - 1];
    place.running = false;
    if (result.idle) {
      place.queue = nullptr;
      idle_.push_back(who);
    }
    if (result.more || place.again)
      looks_.push_back(who);
    place.again = false;
    return true;
  }

  void pump_all(local_locks& locks) {
    while (pump(locks)) {
      // again
    }
  }

  /// Whole records whose release was asked for.
  std::vector<hold_owner*> wholes;
  /// Sessions that were left waiting.
  std::vector<session_id> left;
  /// Noted for each queue that is attached; for tests in one thread.
  int tag = 0;

private:
  struct place {
    wait_queue* queue = nullptr;
    bool running = false;
    bool again = false;
    int tag = 0;
  };

  mutable std::mutex lock_;
  std::deque<place> places_; // by manager_ref, from 1
  std::vector<manager_ref> idle_;
  std::deque<manager_ref> looks_;
};

class test_session final : public session_ledger {
public:
  test_session(std::uint64_t serial, const lamport_clock& clock,
               node_slot home = static_cast<node_slot>(0))
    : session_ledger(session_id{home, serial}, clock) {
    ++live;
  }

  void revoked(hold_record&) noexcept override {
    ++revocations;
  }

  static inline std::atomic<int> live{0};
  std::atomic<int> revocations{0};

private:
  ~test_session() override {
    --live;
  }

  void last_gone() noexcept override {
    delete this;
  }
};

class test_waiter final : public waiter {
public:
  test_waiter(session_ledger& who, term what, lock_mode mode,
              hold_record::kind kind = hold_record::kind::direct)
    : waiter(who, std::move(what), mode, kind) {
    ++live;
  }

  /// How often it was told that it has ended: never more than once.
  [[nodiscard]] int settlements() const noexcept {
    return settlements_.load(std::memory_order_acquire);
  }

  [[nodiscard]] bool is_settled() const noexcept {
    return settlements() > 0;
  }

  static inline std::atomic<int> live{0};

private:
  ~test_waiter() override {
    --live;
  }

  void settled() noexcept override {
    settlements_.fetch_add(1, std::memory_order_acq_rel);
  }

  std::atomic<int> settlements_{0};
};

/// One handle or reference, given back at the end.
template <class T>
struct give_ref {
  void operator()(T* x) const noexcept {
    x->unref();
  }
};

using session_ptr = std::unique_ptr<test_session, give_ref<test_session>>;
using waiter_ptr = std::unique_ptr<test_waiter, give_ref<test_waiter>>;

/// A scope on a node.
struct lock_world {
  explicit lock_world(lock_table_options options = {})
    : locks(options, port) {
    // nop
  }

  session_ptr session(node_slot home = static_cast<node_slot>(0)) {
    clock.tick();
    return session_ptr{new test_session(++serial, clock, home)};
  }

  static waiter_ptr waiter(const session_ptr& who, const term& what,
                           lock_mode mode,
                           hold_record::kind kind
                           = hold_record::kind::direct) {
    return waiter_ptr{new test_waiter(*who, what, mode, kind)};
  }

  /// Takes what is free; null if it has to wait or the session has ended.
  hold_record* take(const session_ptr& who, const term& what, lock_mode mode) {
    hold_record* result = nullptr;
    clock.tick();
    static_cast<void>(locks.try_lock(*who, what, mode, result));
    return result;
  }

  /// Asks with a waiter, and waits for nothing.
  waiter_ptr ask(const session_ptr& who, const term& what, lock_mode mode,
                 hold_record::kind kind = hold_record::kind::direct) {
    auto w = waiter(who, what, mode, kind);
    clock.tick();
    locks.lock(*w);
    return w;
  }

  void pump_all() {
    port.pump_all(locks);
  }

  void check() const {
    locks.table().check_invariants();
  }

  /// Whom and what a row has, as one string: "X 1 1 | 2X 3S" are two records of
  /// session 1 in an exclusive row; then who waits, in order, upgrades with a !.
  [[nodiscard]] std::string row(const term& what) const {
    auto view = locks.table().view(what);
    std::string result = view.mode == lock_mode::none     ? "-"
                         : view.mode == lock_mode::shared ? "S"
                                                          : "X";
    std::vector<std::uint64_t> holders;
    locks.table().for_each_holder(what, [&](const hold_record& r) {
      holders.push_back(r.session->id().serial);
    });
    std::sort(holders.begin(), holders.end());
    for (auto x : holders)
      result += " " + std::to_string(x);
    if (!view.contended)
      return result;
    result += " |";
    locks.table().for_each_waiter(what, [&](pawl::waiter& w) {
      result += " " + std::to_string(w.session().id().serial)
                + (w.mode() == exclusive ? "X" : "S") + (w.upgrade ? "!" : "");
    });
    return result;
  }

  /// Everything is given back: for the end of a test.
  void expect_idle() {
    pump_all();
    check();
    EXPECT_EQ(locks.table().rows(), 0u);
    EXPECT_EQ(locks.table().waiters(), 0u);
    EXPECT_EQ(port.busy(), 0u);
  }

  lamport_clock clock;
  std::uint64_t serial = 0;
  manual_port port;
  local_locks locks;
};

/// Groups of integers whose terms have the same 32 bits of hash that the lock
/// table goes by. Found by trying, once: about one pair in 2^32 pairs.
inline const std::vector<std::pair<term, term>>& colliding_terms() {
  static const auto found = [] {
    std::vector<std::pair<term, term>> result;
    std::unordered_map<std::uint32_t, int> seen;
    for (int i = 0; result.size() < 3; ++i) {
      auto low = lock_table::low(term{i}.hash());
      auto [at, fresh] = seen.emplace(low, i);
      if (!fresh)
        result.emplace_back(term{at->second}, term{i});
    }
    return result;
  }();
  return found;
}

} // namespace pawl::test
