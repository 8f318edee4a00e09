// The four designs of the article on elock, with pawl, one program per node.
//
//   1          one key of the pool, exclusive on every node; a lock is a
//              transaction. 10,000 clients a node in the article
//   2          the same with ten times the clients
//   3          ten keys in random order, one after the other, exclusive on
//   every
//              node; a deadlock, or a time-out, gives all back and starts anew
//   3-all      the same keys with lock_all
//   4          ten keys that nobody else uses, shared, on this node only, with
//              lock_all
//   4-each     the same one by one
//   4-writers  4, and of 100 transactions one is that of an occasional writer:
//              ten keys of the whole pool with lock_all, exclusive on every
//              node. It runs beside the client's heavy ones, which wait for it
//              when the next one is due
//
// Nodes are processes on loopback, two by default. The pool is 5 million keys;
// each key guards a cell in memory that all nodes share (design_clients.hpp).
//
// A row adds the nodes up. Latencies are of whole transactions, from the first
// ask to the last release, in design 4-writers without the occasional ones,
// which are apart. Restarts: per
// transaction. Messages: of CAF inside the nodes, and TCP segments with data
// and bytes between them, each per lock. Processor time is that of all nodes.
//
// The check: each cell was written as often as all clients together were
// granted, nobody found a writer where it was alone, nothing is left anywhere.

#include "bench/design_clients.hpp"
#include "bench/messages.hpp"
#include "test/support/child.hpp"
#include "test/support/free_port.hpp"
#include "test/support/memory.hpp"

#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include <linux/tcp.h>

namespace bench {
namespace {

using namespace std::chrono_literals;
using pawl::testing::child;
using pawl::testing::peak_memory;
using pawl::testing::free_port;

struct plan {
  std::vector<std::string> designs{"1", "3",      "3-all",
                                   "4", "4-each", "4-writers"};
  std::size_t nodes = 2;
  std::size_t threads = 1;
  std::size_t clients = 1'000;
  std::size_t pool = 5'000'000;
  std::size_t transactions = 0;
  std::size_t keys = 10;
  std::size_t patience_ms = 10'000;
  double seconds = 2;
  double warm_up = 0.5;
  // -- of a node --------------------------------------------------------------
  std::size_t number = 0;
  std::string name;
  std::string listen;
  std::string peers;
  std::string file;
};

design design_of(const std::string& x) {
  if (x == "1" || x == "2")
    return design::single;
  if (x == "3")
    return design::chain;
  if (x == "3-all")
    return design::chain_all;
  if (x == "4")
    return design::heavy;
  if (x == "4-each")
    return design::heavy_each;
  return design::mixed;
}

// -- one node -----------------------------------------------------------------

/// Segments with data, and bytes, that this process has sent over TCP.
std::pair<std::uint64_t, std::uint64_t> sent() {
  std::pair<std::uint64_t, std::uint64_t> result{0, 0};
  for (int fd = 3; fd < 1024; ++fd) {
    tcp_info x{};
    socklen_t size = sizeof(x);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &x, &size) == 0) {
      result.first += x.tcpi_data_segs_out;
      result.second += x.tcpi_bytes_acked;
    }
  }
  return result;
}

/// What the node has done so far.
json so_far() {
  json result;
  std::uint64_t locks = 0;
  std::uint64_t transactions = 0;
  std::uint64_t rare = 0;
  std::uint64_t deadlocks = 0;
  std::uint64_t timeouts = 0;
  per_thread<tally>::for_each([&](const tally& x) {
    locks += x.locks.load(std::memory_order_relaxed);
    transactions += x.transactions.load(std::memory_order_relaxed);
    rare += x.rare.load(std::memory_order_relaxed);
    deadlocks += x.deadlocks.load(std::memory_order_relaxed);
    timeouts += x.timeouts.load(std::memory_order_relaxed);
  });
  auto [segments, bytes] = sent();
  result["locks"] = locks;
  result["transactions"] = transactions;
  result["rare"] = rare;
  result["deadlocks"] = deadlocks;
  result["timeouts"] = timeouts;
  result["segments"] = segments;
  result["bytes"] = bytes;
  result["messages"] = messages_so_far().value_or(0);
  result["cpu"] = cpu_seconds();
  result["at"] = static_cast<double>(now_ns()) * 1e-9;
  return result;
}

