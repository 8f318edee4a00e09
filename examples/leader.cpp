// Failover in two terminals:
//
//   leader --pawl.name=a --pawl.listen=127.0.0.1:7001
//          --pawl.peers=b=127.0.0.1:7002
//   leader --pawl.name=b --pawl.listen=127.0.0.1:7002
//          --pawl.peers=a=127.0.0.1:7001
//
// One of them runs the service. Kill it (kill -9 will do), stop it with Ctrl-C,
// start it again: the other takes over, and keeps it.

#include <pawl/pawl.hpp>

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

namespace {

using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

struct leader_config : pawl::config {
  leader_config() {
    opt_group{custom_options_, "global"}.add(
      seconds, "seconds", "ends after so many seconds; 0: only with Ctrl-C");
  }
  std::uint32_t seconds = 0;
};

/// Must run in one place at a time. What it writes it would mark with `epoch`.
caf::behavior service(caf::event_based_actor* self, std::string node,
                      pawl::fencing_token epoch) {
  fmt::print("{}: the service starts, epoch {}\n", node, epoch);
  pawl::compat::send(self, self, std::uint32_t{1});
  return {[=](std::uint32_t round) {
    fmt::print("{}: at work, round {}\n", node, round);
    pawl::compat::delayed_send(self, 1s, round + 1);
  }};
}

/// As this node knows it: the name of the node that holds the term.
std::string who_leads(const pawl::scope& services) {
  for (const auto& x : services.holders("service/one"))
    return x.home;
  return "nobody";
}

/// Waits a moment; whether Ctrl-C or SIGTERM came.
bool interrupted(const sigset_t& signals) {
  timespec moment{0, 50'000'000};
  return ::sigtimedwait(&signals, nullptr, &moment) > 0;
}

void run(const pawl::scope& services, const sigset_t& signals,
         clock_type::time_point end) {
  auto name = services.node();
  auto part = pawl::lead(
    services, "service/one",
    [name](caf::actor_system& system, pawl::fencing_token epoch) -> caf::actor {
      return system.spawn(service, name, epoch);
    });
  std::string leader;
  while (clock_type::now() < end && !interrupted(signals))
    if (auto now = who_leads(services); now != leader) {
      leader = now;
      fmt::print("{}: {} leads\n", name, leader);
    }
  part.stop();
}

} // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  leader_config cfg;
  if (auto why = cfg.read(argc, argv)) {
    fmt::print(stderr, "{}\n", *why);
    return 2;
  }
  if (pawl::compat::helptext_printed(cfg))
    return 0;
  // Before there are threads: all of them leave these signals to `interrupted`.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  auto end = cfg.seconds == 0
               ? clock_type::time_point::max()
               : clock_type::now() + std::chrono::seconds{cfg.seconds};
  try {
    caf::actor_system system{cfg};
    pawl::node here{system, cfg};
    run(here.open("services"), signals, end);
  } catch (const pawl::node_error& why) {
    fmt::print(stderr, "{}\n", why.what());
    return 2;
  }
  fmt::print("{}: the end\n", cfg.name);
}
