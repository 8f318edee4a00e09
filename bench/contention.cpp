// One hot term: what do actors that all want it get?
//
// Each of 1 to 10,000 actors locks the same term, releases it, and asks again,
// without an end. Strict fairness, holder death, tokens and statistics are on.
// The term is held until all of them stand in line; an exclusive crowd of two
// or more then never leaves it free, whatever the number of threads.
//
//   ring       the floor: a bare CAF token ring of the same size; a message is
//              handed on from actor to actor, and there is no lock at all
//   exclusive  pawl, all exclusive; each grant raises a plain counter
//   shared     pawl, all shared
//   mixed      pawl, nine of ten shared, one of ten exclusive
//   server     a lock server in plain CAF (peers/lock_server.hpp), exclusive
//
// An actor that is granted inline gives way to the others after 64 rounds: it
// sends itself a message, which is in the figures. Fairness counts the grants
// of each actor between two moments: the fewest by the most. Where nobody waits
// (shared) it tells about CAF's scheduler, not about locks. A wait is the time
// from the ask to the continuation; one of 16 is timed, by the same rule for
// all subjects.
//
// The check: every release released, the counter is what was granted, nothing
// is left in the scope.

#include "bench/measure.hpp"
#include "bench/messages.hpp"
#include "bench/per_thread.hpp"
#include "bench/peers/lock_server.hpp"

#include <pawl/actors/scope.hpp>
#include <pawl/actors/type_ids.hpp>

#include <future>
#include <thread>

namespace bench {
namespace {

using namespace std::chrono_literals;

constexpr unsigned rounds_at_a_time = 64;
constexpr unsigned timed_one_in = 16;
constexpr std::string_view hot = "hot";

/// What all actors of a run have in common.
struct arena {
  struct alignas(64) slot {
    std::atomic<std::uint64_t> grants{0};
  };

  explicit arena(std::size_t n) : actors(n), slots(new slot[n]) {
    // nop
  }

  const std::size_t actors;
  const std::unique_ptr<slot[]> slots;
  alignas(64) std::atomic<bool> timing{false};
  std::atomic<bool> enough{false};
  alignas(64) std::atomic<std::uint64_t> finished{0};
  std::atomic<std::uint64_t> faults{0};
  std::atomic<std::uint64_t> written{0};
  std::promise<void> all_finished;
  /// Guarded by the hot term: a load and a store.
  alignas(64) std::atomic<std::uint64_t> guarded{0};
};

/// One of the crowd: counts, times and ends; how it asks is up to the subject.
class contender : public caf::event_based_actor {
public:
  contender(caf::actor_config& cfg, arena& where, std::size_t index)
    : event_based_actor(cfg), arena_(where), index_(index),
      ticks_(static_cast<unsigned>(index)) {
    // nop
  }

protected:
  /// Before each ask. False: it is over.
  bool begin() {
    if (arena_.enough.load(std::memory_order_relaxed))
      return false;
    asked_ = ++ticks_ % timed_one_in == 0
                 && arena_.timing.load(std::memory_order_relaxed)
               ? now_ns()
               : 0;
    return true;
  }