void answer(const json& x) {
  std::cout << x.dump() << std::endl;
}

struct config : pawl::config {
  explicit config(const plan& what) {
    compat::add_types<caf::id_block::bench_designs>(*this);
    compat::max_threads(*this, what.threads);
    // An actor that sends itself a message is to let the others run first.
    set("scheduler.max-throughput", std::size_t{1});
    name = what.name;
    listen = what.listen;
    peers = what.peers;
  }
};

int run_node(const plan& what) {
  config cfg{what};
  if (auto why = cfg.read())
    throw std::runtime_error(*why);
  caf::actor_system system{cfg};
  pawl::node here{system, cfg};
  auto tags = here.open("tags");
  pool cells{what.file, what.pool};
  while (!tags.ready() || tags.ready_nodes().size() != what.nodes)
    std::this_thread::sleep_for(1ms);
  stage x{tags, cells};
  x.how = design_of(what.designs.front());
  x.node = what.number;
  x.nodes = what.nodes;
  x.clients = what.clients;
  x.keys = x.how == design::single ? 1 : what.keys;
  x.limit = what.transactions;
  x.patience = std::chrono::milliseconds{what.patience_ms};
  auto finished = x.all_finished.get_future();
  std::vector<caf::actor> clients;
  for (std::size_t i = 0; i < what.clients; ++i)
    clients.push_back(system.spawn<client>(std::ref(x), i));
  answer("ready");
  json before;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "go") {
      for (const auto& c : clients)
        compat::anon_send(c, start_atom_v);
      answer("going");
    } else if (line == "begin") {
      x.timing = true;
      before = so_far();
      answer("begun");
    } else if (line == "wait") {
      finished.wait();
      answer("finished");
    } else if (line == "end") {
      x.timing = false;
      auto after = so_far();
      json result;
      for (const auto& [key, y] : after.items())
        result[key] = y.get<double>() - before.at(key).get<double>();
      histogram latency;
      histogram rare;
      per_thread<tally>::for_each([&](const tally& t) {
        latency.add(t.latency);
        rare.add(t.rare_latency);
      });
      result["latency"] = latency.pack();
      result["rare_latency"] = rare.pack();
      answer(result);
    } else if (line == "stop") {
      x.stop = true;
      auto ended = finished.wait_for(60s) == std::future_status::ready;
      auto all = so_far();
      all["ended"] = ended;
      all["faults"] = x.faults.load();
      all["peak"] = peak_memory();
      answer(all);
      if (!ended)
        std::_Exit(1);
      clients.clear();
    } else if (line == "left") {
      auto y = tags.residue();
      answer({y.rows, y.sessions, y.requests, y.waits});
    }
  }
  here.stop();
  return 0;
}

// -- the driver ---------------------------------------------------------------

/// The pool's file: in memory if there is such a place. Removed in the end.
class pool_file {
public:
  explicit pool_file(std::size_t keys) {
    std::error_code ignored;
    auto base = std::filesystem::is_directory("/dev/shm", ignored)
                  ? std::filesystem::path{"/dev/shm"}
                  : std::filesystem::temp_directory_path();
    path_ = (base / "pawl-pool-XXXXXX").string();
    int fd = ::mkstemp(path_.data());
    if (fd < 0
        || ::posix_fallocate(fd, 0, static_cast<off_t>(keys * sizeof(cell)))
             != 0)
      throw std::runtime_error("no room for the pool at " + path_);
    ::close(fd);
  }

  pool_file(const pool_file&) = delete;
  pool_file& operator=(const pool_file&) = delete;

  ~pool_file() {
    ::unlink(path_.c_str());
  }

