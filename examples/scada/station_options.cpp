#include "station_options.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <string_view>

namespace scada {

namespace {

/// Pawl checks names; here it is only about where the tags go.
peer_address parse_address(std::string_view text) {
  auto where = text.substr(text.find('=') + 1);
  auto colon = where.rfind(':');
  peer_address result;
  if (colon != std::string_view::npos) {
    result.host = where.substr(0, colon);
    auto first = where.data() + colon + 1;
    auto last = where.data() + where.size();
    auto [end, error] = std::from_chars(first, last, result.port);
    if (error == std::errc{} && end == last && result.port != 0
        && !result.host.empty())
      return result;
  }
  throw CLI::ValidationError{"'" + std::string{text} + "' has no host:port"};
}

peer_address tag_address(std::string_view text) {
  auto result = parse_address(text);
  if (result.port + tag_port_offset > 65535)
    throw CLI::ValidationError{"'" + std::string{text}
                               + "' leaves no port for tags"};
  result.port += tag_port_offset;
  return result;
}

} // namespace

bool parse(int argc, char** argv, station_options& out, int& code) {
  std::vector<std::string> devices;
  CLI::App app{
    "A node of a SCADA station: runs the services whose locks it "
    "gets. One JSON object per line on stdout says how it is doing."};
  app.add_option("--name", out.name, "Name of this node")->required();
  app
    .add_option("--listen", out.listen,
                "host:port for locks; tags go by the port "
                "100 above")
    ->required();
  app.add_option("--peers", out.peers, "The other nodes: name=host:port,...")
    ->delimiter(',');
  app.add_option("--devices", devices, "Modbus/TCP devices: host:port,...")
    ->delimiter(',')
    ->required();
  app.add_option("--registers", out.plant.inputs,
                 "Input registers of each device");
  app.add_option("--setpoints", out.plant.setpoints,
                 "Holding registers of each device");
  app.add_option("--operators", out.plant.operators, "Operator sessions");
  app.add_option("--data", out.data, "Directory for the archive");
  app.add_option("--journal", out.journal,
                 "File that does not exist yet; default: DATA/journal");
  app.add_option("--poll", out.poll_milliseconds,
                 "Milliseconds between two polls of a device");
  app.add_option("--duration", out.duration,
                 "Seconds to run; 0: until SIGTERM");
  app.add_option("--parent", out.parent, "Process id to die with")->group("");
  try {
    app.parse(argc, argv);
    if (out.journal.empty())
      out.journal = out.data / "journal";
    out.tag_listen = tag_address(out.listen);
    for (auto& peer : out.peers)
      out.tag_peers.push_back(tag_address(peer));
    for (auto& device : devices) {
      auto at = parse_address(device);
      out.plant.devices.push_back({at.host, at.port});
    }
  } catch (const CLI::Error& error) {
    code = app.exit(error);
    return false;
  }
  return true;
}

} // namespace scada