  void granted() {
    if (asked_ != 0)
      per_thread<histogram>::mine().record(now_ns() - asked_);
    auto& n = arena_.slots[index_].grants;
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  void write() {
    auto& x = arena_.guarded;
    x.store(x.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    ++written_;
  }

  void finish() {
    arena_.written += written_;
    if (++arena_.finished == arena_.actors)
      arena_.all_finished.set_value();
    quit();
  }

  arena& arena_;
  const std::size_t index_;
  unsigned ticks_;
  std::int64_t asked_ = 0;
  std::uint64_t written_ = 0;
};

// -- pawl ---------------------------------------------------------------------

enum class crowd { exclusive, shared, mixed };

class locking : public contender {
public:
  locking(caf::actor_config& cfg, arena& where, std::size_t index,
          pawl::scope tags, crowd how)
    : contender(cfg, where, index), tags_(std::move(tags)), how_(how),
      random_(static_cast<std::uint32_t>(index) * 2654435761u + 1) {
    // nop
  }

  caf::behavior make_behavior() override {
    session_.emplace(tags_.attach(this));
    return {[this](go_atom) { next(); }};
  }

private:
  void next() {
    if (!begin()) {
      session_.reset();
      finish();
      return;
    }
    auto mode = pick();
    session_->lock(hot, mode).then(
      [this, mode](pawl::lock held) {
        granted();
        if (mode == pawl::exclusive)
          write();
        if (held.release() != pawl::release_result::released)
          ++arena_.faults;
        if (++rounds_ % rounds_at_a_time == 0)
          compat::send(this, caf::actor_cast<caf::actor>(this), go_atom_v);
        else
          next();
      },
      [this](const pawl::failure&) {
        ++arena_.faults;
        finish();
      });
  }

  pawl::lock_mode pick() {
    if (how_ == crowd::exclusive)
      return pawl::exclusive;
    if (how_ == crowd::shared)
      return pawl::shared;
    random_ = random_ * 1664525u + 1013904223u;
    return (random_ >> 16) % 10 == 0 ? pawl::exclusive : pawl::shared;
  }

  pawl::scope tags_;
  const crowd how_;
  std::uint32_t random_;
  unsigned rounds_ = 0;
  std::optional<pawl::session> session_;
};

// -- the floor ----------------------------------------------------------------

class ring_member : public contender {
public:
  using contender::contender;

  caf::behavior make_behavior() override {
    return {
      [this](size_atom, const caf::actor& next) { next_ = next; },
      [this](go_atom) {
        if (!begin()) {
          // The last one tells the others.
          if (next_)
            compat::send(this, next_, go_atom_v);
          next_ = nullptr;
          finish();
          return;
        }
        asked_ = 0; // it never asks: there is no wait to time
        granted();
        write();
        compat::send(this, next_, go_atom_v);
      },
    };
  }

private:
  caf::actor next_;
};

// -- the lock server ----------------------------------------------------------

class server_client : public contender {
public:
  server_client(caf::actor_config& cfg, arena& where, std::size_t index,
                caf::actor server)
    : contender(cfg, where, index), server_(std::move(server)) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {[this](go_atom) { next(); }};
  }

private:
  static constexpr auto patience = 60s;

  void next() {
    if (!begin()) {
      finish();
      return;
    }
    compat::request(this, server_, patience, lock_atom_v, std::string{hot})
      .then([this](bool) {
        granted();
        write();
        compat::request(this, server_, patience, free_atom_v, std::string{hot})
          .then([this](bool freed) {
            if (!freed)
              ++arena_.faults;
            next();
          });
      });
  }

  caf::actor server_;
};

// -- one run ------------------------------------------------------------------

struct plan {
  std::vector<std::size_t> actors{1, 2, 20, 100, 1'000, 10'000};
  std::vector<std::size_t> threads{1, 2};
  std::vector<std::string> subjects{"ring", "exclusive", "shared", "mixed",
                                    "server"};
  double seconds = 1;
  double warm_up = 0.2;
};

struct config : caf::actor_system_config {
  explicit config(std::size_t threads) {
    compat::add_types<caf::id_block::pawl_actors, caf::id_block::pawl_bench>(
      *this);
    compat::max_threads(*this, threads);
    // An actor that sends itself a message is to let the others run first.
    set("scheduler.max-throughput", std::size_t{1});
  }
};

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

std::vector<std::uint64_t> grants_of(const arena& x) {
  std::vector<std::uint64_t> result(x.actors);
  for (std::size_t i = 0; i < x.actors; ++i)
    result[i] = x.slots[i].grants.load(std::memory_order_relaxed);
  return result;
}

/// Waits until each has had its first grant, or some starve.
void all_begin(const arena& x) {
  auto end = steady::now() + 2s;
  for (std::size_t i = 0; i < x.actors && steady::now() < end;) {
    if (x.slots[i].grants.load(std::memory_order_relaxed) != 0)
      ++i;
    else
      std::this_thread::sleep_for(1ms);
  }
}

/// Lets the crowd, which is under way, work and counts. The figures.
json watch(arena& x, const plan& what, bool& good) {
  all_begin(x);
  sleep_for(what.warm_up);
  auto before = grants_of(x);
  auto messages = messages_so_far();
  auto cpu = cpu_seconds();
  auto since = now_ns();
  x.timing = true;
  sleep_for(what.seconds);
  x.timing = false;
  auto elapsed = seconds_since(since);
  cpu = cpu_seconds() - cpu;
  auto messages_after = messages_so_far();
  auto after = grants_of(x);
  x.enough = true;
  good = x.all_finished.get_future().wait_for(60s) == std::future_status::ready
         && good;
  std::uint64_t all = 0;
  std::uint64_t fewest = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < x.actors; ++i) {
    auto mine = after[i] - before[i];
    all += mine;
    fewest = std::min(fewest, mine);
    most = std::max(most, mine);
  }
  auto grants = static_cast<double>(std::max<std::uint64_t>(all, 1));
  json result;
  result["per_second"] = static_cast<double>(all) / elapsed;
  result["fairness"]
    = most == 0 ? 0.0 : static_cast<double>(fewest) / static_cast<double>(most);
  result["fewest"] = fewest;
  result["most"] = most;
  if (messages)
    result["messages_per_grant"]
      = static_cast<double>(*messages_after - *messages) / grants;
  result["cpu_us_per_grant"] = cpu * 1e6 / grants;
  histogram waits;
  per_thread<histogram>::for_each([&](histogram& h) {
    waits.add(h);
    h.clear();
  });
  if (waits.count() != 0)
    result["wait"] = waits.figures();
  good = good && all != 0 && x.faults == 0 && x.guarded == x.written;
  return result;
}

/// The caller keeps the handles: an actor that only waits is gone when the last
/// one goes.
void start(const std::vector<caf::actor>& all) {
  for (const auto& x : all)
    compat::anon_send(x, go_atom_v);
}

json run_pawl(caf::actor_system& system, arena& x, const plan& what, crowd how,
              bool& good) {
  auto tags = pawl::open_local_scope(system, "tags");
  good = tags.wait_ready(10s);
  auto keeper = tags.attach();
  auto kept = keeper.lock(hot, pawl::exclusive).wait();
  std::vector<caf::actor> all;
  for (std::size_t i = 0; i < x.actors; ++i)
    all.push_back(system.spawn<locking>(std::ref(x), i, tags, how));
  start(all);
  while (tags.waiters(hot).size() != x.actors)
    std::this_thread::sleep_for(1ms);
  kept->release();
  auto result = watch(x, what, good);
  auto seen = tags.statistics();
  result["waited_of_requests"]
    = seen.requests == 0
        ? 0.0
        : static_cast<double>(seen.waits) / static_cast<double>(seen.requests);
  // The managers look once more when the last ones have gone.
  keeper.end();
  all.clear();
  for (int i = 0; i < 1000 && tags.residue() != pawl::residue{}; ++i)
    std::this_thread::sleep_for(1ms);
  good = good && tags.residue() == pawl::residue{};
  tags.close();
  return result;
}

json run_ring(caf::actor_system& system, arena& x, const plan& what,
              bool& good) {
  std::vector<caf::actor> all;
  for (std::size_t i = 0; i < x.actors; ++i)
    all.push_back(system.spawn<ring_member>(std::ref(x), i));
  for (std::size_t i = 0; i < x.actors; ++i)
    compat::anon_send(all[i], size_atom_v, all[(i + 1) % x.actors]);
  compat::anon_send(all.front(), go_atom_v);
  return watch(x, what, good);
}

json run_server(caf::actor_system& system, arena& x, const plan& what,
                bool& good) {
  auto server = system.spawn<lock_server>(std::vector{std::string{hot}});
  std::vector<caf::actor> all;
  for (std::size_t i = 0; i < x.actors; ++i)
    all.push_back(system.spawn<server_client>(std::ref(x), i, server));
  start(all);
  // All of them are in its mailbox before this one is.
  std::this_thread::sleep_for(100ms);
  compat::anon_send(server, free_atom_v, std::string{hot});
  auto result = watch(x, what, good);
  compat::anon_send_exit(server, caf::exit_reason::user_shutdown);
  return result;
}

void run(const std::string& subject, std::size_t actors, std::size_t threads,
         const plan& what, report& out) {
  config cfg{threads};
  caf::actor_system system{cfg};
  arena x{actors};
  auto good = true;
  json figures;
  std::string lacks;
  if (subject == "ring") {
    figures = run_ring(system, x, what, good);
    lacks = "everything: the floor";
  } else if (subject == "server") {
    figures = run_server(system, x, what, good);
    lacks = "holder death, shared locks, tokens, time-outs, several nodes";
  } else {
    auto how = subject == "exclusive" ? crowd::exclusive
               : subject == "shared"  ? crowd::shared
                                      : crowd::mixed;
    figures = run_pawl(system, x, what, how, good);
  }
  if (x.finished != x.actors) {
    // Actors that still run would use what is about to go.
    out.row(subject, {{"actors", actors}, {"threads", threads}}, figures,
            false);
    fmt::print("{} of {} actors have not ended\n", x.actors - x.finished,
               x.actors);
    std::fflush(stdout);
    std::_Exit(1);
  }
  out.row(subject, {{"actors", actors}, {"threads", threads}},
          std::move(figures), good, lacks);
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"One hot term: throughput, fairness, waits, messages per grant"};
  bench::plan what;
  bench::report out{"contention"};
  auto tiny = false;
  app.add_option("--actors", what.actors, "sizes of the crowd")->delimiter(',');
  app.add_option("--threads", what.threads, "threads of the actor system")
    ->delimiter(',');
  app
    .add_option("--subjects", what.subjects,
                "of: ring, exclusive, shared, mixed, server")
    ->delimiter(',')
    ->check(CLI::IsMember({"ring", "exclusive", "shared", "mixed", "server"}));
  app.add_option("--seconds", what.seconds, "measured, for each row");
  app.add_option("--warm-up", what.warm_up, "seconds before, for each row");
  app.add_flag("--tiny", tiny, "only that it works");
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  if (tiny) {
    what.actors = {1, 20};
    what.threads = {2};
    what.seconds = 0.05;
    what.warm_up = 0.01;
  }
  pawl::compat::init_meta<caf::id_block::pawl_actors,
                          caf::id_block::pawl_bench>();
  for (auto threads : what.threads)
    for (auto actors : what.actors)
      for (const auto& subject : what.subjects)
        bench::run(subject, actors, threads, what, out);
  return out.status();
}
