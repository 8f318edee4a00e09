// Question: what does a lock cost that nobody else wants?
//
// Lock and release of a free term of 12 characters, exclusive, while 100,000
// other terms are held; at random among 100,000 terms, and among 100 hot ones;
// 1 and 2 threads, each with terms of its own. In one run:
//
//   pawl_core      local_locks::try_lock and release, one session a thread
//   pawl_wait      session.lock(term, exclusive).wait() in a thread
//   pawl_then      session.lock(term, exclusive).then(...) inside an actor
//   pawl_activity  the same, with a session of its own for each lock
//   mutex          the floor: std::mutex, 65,536 stripes; no names
//   map_1k         insert and erase of the term in std::unordered_map under
//   map_64k          striped mutexes: 1,024 or 65,536 stripes
//   rocksdb        pessimistic transaction, lock and release, nothing else
//   caf_server     a lock server actor in plain CAF, two requests a pair
//
// Each subject has the 100,000 other terms in its own table (mutex has none).
// Repetitions of all subjects are mixed at random, so that what disturbs one
// disturbs all. Ratios are of medians.
//
// Exit status 1: a lock was not granted or not given back, or pawl allocated.

#include "bench/harness.hpp"
#include "bench/peers/striped.hpp"
#include "bench/worlds.hpp"
#ifdef PAWL_BENCH_ROCKSDB
#  include "bench/peers/rocksdb_locks.hpp"
#endif

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

namespace {

using namespace bench;

// -- what is to be proved -----------------------------------------------------

std::atomic<std::uint64_t> rounds_asked{0};
std::atomic<std::uint64_t> rounds_done{0};

/// Made when first needed, by one thread, and kept until the program ends.
template <class T>
class lazy {
public:
  template <class... Ts>
  T& get(Ts&&... xs) {
    std::lock_guard guard{lock_};
    if (!value_)
      value_.emplace(std::forward<Ts>(xs)...);
    return *value_;
  }

