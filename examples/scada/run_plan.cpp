#include "run_plan.hpp"

#include <fmt/format.h>

#include <unistd.h>

namespace scada {

namespace {

constexpr unsigned lock_ports = 100;
constexpr unsigned tag_ports = 200; // a station adds 100 to its lock port

std::string at(std::uint16_t port) {
  return fmt::format("{}:{}", loopback, port);
}

std::string node_name(unsigned index) {
  return fmt::format("n{}", index + 1);
}

/// A command line in the making.
class command_line {
public:
  explicit command_line(const std::filesystem::path& program)
    : words_{program.string(), "--parent", std::to_string(getpid())} {
    // nop
  }

  template <class T>
  command_line& option(const char* name, const T& value) {
    words_.emplace_back(name);
    words_.push_back(fmt::format("{}", value));
    return *this;
  }

  [[nodiscard]] std::vector<std::string> words() const {
    return words_;
  }

private:
  std::vector<std::string> words_;
};

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ","));
}

} // namespace

run_plan make_plan(const run_options& options,
                   const std::filesystem::path& programs,
                   const std::filesystem::path& data) {
  auto port = [&](unsigned offset) {
    return static_cast<std::uint16_t>(options.port + offset);
  };
  run_plan plan;
  plan.plant.inputs = options.registers;
  plan.plant.setpoints = options.setpoints;
  plan.plant.operators = options.operators;
  std::vector<std::string> devices;
  for (unsigned i = 0; i < options.devices; ++i) {
    plan.plant.devices.push_back({loopback, port(i)});
    devices.push_back(at(port(i)));
    auto command = command_line{programs / "scada-device"}
                     .option("--port", port(i))
                     .option("--registers", options.registers)
                     .option("--setpoints", options.setpoints)
                     .option("--seed", options.seed + i);
    plan.devices.push_back(
      {fmt::format("device{}", i + 1), command.words(), {port(i)}});
  }
  for (unsigned i = 0; i < options.nodes; ++i) {
    std::vector<std::string> peers;
    for (unsigned j = 0; j < options.nodes; ++j)
      if (j != i)
        peers.push_back(node_name(j) + "=" + at(port(lock_ports + j)));
    auto name = node_name(i);
    auto command = command_line{programs / "scada-station"}
                     .option("--name", name)
                     .option("--listen", at(port(lock_ports + i)))
                     .option("--devices", joined(devices))
                     .option("--registers", options.registers)
                     .option("--setpoints", options.setpoints)
                     .option("--operators", options.operators)
                     .option("--poll", options.poll_milliseconds)
                     .option("--data", (data / name).string());
    if (!peers.empty())
      command.option("--peers", joined(peers));
    plan.nodes.push_back(
      {name, command.words(), {port(lock_ports + i), port(tag_ports + i)}});
  }
  return plan;
}

} // namespace scada
