// The SCADA station, all of it: starts field devices and station nodes, shows
// how they share the work by locks, kills one node, and judges the run.
// Exit code 0: everything was as it has to be. 1: it was not. 2: it could not
// start. 130: interrupted.

#include "child.hpp"
#include "port_check.hpp"
#include "run_plan.hpp"
#include "summary.hpp"
#include "supervisor.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <unistd.h>

namespace {

using namespace scada;

constexpr int bad_run = 1;
constexpr int cannot_start = 2;
constexpr int interrupted = 130;

void add_options(CLI::App& app, run_options& options) {
  app.add_option("--duration", options.duration, "Seconds to run")
    ->check(CLI::Range(10.0, 86400.0))
    ->capture_default_str();
  app.add_option("--nodes", options.nodes, "Station nodes")
    ->check(CLI::Range(1u, run_options::max_nodes))
    ->capture_default_str();
  app.add_option("--devices", options.devices, "Field devices")
    ->check(CLI::Range(1u, run_options::max_devices))
    ->capture_default_str();
  app
    .add_option("--registers", options.registers,
                "Input registers of each device")
    ->check(CLI::Range(1, 1000))
    ->capture_default_str();
  app.add_option("--operators", options.operators, "Operator sessions")
    ->check(CLI::Range(0, 50))
    ->capture_default_str();
  app
    .add_option("--poll", options.poll_milliseconds,
                "Milliseconds between two polls of a device")
    ->check(CLI::Range(1, 10000))
    ->capture_default_str();
  app
    .add_option("--port", options.port,
                "First of the 300 ports that devices and nodes use")
    ->check(CLI::Range(1024, 65000))
    ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the devices' processes")
    ->capture_default_str();
  app.add_option("--data", options.data,
                 "Directory for logs, journals and archives, to be kept");
}

/// A directory of this run's own; empty, with a sentence on stderr, if there
/// can be none.
std::filesystem::path make_directory(const run_options& options) {
  std::error_code error;
  if (options.data.empty()) {
    auto name
      = (std::filesystem::temp_directory_path(error) / "scada-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr)
      return name;
    fmt::print(stderr, "scada: cannot make a temporary directory {}\n", name);
    return {};
  }
  std::filesystem::create_directories(options.data, error);
  if (!error && std::filesystem::is_empty(options.data, error) && !error)
    return std::filesystem::absolute(options.data);
  fmt::print(stderr, "scada: --data {} is not an empty directory\n",
             options.data.string());
  return {};
}

/// Whether every port is free; says on stderr which is not.
bool ports_free(const run_plan& plan) {
  auto free = true;
  for (auto group : {&plan.devices, &plan.nodes})
    for (auto& process : *group)
      for (auto port : process.ports)
        if (auto why = why_not_free(loopback, port)) {
          fmt::print(stderr, "scada: {} (for {}); see --port\n", *why,
                     process.name);
          free = false;
        }
  return free;
}

int run(const run_options& options) {
  auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // Ports first: nothing is made, let alone started, if one is taken.
  if (!ports_free(make_plan(options, programs, {})))
    return cannot_start;
  auto data = make_directory(options);
  if (data.empty())
    return cannot_start;
  catch_stop_signals();
  auto plan = make_plan(options, programs, data);
  auto result = supervisor{options, plan, data}.run();
  auto good = !result.interrupted && judge(options, plan, result);
  if (options.data.empty() && (good || result.interrupted)) {
    std::error_code ignored;
    std::filesystem::remove_all(data, ignored);
  } else {
    fmt::print("logs and journals are in {}\n", data.string());
  }
  if (result.interrupted) {
    fmt::print("interrupted; everything has been stopped\n");
    return interrupted;
  }
  return good ? EXIT_SUCCESS : bad_run;
}

} // namespace

int main(int argc, char** argv) {
  run_options options;
  CLI::App app{"A SCADA station on this machine: field devices that speak "
               "Modbus/TCP,\nnodes that share their services by locks, and one "
               "node that is killed."};
  add_options(app, options);
  try {
    app.parse(argc, argv);
    return run(options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : cannot_start;
  } catch (const std::exception& error) {
    fmt::print(stderr, "scada: {}\n", error.what());
    return cannot_start;
  }
}
