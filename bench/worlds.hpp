// pawl and the lock server, each with the workload's other terms held, and ways
// to lock and release free ones.

#pragma once

#include "bench/harness.hpp"
#include "bench/peers/lock_server.hpp"

#include <pawl/actors/scope.hpp>
#include <pawl/actors/type_ids.hpp>
#include <pawl/core/local_locks.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <stdexcept>

namespace bench {

/// What an actor is to do, and how it tells that it is done.
struct job {
  term_stream* terms = nullptr;
  std::uint64_t rounds = 0;
  std::uint64_t done = 0;
  std::uint64_t allocations = 0;
  std::promise<void> finished;
};

// -- pawl: core ---------------------------------------------------------------

/// Nobody ever waits here.
class no_port final : public pawl::lock_port {
  pawl::manager_ref take_manager() override {
    throw std::logic_error("a free term was waited for");
  }
  void start(pawl::manager_ref, pawl::wait_queue&) override {
    // nop
  }
  void look(pawl::manager_ref) override {
    // nop
  }
  void release_whole(pawl::hold_owner&) override {
    // nop
  }

  void left_waiting(const pawl::session_id&) override {
    // nop
  }
};

class core_session final : public pawl::session_ledger {
public:
  core_session(std::uint64_t serial, const pawl::lamport_clock& clock)
    : session_ledger({static_cast<pawl::node_slot>(0), serial}, clock) {
    // nop
  }
  ~core_session() override = default;

private:
  void last_gone() noexcept override {
    // nop
  }
};

class core_world {
public:
  explicit core_world(const workload& work) : locks_({}, port_) {
    for (const auto& x : work.held)
      if (locks_.try_lock(keeper_, x, pawl::exclusive, held_.emplace_back())
          != pawl::outcome::granted)
        throw std::logic_error("a free term was not granted");
  }

  ~core_world() {
    for (auto* x : held_)
      locks_.release(*x);
  }

  std::uint64_t pairs(term_stream& terms, std::uint64_t rounds) {
    core_session me{next_serial_++, clock_};
    std::uint64_t done = 0;
    for (; rounds > 0; --rounds) {
      pawl::hold_record* hold = nullptr;
      pawl::term what{terms.next()};
      if (locks_.try_lock(me, what, pawl::exclusive, hold)
          == pawl::outcome::granted)
        done += locks_.release(*hold) == pawl::release_result::released;
    }
    return done;
  }

  std::size_t rows() {
    return locks_.table().rows();
  }

private:
  no_port port_;
  pawl::lamport_clock clock_;
  std::atomic<std::uint64_t> next_serial_{2};
  core_session keeper_{1, clock_};
  pawl::local_locks locks_;
  std::vector<pawl::hold_record*> held_;
};

// -- pawl: threads and actors -------------------------------------------------

enum class kind { wait, then, activity };

class locking_actor : public caf::event_based_actor {
public:
  locking_actor(caf::actor_config& cfg, pawl::scope tags, kind how, job& what)
    : event_based_actor(cfg), tags_(std::move(tags)), how_(how), job_(what) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {[this](go_atom) {
      if (how_ == kind::then)
        run([mine = tags_.attach(this)]() -> const pawl::session& {
          return mine;
        });
      else
        run([this] { return tags_.activity(this); });
      job_.finished.set_value();
      quit();
    }};
  }

private:
  template <class F>
  void run(F session) {
    auto before = allocations;
    for (auto i = job_.rounds; i > 0; --i)
      session()
        .lock(job_.terms->next(), pawl::exclusive)
        .then([this](pawl::lock held) {
          job_.done += held.release() == pawl::release_result::released;
        });
    job_.allocations = allocations - before;
  }

  pawl::scope tags_;
  kind how_;
  job& job_;
};

