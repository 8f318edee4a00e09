// Threads on the lock machine. What a lock protects here is plain data, so the
// thread sanitizer sees a broken exclusion, too. Each test does what it can in
// its time: a loaded machine gets through fewer rounds.

#include "lock_fixture.hpp"
#include "pawl/core/worker.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

using namespace pawl;
using namespace pawl::test;

namespace {

/// The time of a test.
class budget {
public:
  [[nodiscard]] bool left() const {
    return std::chrono::steady_clock::now() - start_ < std::chrono::seconds{2};
  }

private:
  const std::chrono::steady_clock::time_point start_
    = std::chrono::steady_clock::now();
};

/// Managers as a thread, until `stop`.
class manager_thread {
public:
  explicit manager_thread(lock_world& world)
    : thread_([this, &world] {
        while (!stop_.load(std::memory_order_acquire))
          if (!world.port.pump(world.locks, 0, 3))
            std::this_thread::yield();
      }) {
    // nop
  }

  ~manager_thread() {
    stop_.store(true, std::memory_order_release);
    thread_.join();
  }

private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Starts at the same time, as nearly as threads can.
class start_line {
public:
  explicit start_line(int count) : missing_(count) {
    // nop
  }

  void wait() {
    missing_.fetch_sub(1);
    while (missing_.load() > 0)
      std::this_thread::yield();
  }

private:
  std::atomic<int> missing_;
};

void wait_for(const test_waiter& w) {
  while (!w.is_settled())
    std::this_thread::yield();
}

/// Protected by the lock on its term.
struct guarded {
  std::uint64_t value = 0;          // written by exclusive holders
  fencing_token token = 0;          // likewise: the last one's
  std::atomic<int> readers{0};
  std::atomic<int> writers{0};
};

/// One thread's life: sessions that lock, upgrade, downgrade, release and die.
class client {
public:
  client(lock_world& world, std::vector<term>& terms,
         std::vector<guarded>& data, unsigned seed)
    : world_(world), terms_(terms), data_(data), random_(seed) {
    // nop
  }

  void run(int steps) {
    budget time;
    for (int i = 0; i < steps && (i % 16 != 0 || time.left()); ++i) {
      if (!who_ || random_() % 64 == 0)
        open();
      auto where = random_() % terms_.size();
      auto mode = random_() % 3 == 0 ? exclusive : shared;
      if (auto* r = lock(where, mode)) {
        mode == exclusive ? write(where, r->token) : read(where);
        if (mode == shared && random_() % 4 == 0)
          upgrade(where);
        if (mode == exclusive && random_() % 4 == 0) {
          world_.locks.downgrade(*r);
          read(where);
        }
        world_.locks.release(*r);
      }
    }
    who_.reset();
  }

  std::uint64_t writes = 0;
  std::uint64_t verdicts[16] = {};

private:
  void open() {
    std::lock_guard guard{opening};
    who_ = world_.session();
  }

  hold_record* lock(std::size_t where, lock_mode mode) {
    hold_record* r = nullptr;
    if (random_() % 2 == 0) {
      auto found = world_.locks.try_lock(*who_, terms_[where], mode, r);
      if (found == outcome::granted)
        return r;
    }
    auto w = lock_world::waiter(who_, terms_[where], mode);
    world_.locks.lock(*w);
    switch (random_() % 8) {
      case 0:
        world_.locks.end(*w, outcome::timeout);
        break;
      case 1:
        if (random_() % 4 == 0)
          world_.locks.close(*who_, outcome::session_ended);
        break;
      default:
        break;
    }
    wait_for(*w);
    EXPECT_EQ(w->settlements(), 1);
    ++verdicts[static_cast<int>(w->state())];
    if (w->state() != outcome::granted)
      return nullptr;
    r = w->take_hold();
    if (!who_->closed())
      return r;
    // The session has ended after the grant: it holds nothing.
    EXPECT_EQ(world_.locks.release(*r), release_result::already_released);
    open();
    return nullptr;
  }

