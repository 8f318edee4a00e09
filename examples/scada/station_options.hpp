// The command line of a station node.

#pragma once

#include "plant.hpp"
#include "replication.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace scada {

/// A node's tags listen on the same host as its locks, that much above.
inline constexpr std::uint16_t tag_port_offset = 100;

struct station_options {
  std::string name;
  std::string listen;             // host:port, for locks
  std::vector<std::string> peers; // name=host:port, for locks
  peer_address tag_listen;
  std::vector<peer_address> tag_peers;
  plant_options plant;
  std::filesystem::path data = "scada-data";
  std::filesystem::path journal; // empty: in `data`
  unsigned poll_milliseconds = 50;
  double duration = 0; // seconds; 0: until it is told to stop
  int parent = 0;
};

/// Parses the command line; if there is nothing to run (--help, or an error,
/// which is then printed), returns false with the exit code in `code`.
bool parse(int argc, char** argv, station_options& out, int& code);

} // namespace scada
