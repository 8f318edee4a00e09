// What a run consists of: its processes, their command lines and their ports.
// Computed from the options of the command line; starts nothing.

#pragma once

#include "plant.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace scada {

struct run_options {
  double duration = 30;
  unsigned nodes = 3;
  unsigned devices = 6;
  std::uint16_t registers = 60;
  std::uint16_t setpoints = 4;
  std::size_t operators = 2;
  unsigned poll_milliseconds = 50;
  std::uint16_t port = 21000;
  std::uint64_t seed = 1;
  std::filesystem::path data; // empty: a temporary directory

  static constexpr unsigned max_devices = 60;
  static constexpr unsigned max_nodes = 9;
};

struct process_plan {
  std::string name;
  std::vector<std::string> command;
  std::vector<std::uint16_t> ports;
};

struct run_plan {
  plant_options plant;
  std::vector<process_plan> devices;
  std::vector<process_plan> nodes;
};

inline constexpr const char* loopback = "127.0.0.1";

/// Devices use the ports from `port` on, locks those from `port` + 100 on and
/// tags those from `port` + 200 on. `programs` is where the programs lie.
run_plan make_plan(const run_options& options,
                   const std::filesystem::path& programs,
                   const std::filesystem::path& data);

} // namespace scada