  [[nodiscard]] const std::string& path() const noexcept {
    return path_;
  }

private:
  std::string path_;
};

class run {
public:
  run(const std::string& design, const plan& what, const std::string& program)
    : what_(what), file_(what.pool) {
    std::string peers;
    std::vector<std::string> listen;
    for (std::size_t i = 0; i < what.nodes; ++i) {
      listen.push_back(fmt::format("127.0.0.1:{}", free_port()));
      peers += fmt::format("{}n{}={}", i == 0 ? "" : ",", i, listen.back());
    }
    for (std::size_t i = 0; i < what.nodes; ++i)
      nodes_.push_back(std::make_unique<child>(
        std::vector<std::string>{program,
                                 "--designs",
                                 design,
                                 "--nodes",
                                 std::to_string(what.nodes),
                                 "--threads",
                                 std::to_string(what.threads),
                                 "--clients",
                                 std::to_string(what.clients),
                                 "--pool",
                                 std::to_string(what.pool),
                                 "--transactions",
                                 std::to_string(what.transactions),
                                 "--keys",
                                 std::to_string(what.keys),
                                 "--patience",
                                 std::to_string(what.patience_ms),
                                 "--number",
                                 std::to_string(i),
                                 "--name",
                                 fmt::format("n{}", i),
                                 "--listen",
                                 listen[i],
                                 "--peers",
                                 peers,
                                 "--file",
                                 file_.path()}));
    for (auto& x : nodes_)
      (void) x->hear(60s);
  }

  /// The figures; `good` tells whether the work is proven.
  json measure(bool& good) {
    ask("go");
    if (what_.transactions == 0)
      sleep_for(what_.warm_up);
    ask("begin");
    if (what_.transactions == 0)
      sleep_for(what_.seconds);
    else
      ask("wait", 3600s);
    auto window = ask("end");
    auto totals = ask("stop", 120s);
    good = check(totals);
    for (auto& x : nodes_)
      good = x->quit(30s) == 0 && good;
    auto result = figures(window);
    double peak = 0;
    for (const auto& x : totals)
      peak = std::max(peak, x.at("peak").get<double>());
    result["peak_mb"] = peak / 1e6;
    return result;
  }

private:
  static void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  /// Asks all, then hears all.
  std::vector<json> ask(const std::string& x,
                        std::chrono::seconds limit = 60s) {
    for (auto& y : nodes_)
      y->tell(x);
    std::vector<json> result;
    for (auto& y : nodes_)
      result.push_back(json::parse(y->hear(limit)));
    return result;
  }

  [[nodiscard]] static json figures(const std::vector<json>& window) {
    auto sum = [&](const char* key) {
      double result = 0;
      for (const auto& x : window)
        result += x.at(key).get<double>();
      return result;
    };
    histogram latency;
    histogram rare;
    double locks_per_second = 0;
    double transactions_per_second = 0;
    for (const auto& x : window) {
      latency.add(x.at("latency"));
      rare.add(x.at("rare_latency"));
      auto seconds = x.at("at").get<double>();
      locks_per_second += x.at("locks").get<double>() / seconds;
      transactions_per_second += x.at("transactions").get<double>() / seconds;
    }
    auto locks = std::max(sum("locks"), 1.0);
    auto transactions = std::max(sum("transactions"), 1.0);
    json result;
    result["locks_per_second"] = locks_per_second;
    result["transactions_per_second"] = transactions_per_second;
    result.update(latency.figures());
    result["deadlock_restarts"] = sum("deadlocks") / transactions;
    result["timeout_restarts"] = sum("timeouts") / transactions;
    result["cpu_s_per_million_locks"] = sum("cpu") * 1e6 / locks;
    if (messages_so_far())
      result["messages_per_lock"] = sum("messages") / locks;
    result["segments_per_lock"] = sum("segments") / locks;
    result["bytes_per_lock"] = sum("bytes") / locks;
    if (rare.count() != 0) {
      result["rare_of_transactions"] = sum("rare") / transactions;
      result["rare"] = rare.figures();
    }
    return result;
  }

