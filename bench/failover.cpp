// How long until the next leader, when one dies or falls silent?
//
// Two processes (or more) lead the same service by lock (pawl::lead): one has
// it, the others wait in line. Then, --times over:
//
//   kill    the leader gets SIGKILL: from the moment before the signal to the
//           moment when the next one's service is made. Its connection closes
//   freeze  the leader gets SIGSTOP: its link falls silent, and that it is gone
//           is known by --node-timeout alone, after which it is killed
//
// Whoever is gone is started again under its name and stands in line before the
// next round. Moments are taken from the monotonic clock that all processes
// share. `beyond_timeout` is what comes on top of the node-timeout.
//
// The check: every round has a next leader, another one, with a larger token.

#include "bench/measure.hpp"
#include "test/support/child.hpp"
#include "test/support/free_port.hpp"

#include <pawl/pawl.hpp>

#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

namespace bench {
namespace {

using namespace std::chrono_literals;
using pawl::testing::child;
using pawl::testing::free_port;

constexpr auto service_name = "service/one";
constexpr auto patience = 15s;

struct plan {
  std::size_t nodes = 2;
  std::size_t times = 20;
  std::size_t freezes = 3;
  std::size_t node_timeout_ms = 2'000;
  // -- of a node --------------------------------------------------------------
  std::string name;
  std::string listen;
  std::string peers;
};

// -- one node -----------------------------------------------------------------

void say(const std::string& x) {
  std::cout << x << std::endl;
}

caf::behavior service(caf::event_based_actor*) {
  return {[](int) {
    // nop
  }};
}

int run_node(const plan& what) {
  pawl::config cfg;
  cfg.name = what.name;
  cfg.listen = what.listen;
  cfg.peers = what.peers;
  cfg.node_timeout = std::chrono::milliseconds{what.node_timeout_ms};
  if (auto why = cfg.read())
    throw std::runtime_error(*why);
  caf::actor_system system{cfg};
  pawl::node here{system, cfg};
  auto services = here.open("services");
  while (!services.ready() || services.ready_nodes().size() != what.nodes)
    std::this_thread::sleep_for(1ms);
  pawl::leadership_options options;
  options.settle = 0ms;
  auto part = pawl::lead(
    services, service_name,
    [](caf::actor_system& sys, pawl::fencing_token epoch) {
      say(fmt::format("leads {} {}", now_ns(), epoch));
      return sys.spawn(service);
    },
    options);
  say("ready");
  for (std::string line; std::getline(std::cin, line);)
    // How many stand in line here, and how many nodes are seen.
    say(fmt::format("line {} {}", services.waiters(service_name).size(),
                    services.ready_nodes().size()));
  part.stop();
  here.stop();
  return 0;
}

// -- the driver ---------------------------------------------------------------

class run {
public:
  run(const plan& what, std::string program)
    : what_(what), program_(std::move(program)) {
    for (std::size_t i = 0; i < what.nodes; ++i) {
      auto name = fmt::format("n{}", i);
      listen_[name] = fmt::format("127.0.0.1:{}", free_port());
      peers_ += (i == 0 ? "" : ",") + name + "=" + listen_[name];
    }
    for (const auto& [name, unused] : listen_)
      start(name);
    leader_ = next_leader({}).name;
  }

  /// Takes the leader away; nanoseconds until the next one leads.
  std::int64_t round(int signal) {
    all_stand_in_line();
    auto gone = leader_;
    auto since = now_ns();
    nodes_[gone]->signal(signal);
    auto next = next_leader(gone);
    if (next.token <= token_)
      throw std::runtime_error("a later leader has no larger token");
    token_ = next.token;
    leader_ = next.name;
    nodes_[gone]->kill();
    start(gone);
    return next.at - since;
  }

private:
  struct leads {
    std::string name;
    std::int64_t at = 0;
    pawl::fencing_token token = 0;
  };

  void start(const std::string& name) {
    said_[name].clear();
    ready_.erase(name);
    nodes_[name] = std::make_unique<child>(std::vector<std::string>{
      program_, "--nodes", std::to_string(what_.nodes), "--node-timeout",
      std::to_string(what_.node_timeout_ms), "--name", name, "--listen",
      listen_[name], "--peers", peers_});
  }