  void upgrade(std::size_t where) {
    auto w = lock_world::waiter(who_, terms_[where], exclusive);
    world_.locks.lock(*w);
    wait_for(*w);
    ++verdicts[static_cast<int>(w->state())];
    if (w->state() != outcome::granted) {
      EXPECT_EQ(w->state(), outcome::deadlock);
      return;
    }
    auto* r = w->take_hold();
    write(where, r->token);
    // The hold stays exclusive until its last handle goes.
    world_.locks.release(*r);
    ++data_[where].value;
    ++writes;
  }

  void write(std::size_t where, fencing_token token) {
    auto& x = data_[where];
    EXPECT_EQ(x.writers.fetch_add(1), 0);
    EXPECT_EQ(x.readers.load(), 0);
    EXPECT_GT(token, x.token);
    x.token = token;
    ++x.value;
    ++writes;
    x.writers.fetch_sub(1);
  }

  void read(std::size_t where) {
    auto& x = data_[where];
    x.readers.fetch_add(1);
    EXPECT_EQ(x.writers.load(), 0);
    auto before = x.value;
    if (random_() % 16 == 0)
      std::this_thread::yield();
    EXPECT_EQ(x.value, before);
    x.readers.fetch_sub(1);
  }

  static inline std::mutex opening;

  lock_world& world_;
  std::vector<term>& terms_;
  std::vector<guarded>& data_;
  std::mt19937 random_;
  session_ptr who_;
};

} // namespace

TEST(lock_stress, nobody_gets_in_beside_a_writer) {
  lock_world world;
  auto pair = colliding_terms()[0];
  std::vector<term> terms{term{"t"}, pair.first, pair.second};
  std::vector<guarded> data(terms.size());
  std::vector<std::unique_ptr<client>> clients;
  for (unsigned i = 0; i < 4; ++i)
    clients.push_back(
      std::make_unique<client>(world, terms, data, 7 * i + 1));
  {
    manager_thread managers{world};
    std::vector<std::thread> threads;
    for (auto& x : clients)
      threads.emplace_back([&x] { x->run(20'000); });
    for (auto& x : threads)
      x.join();
  }
  std::uint64_t written = 0;
  std::uint64_t counted = 0;
  for (const auto& x : data)
    counted += x.value;
  for (const auto& x : clients)
    written += x->writes;
  EXPECT_EQ(counted, written);
  world.expect_idle();
  EXPECT_EQ(test_session::live, 0);
  EXPECT_EQ(test_waiter::live, 0);
}

TEST(lock_stress, an_end_meets_its_request_and_its_grant) {
  lock_world world;
  term what{"t"};
  auto a = world.session();
  auto b = world.session();
  constexpr int rounds = 100'000;
  std::vector<waiter_ptr> asks;
  std::atomic<test_waiter*> shown{nullptr};
  std::atomic<int> done{0};
  std::atomic<bool> over{false};
  budget time;
  std::uint64_t granted = 0;
  {
    manager_thread managers{world};
    std::thread ender{[&] {
      for (int i = 0; i < rounds; ++i) {
        test_waiter* w = nullptr;
        while ((w = shown.exchange(nullptr)) == nullptr) {
          if (over.load())
            return;
          std::this_thread::yield();
        }
        for (int spin = 0; spin < i % 64; ++spin)
          done.load();
        world.locks.end(*w, outcome::timeout);
        done.store(i + 1);
      }
    }};
    for (int i = 0; i < rounds && time.left(); ++i) {
      auto* r = world.take(a, what, exclusive);
      ASSERT_NE(r, nullptr) << "round " << i;
      auto w = lock_world::waiter(b, what, exclusive);
      // The end comes before, while or after the request is made and granted.
      if (i % 2 == 0)
        shown.store(w.get());
      world.locks.lock(*w);
      if (i % 2 != 0)
        shown.store(w.get());
      world.locks.release(*r);
      wait_for(*w);
      while (done.load() <= i)
        std::this_thread::yield();
      EXPECT_EQ(w->settlements(), 1);
      if (w->state() == outcome::granted) {
        ++granted;
        world.locks.release(*w->take_hold());
      }
      // Gone at once, whoever won: at the latest when its manager has looked.
      while (world.locks.table().view(what).mode != lock_mode::none
             || world.locks.table().view(what).contended)
        std::this_thread::yield();
    }
    over.store(true);
    ender.join();
  }
  EXPECT_EQ(b->waits(), 0u);
  EXPECT_EQ(b->holds(), 0u);
  world.expect_idle();
  ::testing::Test::RecordProperty("granted", std::to_string(granted));
}

TEST(lock_stress, a_death_meets_a_grant) {
  lock_world world;
  term what{"t"};
  auto a = world.session();
  constexpr int rounds = 100'000;
  std::atomic<test_session*> shown{nullptr};
  std::atomic<int> done{0};
  std::atomic<bool> over{false};
  budget time;
  {
    manager_thread managers{world};
    std::thread reaper{[&] {
      for (int i = 0; i < rounds; ++i) {
        test_session* s = nullptr;
        while ((s = shown.exchange(nullptr)) == nullptr) {
          if (over.load())
            return;
          std::this_thread::yield();
        }
        for (int spin = 0; spin < i % 64; ++spin)
          done.load();
        world.locks.close(*s, outcome::session_ended);
        done.store(i + 1);
      }
    }};
    for (int i = 0; i < rounds && time.left(); ++i) {
      auto b = world.session();
      auto* r = world.take(a, what, exclusive);
      ASSERT_NE(r, nullptr) << "round " << i;
      auto w = lock_world::waiter(b, what, exclusive);
      world.locks.lock(*w);
      shown.store(b.get());
      world.locks.release(*r);
      wait_for(*w);
      EXPECT_EQ(w->settlements(), 1);
      if (w->state() == outcome::granted)
        world.locks.release(*w->take_hold());
      while (done.load() <= i)
        std::this_thread::yield();
      EXPECT_EQ(b->waits(), 0u);
      EXPECT_EQ(b->holds(), 0u);
      while (world.locks.table().view(what).mode != lock_mode::none
             || world.locks.table().view(what).contended)
        std::this_thread::yield();
    }
    over.store(true);
    reaper.join();
  }
  world.expect_idle();
}

TEST(lock_stress, splits_and_merges_meet_locks) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  {
    lock_world world;
    constexpr int threads = 3;
    constexpr int terms = 8'000;
    std::vector<std::uint64_t> shared_data(64, 0);
    start_line start{threads};
    std::atomic<std::uint64_t> written{0};
    std::vector<session_ptr> sessions;
    for (int i = 0; i < threads; ++i)
      sessions.push_back(world.session());
    std::vector<std::thread> all;
    for (int id = 0; id < threads; ++id)
      all.emplace_back([&, id] {
        auto& who = sessions[static_cast<std::size_t>(id)];
        std::mt19937 random{static_cast<unsigned>(id)};
        std::vector<hold_record*> held;
        start.wait();
        budget time;
        for (int round = 0; round < 6 && time.left(); ++round) {
          for (int i = 0; i < terms; ++i) {
            hold_record* r = nullptr;
            ASSERT_EQ(world.locks.try_lock(*who, term{i * threads + id},
                                           exclusive, r),
                      outcome::granted);
            held.push_back(r);
            // Terms that all of them want, in whatever bucket they are by now.
            auto at = random() % shared_data.size();
            if (world.locks.try_lock(*who,
                                     term{"s" + std::to_string(at)},
                                     exclusive, r)
                == outcome::granted) {
              ++shared_data[at];
              written.fetch_add(1, std::memory_order_relaxed);
              world.locks.release(*r);
            }
          }
          for (auto* r : held)
            world.locks.release(*r);
          held.clear();
          world.locks.table().trim(2'000);
        }
        block_pool::flush();
      });
    for (auto& x : all)
      x.join();
    std::uint64_t counted = 0;
    for (auto x : shared_data)
      counted += x;
    EXPECT_EQ(counted, written.load());
    while (world.locks.table().trim(1 << 20) > 0) {
      // again
    }
    world.expect_idle();
    EXPECT_EQ(world.locks.table().buckets(), 1024u);
  }
  block_pool::flush();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

TEST(lock_stress, blocks_wander_between_threads_and_come_back) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  std::vector<void*> handed;
  std::mutex lock;
  std::vector<std::thread> all;
  for (int id = 0; id < 3; ++id)
    all.emplace_back([&, id] {
      for (int i = 0; i < 20'000; ++i) {
        auto* block = block_pool::take();
        std::lock_guard guard{lock};
        handed.push_back(block);
        if (id == 0)
          while (handed.size() > 100) {
            block_pool::give(handed.back());
            handed.pop_back();
          }
      }
    });
  for (auto& x : all)
    x.join();
  for (auto* block : handed)
    block_pool::give(block);
  block_pool::flush();
  EXPECT_EQ(block_pool::blocks_out(), before)
    << "threads that have ended keep nothing";
}

/// Collects the waiters that are settled, from any thread.
struct collecting_port final : worker_port {
  void settled(part_waiter& w) noexcept override {
    std::lock_guard guard{lock};
    done.push_back(&w);
  }

  void enters(part_waiter&) override {}
  void leaves(part_waiter&) noexcept override {}

  std::vector<part_waiter*> take() {
    std::lock_guard guard{lock};
    return std::exchange(done, {});
  }

  std::mutex lock;
  std::vector<part_waiter*> done;
};

struct no_sessions final : session_resolver {
  session_ledger* find(const session_id&) override {
    return nullptr;
  }
};

// Granted to a worker that has just seen that it is granted, and takes it back,
// while the grantor is still entering it into the session's ledger.
TEST(lock_stress, a_part_is_taken_back_while_it_is_granted) {
  constexpr auto home = static_cast<node_slot>(1);
  lock_world world;
  collecting_port way_back;
  no_sessions nobody;
  term what{"t"};
  auto a = world.session();
  constexpr int rounds = 100'000;
  std::atomic<hold_record*> shown{nullptr};
  std::atomic<bool> over{false};
  budget time;
  {
    manager_thread managers{world};
    worker machine{worker_options{static_cast<node_slot>(0), home, 7,
                                  std::chrono::seconds{1}},
                   world.locks, way_back, world.clock, nobody};
    scope_effects out;
    machine.set_ready(out);
    std::thread releaser{[&] {
      while (!over.load()) {
        if (auto* r = shown.exchange(nullptr))
          world.locks.release(*r);
        else
          std::this_thread::yield();
      }
    }};
    for (int i = 0; i < rounds && time.left(); ++i) {
      auto* r = world.take(a, what, exclusive);
      ASSERT_NE(r, nullptr) << "round " << i;
      request_message ask;
      ask.id = {home, static_cast<std::uint64_t>(i) + 1};
      ask.session = {home, 5};
      ask.age.who = ask.session;
      ask.terms = {{what, exclusive}};
      ask.carried = {0};
      machine.receive(ask, out);
      shown.store(r);
      // Not before the grant is near: it takes a message to the manager.
      auto view = world.locks.table().view(what);
      for (int spin = 0; spin < 2000 && view.contended; ++spin)
        view = world.locks.table().view(what);
      for (int spin = 0; spin < 1 << i % 14; ++spin)
        over.load();
      machine.receive(abandon_message{ask.id, 0}, out);
      machine.check_invariants();
      while (world.locks.table().view(what).mode != lock_mode::none
             || world.locks.table().view(what).contended)
        std::this_thread::yield();
      for (auto* w : way_back.take())
        machine.settled(*w, out);
      out.clear();
    }
    over.store(true);
    releaser.join();
  }
  for (auto* w : way_back.take())
    w->unref();
  world.expect_idle();
}