/// Runs a job in an actor and waits for it.
template <class Actor, class... Ts>
void run_in_actor(caf::actor_system& system, job& what, Ts&&... xs) {
  auto done = what.finished.get_future();
  auto actor = system.spawn<Actor>(std::forward<Ts>(xs)..., std::ref(what));
  compat::anon_send(actor, go_atom_v);
  done.wait();
}

struct actor_config : caf::actor_system_config {
  explicit actor_config(std::size_t threads) {
    compat::add_types<caf::id_block::pawl_actors, caf::id_block::pawl_bench>(
      *this);
    compat::max_threads(*this, threads);
  }
};

class actor_world {
public:
  explicit actor_world(const workload& work)
    : config_(2), system_(config_),
      tags_(pawl::open_local_scope(system_, "tags")) {
    if (!tags_.wait_ready(std::chrono::seconds{10}))
      throw std::runtime_error("the scope was not ready after ten seconds");
    auto keeper = tags_.attach();
    for (const auto& x : work.held)
      held_.push_back(
        std::move(keeper.lock(x, pawl::exclusive).wait().value()));
  }

  ~actor_world() {
    held_.clear();
    tags_.close();
  }

  /// `allocated`: calls of operator new meanwhile.
  std::uint64_t pairs(kind how, term_stream& terms, std::uint64_t rounds,
                      std::uint64_t& allocated) {
    if (how != kind::wait) {
      job what{&terms, rounds, 0, 0, {}};
      run_in_actor<locking_actor>(system_, what, tags_, how);
      allocated = what.allocations;
      return what.done;
    }
    auto mine = tags_.attach();
    auto before = allocations;
    std::uint64_t done = 0;
    for (; rounds > 0; --rounds) {
      auto held = mine.lock(terms.next(), pawl::exclusive).wait();
      if (held)
        done += held->release() == pawl::release_result::released;
    }
    allocated = allocations - before;
    return done;
  }

  std::size_t rows() {
    return tags_.residue().rows;
  }

private:
  actor_config config_;
  caf::actor_system system_;
  pawl::scope tags_;
  std::vector<pawl::lock> held_;
};

// -- the lock server ----------------------------------------------------------

/// Lock, release, and again: one round after the other.
class lock_client : public caf::event_based_actor {
public:
  lock_client(caf::actor_config& cfg, caf::actor server, job& what)
    : event_based_actor(cfg), server_(std::move(server)), job_(what) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {[this](go_atom) { next(); }};
  }

private:
  static constexpr std::chrono::seconds patience{60};

  void next() {
    if (job_.rounds-- == 0) {
      job_.finished.set_value();
      quit();
      return;
    }
    const auto& term = job_.terms->next();
    compat::request(this, server_, patience, lock_atom_v, term)
      .then([this, &term](bool) {
        compat::request(this, server_, patience, free_atom_v, term)
          .then([this](bool freed) {
            job_.done += freed ? 1 : 0;
            next();
          });
      });
  }

  caf::actor server_;
  job& job_;
};

/// As many workers as clients: with one client a second worker only gets in the
/// way.
class server_world {
public:
  server_world(const workload& work, std::size_t clients)
    : config_(clients), system_(config_),
      server_(system_.spawn<lock_server>(std::cref(work.held))) {
    // nop
  }

  ~server_world() {
    compat::anon_send_exit(server_, caf::exit_reason::user_shutdown);
  }

  std::uint64_t pairs(term_stream& terms, std::uint64_t rounds) {
    job what{&terms, rounds, 0, 0, {}};
    run_in_actor<lock_client>(system_, what, server_);
    return what.done;
  }

  std::size_t size() {
    std::uint64_t result = 0;
    caf::scoped_actor self{system_};
    compat::request(self, server_, std::chrono::seconds{60}, size_atom_v)
      .receive([&](std::uint64_t x) { result = x; }, [](const caf::error&) {});
    return result;
  }

private:
  actor_config config_;
  caf::actor_system system_;
  caf::actor server_;
};

} // namespace bench