  /// The next line of a node that says `word`; what else it says is kept.
  std::string hear(const std::string& name, const std::string& word,
                   std::chrono::milliseconds limit) {
    auto& kept = said_[name];
    for (auto i = kept.begin(); i != kept.end(); ++i)
      if (i->starts_with(word)) {
        auto result = *i;
        kept.erase(i);
        return result;
      }
    for (;;) {
      auto x = nodes_[name]->hear(limit);
      if (x.starts_with(word))
        return x;
      kept.push_back(x);
    }
  }

  /// Waits for whoever leads next, other than `gone`.
  leads next_leader(const std::string& gone) {
    auto end = steady::now() + patience;
    while (steady::now() < end)
      for (const auto& [name, unused] : listen_) {
        if (name == gone)
          continue;
        try {
          std::istringstream words{hear(name, "leads", 1ms)};
          leads result{name};
          std::string word;
          words >> word >> result.at >> result.token;
          return result;
        } catch (const std::runtime_error&) {
          // Not this one, or not yet.
        }
      }
    throw std::runtime_error("there is no next leader");
  }

  void all_stand_in_line() {
    for (const auto& [name, unused] : listen_)
      if (!ready_.contains(name)) {
        (void) hear(name, "ready", patience);
        ready_.insert(name);
      }
    auto end = steady::now() + patience;
    while (!in_line()) {
      if (steady::now() > end)
        throw std::runtime_error("not all stand in line");
      std::this_thread::sleep_for(2ms);
    }
  }

  /// They stand on the node that their requests ask first, whoever leads.
  bool in_line() {
    std::size_t standing = 0;
    for (const auto& [name, unused] : listen_) {
      nodes_[name]->tell("?");
      std::istringstream words{hear(name, "line", patience)};
      std::string word;
      std::size_t here = 0;
      std::size_t seen = 0;
      words >> word >> here >> seen;
      if (seen != what_.nodes)
        return false;
      standing = std::max(standing, here);
    }
    return standing == what_.nodes - 1;
  }

  const plan& what_;
  const std::string program_;
  std::string peers_;
  std::map<std::string, std::string> listen_;
  std::map<std::string, std::unique_ptr<child>> nodes_;
  std::map<std::string, std::vector<std::string>> said_;
  std::set<std::string> ready_;
  std::string leader_;
  pawl::fencing_token token_ = 0;
};

void measure(const std::string& how, int signal, std::size_t times,
             const plan& what, const std::string& program, report& out) {
  histogram seen;
  auto good = true;
  json figures;
  auto timeout = static_cast<std::int64_t>(what.node_timeout_ms) * 1'000'000;
  try {
    run x{what, program};
    for (std::size_t i = 0; i < times; ++i)
      seen.record(x.round(signal));
  } catch (const std::exception& why) {
    figures["trouble"] = why.what();
    good = false;
  }
  figures.update(seen.figures());
  if (signal == SIGSTOP)
    figures["beyond_timeout_us"]
      = figures["p50_us"].get<double>() - static_cast<double>(timeout) / 1e3;
  out.row(how,
          {{"nodes", what.nodes},
           {"times", times},
           {"node_timeout_ms", what.node_timeout_ms}},
          std::move(figures), good);
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"From the end of a leader to the next one"};
  bench::plan what;
  auto tiny = false;
  bench::report out{"failover"};
  app.add_option("--nodes", what.nodes, "processes");
  app.add_option("--times", what.times, "leaders that are killed");
  app.add_option("--freezes", what.freezes, "leaders that are frozen");
  app.add_option("--node-timeout", what.node_timeout_ms, "in ms");
  app.add_flag("--tiny", tiny, "only that it works");
  auto* node = app.add_option_group("node", "what a node is told");
  node->add_option("--name", what.name);
  node->add_option("--listen", what.listen);
  node->add_option("--peers", what.peers);
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  if (tiny) {
    what.times = 2;
    what.freezes = 1;
    what.node_timeout_ms = 400;
  }
  pawl::compat::init_meta<>();
  if (!what.name.empty())
    return bench::run_node(what);
  auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (what.times != 0)
    bench::measure("kill", SIGKILL, what.times, what, program, out);
  if (what.freezes != 0)
    bench::measure("freeze", SIGSTOP, what.freezes, what, program, out);
  return out.status();
}