  bool check(const std::vector<json>& totals) {
    auto good = true;
    std::uint64_t granted = 0;
    for (const auto& x : totals) {
      good = good && x.at("ended").get<bool>()
             && x.at("faults").get<std::uint64_t>() == 0;
      granted += x.at("locks").get<std::uint64_t>();
    }
    if (!good)
      for (const auto& x : totals)
        fmt::print("     {}\n", x.dump());
    pool cells{file_.path(), what_.pool};
    std::uint64_t written = 0;
    for (std::size_t i = 0; i < what_.pool; ++i) {
      written += cells[i].writes.load();
      good = good && cells[i].writer.load() == 0;
    }
    if (written != granted || granted == 0) {
      fmt::print("     {} written, {} granted\n", written, granted);
      good = false;
    }
    return good && is_empty();
  }

  bool is_empty() {
    const json nothing{0, 0, 0, 0};
    for (int i = 0; i < 500; ++i) {
      auto left = ask("left");
      if (std::all_of(left.begin(), left.end(),
                      [&](const json& x) { return x == nothing; }))
        return true;
      std::this_thread::sleep_for(10ms);
    }
    for (const auto& x : ask("left"))
      fmt::print("     left: {}\n", x.dump());
    return false;
  }

  const plan& what_;
  pool_file file_;
  std::vector<std::unique_ptr<child>> nodes_;
};

void measure(const std::string& name, plan what, const std::string& program,
             report& out) {
  if (name == "2")
    what.clients *= 10;
  json where{{"design", name},
             {"nodes", what.nodes},
             {"threads", what.threads},
             {"clients", what.clients},
             {"pool", what.pool}};
  auto good = false;
  try {
    run x{name, what, program};
    auto figures = x.measure(good);
    out.row("pawl", where, std::move(figures), good);
  } catch (const std::exception& why) {
    out.row("pawl", where, {{"trouble", why.what()}}, false);
  }
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"The article's designs, one process per node"};
  bench::plan what;
  auto tiny = false;
  bench::report out{"designs"};
  app
    .add_option("--designs", what.designs,
                "of: 1, 2, 3, 3-all, 4, 4-each, 4-writers")
    ->delimiter(',')
    ->check(
      CLI::IsMember({"1", "2", "3", "3-all", "4", "4-each", "4-writers"}));
  app.add_option("--nodes", what.nodes, "processes");
  app.add_option("--threads", what.threads, "of the actor system of each node");
  app.add_option("--clients", what.clients,
                 "of each node; design 2: ten times");
  app.add_option("--pool", what.pool, "keys");
  app.add_option("--keys", what.keys, "of a transaction of designs 3 and 4");
  app.add_option("--transactions", what.transactions,
                 "of each client; 0: by time");
  app.add_option("--patience", what.patience_ms,
                 "ms until a waiting lock of a transaction times out");
  app.add_option("--seconds", what.seconds, "measured, for each design");
  app.add_option("--warm-up", what.warm_up, "seconds before");
  app.add_flag("--tiny", tiny, "only that it works");
  auto* node = app.add_option_group("node", "what a node is told");
  node->add_option("--number", what.number);
  node->add_option("--name", what.name);
  node->add_option("--listen", what.listen);
  node->add_option("--peers", what.peers);
  node->add_option("--file", what.file);
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  if (tiny) {
    what.designs = {"1", "3", "3-all", "4", "4-each", "4-writers"};
    what.clients = 20;
    what.pool = 8'000; // few, so that they meet
    what.patience_ms = 300;
    what.seconds = 0.1;
    what.warm_up = 0.02;
  }
  pawl::compat::init_meta<caf::id_block::bench_designs>();
  if (!what.name.empty())
    return bench::run_node(what);
  auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const auto& x : what.designs)
    bench::measure(x, what, program, out);
  return out.status();
}