  /// Null if it was never needed.
  T* peek() {
    return value_ ? &*value_ : nullptr;
  }

private:
  std::mutex lock_;
  std::optional<T> value_;
};

// -- the subjects -------------------------------------------------------------

struct worlds {
  workload work;
  lazy<striped_mutexes> mutexes;
  lazy<striped_maps<1024>> map_1k;
  lazy<striped_maps<65'536>> map_64k;
  lazy<core_world> core;
  lazy<actor_world> actors;
  lazy<server_world> servers[2];
#ifdef PAWL_BENCH_ROCKSDB
  lazy<rocksdb_locks> rocksdb;
#endif
};

template <class Maps>
std::uint64_t map_pairs(Maps& maps, term_stream& terms, std::uint64_t rounds) {
  std::uint64_t done = 0;
  for (; rounds > 0; --rounds) {
    const auto& term = terms.next();
    if (auto* stripe = maps.lock(term, 2))
      done += Maps::release(*stripe, term);
  }
  return done;
}

std::uint64_t mutex_pairs(striped_mutexes& mutexes, term_stream& terms,
                          std::uint64_t rounds) {
  std::uint64_t done = 0;
  for (; rounds > 0; --rounds) {
    std::lock_guard guard{mutexes.of(terms.next_index())};
    benchmark::DoNotOptimize(++done);
  }
  return done;
}

#ifdef PAWL_BENCH_ROCKSDB
std::uint64_t rocksdb_pairs(rocksdb_locks& db, term_stream& terms,
                            std::uint64_t rounds) {
  auto mine = db.begin();
  std::uint64_t done = 0;
  for (; rounds > 0; --rounds) {
    const auto& term = terms.next();
    done += rocksdb_locks::lock(*mine, term);
    rocksdb_locks::release(*mine, term);
  }
  return done;
}
#endif

/// Registers `pairs(terms, rounds, threads) -> rounds that were whole`, with
/// `prepare` called before the clock runs.
template <class Prepare, class Pairs>
void subject(const workload& work, const std::string& name, Prepare prepare,
             Pairs pairs) {
  for (auto set : {workload::size, workload::hot})
    benchmark::RegisterBenchmark(
      fmt::format("{}/{}", name, set).c_str(),
      [&work, set, prepare, pairs](benchmark::State& state) {
        prepare(state.threads());
        term_stream terms{work, set, state.threads(), state.thread_index()};
        // All rounds at once: an actor is woken once, not for every pair.
        auto rounds = state.max_iterations;
        while (state.KeepRunningBatch(rounds)) {
          auto asked = static_cast<std::uint64_t>(rounds);
          rounds_asked += asked;
          rounds_done += pairs(terms, asked, state.threads());
        }
      })
      ->Threads(1)
      ->Threads(2)
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

void register_all(worlds& all) {
  auto& work = all.work;
  auto with_core = [&](int) { all.core.get(work); };
  auto with_actors = [&](int) { all.actors.get(work); };
  subject(work, "pawl_core", with_core,
          [&](term_stream& terms, std::uint64_t n, int) {
            return all.core.get(work).pairs(terms, n);
          });
  auto actors = [&](const char* name, kind how) {
    subject(work, name, with_actors,
            [&, how](term_stream& terms, std::uint64_t n, int) {
              std::uint64_t ignored = 0;
              return all.actors.get(work).pairs(how, terms, n, ignored);
            });
  };
  actors("pawl_wait", kind::wait);
  actors("pawl_then", kind::then);
  actors("pawl_activity", kind::activity);
  subject(
    work, "mutex", [&](int) { all.mutexes.get(); },
    [&](term_stream& terms, std::uint64_t n, int) {
      return mutex_pairs(all.mutexes.get(), terms, n);
    });
  subject(
    work, "map_1k", [&](int) { all.map_1k.get(work); },
    [&](term_stream& terms, std::uint64_t n, int) {
      return map_pairs(all.map_1k.get(work), terms, n);
    });
  subject(
    work, "map_64k", [&](int) { all.map_64k.get(work); },
    [&](term_stream& terms, std::uint64_t n, int) {
      return map_pairs(all.map_64k.get(work), terms, n);
    });
#ifdef PAWL_BENCH_ROCKSDB
  subject(
    work, "rocksdb", [&](int) { all.rocksdb.get(work); },
    [&](term_stream& terms, std::uint64_t n, int) {
      return rocksdb_pairs(all.rocksdb.get(work), terms, n);
    });
#endif
  auto server = [&](int clients) -> server_world& {
    auto count = static_cast<std::size_t>(clients);
    return all.servers[count - 1].get(work, count);
  };
  subject(
    work, "caf_server", [server](int clients) { server(clients); },
    [server](term_stream& terms, std::uint64_t n, int clients) {
      return server(clients).pairs(terms, n);
    });
}

// -- checks -------------------------------------------------------------------

/// Every table is to hold what it held before, and nothing else.
bool check_work(worlds& all) {
  auto good = rounds_asked == rounds_done;
  fmt::print("\ncheck: {} pairs, {} of them granted and given back\n",
             rounds_asked.load(), rounds_done.load());
  auto left = [&](const char* what, std::size_t size) {
    fmt::print("check: {} holds {} terms\n", what, size);
    good = good && size == workload::size;
  };
  if (auto* x = all.core.peek())
    left("pawl_core", x->rows());
  if (auto* x = all.actors.peek())
    left("pawl", x->rows());
  if (auto* x = all.map_1k.peek())
    left("map_1k", x->size());
  if (auto* x = all.map_64k.peek())
    left("map_64k", x->size());
  for (auto& server : all.servers)
    if (auto* x = server.peek())
      left("caf_server", x->size());
  if (!good)
    fmt::print("check: FAILED\n");
  return good;
}

bool check_allocations(worlds& all) {
  if (!pools_are_on) {
    fmt::print("allocations: not counted under a sanitizer\n");
    return true;
  }
  auto good = true;
  term_stream terms{all.work, workload::size, 1, 0};
  auto count = [&](const char* name, auto pairs) {
    pairs(std::uint64_t{2 * workload::sequence}); // until the state is steady
    auto found = pairs(std::uint64_t{workload::sequence});
    fmt::print("allocations: {} in {} pairs of {}\n", found, workload::sequence,
               name);
    // A session and a table may grow now and then; a lock may not.
    good = good && found < workload::sequence / 1000;
  };
  count("pawl_core", [&](std::uint64_t n) {
    auto before = allocations;
    all.core.get(all.work).pairs(terms, n);
    return allocations - before;
  });
  auto in_actors = [&](kind how) {
    return [&, how](std::uint64_t n) {
      std::uint64_t found = 0;
      all.actors.get(all.work).pairs(how, terms, n, found);
      return found;
    };
  };
  count("pawl_wait", in_actors(kind::wait));
  count("pawl_then", in_actors(kind::then));
  count("pawl_activity", in_actors(kind::activity));
  if (!good)
    fmt::print("allocations: FAILED, pawl allocates per lock\n");
  return good;
}

// -- summary ------------------------------------------------------------------

constexpr const char* subjects[]
  = {"pawl_core", "pawl_wait", "pawl_then", "pawl_activity", "mutex",
     "map_1k",    "map_64k",   "rocksdb",   "caf_server"};

struct column {
  const char* title;
  std::size_t set;
  int threads;
};

constexpr column columns[] = {{"100k, 1 thread", workload::size, 1},
                              {"100k, 2 threads", workload::size, 2},
                              {"100 hot, 1 thread", workload::hot, 1},
                              {"100 hot, 2 threads", workload::hot, 2}};

using time_kind = keeping_reporter::time;

spread measured(const keeping_reporter& seen, std::string_view name,
                const column& where, time_kind what) {
  if (name != "map")
    return seen.ns(fmt::format("{}/{}", name, where.set), where.threads, what);
  // The better one.
  auto few = measured(seen, "map_1k", where, what);
  auto many = measured(seen, "map_64k", where, what);
  return many.median == 0 || (few.median > 0 && few.median < many.median)
           ? few
           : many;
}

void print_header(std::string_view title) {
  fmt::print("\n{:<26}", title);
  for (const auto& x : columns)
    fmt::print(" {:>21}", x.title);
  fmt::print("\n");
}

void print_times(const keeping_reporter& seen, std::string_view title,
                 time_kind what) {
  print_header(title);
  for (const auto* name : subjects) {
    fmt::print("{:<26}", name);
    for (const auto& x : columns) {
      auto ns = measured(seen, name, x, what);
      fmt::print(" {:>21}", ns.median > 0
                              ? fmt::format("{:.0f} [{:.0f}-{:.0f}]", ns.median,
                                            ns.least, ns.most)
                              : "-");
    }
    fmt::print("\n");
  }
}

/// How many times slower `slow` is than `fast`, and what is hoped for.
void print_ratio(const keeping_reporter& seen, const char* slow,
                 const char* fast, time_kind what, std::string_view aim) {
  fmt::print("{:<26}", fmt::format("{} / {}", slow, fast));
  for (const auto& x : columns) {
    auto a = measured(seen, slow, x, what);
    auto b = measured(seen, fast, x, what);
    fmt::print(" {:>21}", a.median > 0 && b.median > 0
                            ? fmt::format("{:.2f}", a.median / b.median)
                            : "-");
  }
  fmt::print("  {}\n", aim);
}

void print_ratios(const keeping_reporter& seen, std::string_view title,
                  time_kind what) {
  print_header(title);
  for (const auto* x : {"pawl_core", "pawl_wait", "pawl_then"})
    print_ratio(seen, x, "map", what, "aim: at most 1.2");
  for (const auto* x : {"pawl_core", "pawl_wait", "pawl_then"})
    print_ratio(seen, "rocksdb", x, what, "aim: at least 4");
  for (const auto* x : {"pawl_wait", "pawl_then", "pawl_activity"})
    print_ratio(seen, "caf_server", x, what, "aim: at least 10");
}

/// On a busy machine the wall clock measures the neighbours; the processor time
/// still tells, though their traces in the caches are in it.
void print_summary(const keeping_reporter& seen, double load_before) {
  print_times(seen, "wall ns a pair", time_kind::wall);
  print_times(seen, "processor ns a pair", time_kind::processor);
  print_ratios(seen, "ratio, wall", time_kind::wall);
  print_ratios(seen, "ratio, processor", time_kind::processor);
  fmt::print("\nmedians [least-most]; map: the better one of the two\n"
             "machine: {}\nload: {:.1f} before, {:.1f} after\n",
             machine(), load_before, load());
}

} // namespace

int main(int argc, char** argv) {
  compat::init_meta<caf::id_block::pawl_actors, caf::id_block::pawl_bench>();
  // What the command line says comes later and wins.
  std::vector<char*> args{argv[0]};
  std::string defaults[]
    = {"--benchmark_repetitions=7", "--benchmark_min_time=0.2",
       "--benchmark_enable_random_interleaving=true"};
  for (auto& x : defaults)
    args.push_back(x.data());
  args.insert(args.end(), argv + 1, argv + argc);
  auto count = static_cast<int>(args.size());
  benchmark::Initialize(&count, args.data());
  if (benchmark::ReportUnrecognizedArguments(count, args.data()))
    return 2;
#ifndef PAWL_BENCH_ROCKSDB
  fmt::print("built without RocksDB: no comparison with it\n");
#endif
  auto load_before = load();
  worlds all;
  register_all(all);
  keeping_reporter seen;
  benchmark::RunSpecifiedBenchmarks(&seen);
  print_summary(seen, load_before);
  auto good = check_work(all);
  good = check_allocations(all) && good;
  return good ? 0 : 1;
}
