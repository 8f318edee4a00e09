// A field device: a Modbus/TCP server on loopback whose input registers move
// and whose holding registers are setpoints of the process behind them.
//
// One thread, one select loop: several clients at once, each request answered
// in full before the next is looked at.

#include "child.hpp"
#include "clock.hpp"
#include "process_model.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <modbus/modbus.h>
#include <sys/select.h>
#include <unistd.h>

namespace {

using namespace scada;

struct options {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::uint16_t registers = 60;
  std::uint16_t setpoints = 4;
  std::uint64_t seed = 1;
  int parent = 0;
};

class device_server {
public:
  explicit device_server(const options& opts)
    : model_(opts.registers, opts.setpoints, opts.seed),
      context_(modbus_new_tcp(opts.host.c_str(), opts.port)),
      mapping_(modbus_mapping_new(0, 0, opts.setpoints, opts.registers)) {
    std::fill_n(mapping_->tab_registers, opts.setpoints,
                process_model::initial_setpoint);
    move_process();
  }

  ~device_server() {
    for (auto client : clients_)
      close(client);
    if (listener_ >= 0)
      close(listener_);
  }

  bool listen() {
    // A client that sends half a request must not hold up the others.
    modbus_set_indication_timeout(context_.get(), 0, 200'000);
    listener_ = modbus_tcp_listen(context_.get(), 16);
    return listener_ >= 0;
  }

  void run() {
    while (!stop_requested()) {
      fd_set ready;
      FD_ZERO(&ready);
      FD_SET(listener_, &ready);
      auto highest = listener_;
      for (auto client : clients_) {
        FD_SET(client, &ready);
        highest = std::max(highest, client);
      }
      timeval patience{0, 20'000};
      auto count = select(highest + 1, &ready, nullptr, nullptr, &patience);
      move_process();
      if (count <= 0)
        continue;
      std::erase_if(clients_, [&](int client) {
        return FD_ISSET(client, &ready) && !answer(client);
      });
      if (FD_ISSET(listener_, &ready))
        accept();
    }
  }

private:
  /// Serves one request; false when the client has gone or talks nonsense.
  bool answer(int client) {
    std::uint8_t query[MODBUS_TCP_MAX_ADU_LENGTH];
    modbus_set_socket(context_.get(), client);
    auto size = modbus_receive(context_.get(), query);
    if (size == 0) // not for us
      return true;
    if (size > 0
        && modbus_reply(context_.get(), query, size, mapping_.get()) >= 0)
      return true;
    close(client);
    return false;
  }

  void accept() {
    auto client = modbus_tcp_accept(context_.get(), &listener_);
    if (client >= FD_SETSIZE)
      close(client);
    else if (client >= 0)
      clients_.push_back(client);
  }

  void move_process() {
    auto now = now_ns();
    auto& map = *mapping_;
    model_.step(
      seconds(now - moved_at_),
      {map.tab_registers, static_cast<std::size_t>(map.nb_registers)});
    model_.read({map.tab_input_registers,
                 static_cast<std::size_t>(map.nb_input_registers)});
    moved_at_ = now;
  }

  struct freer {
    void operator()(modbus_t* x) const noexcept {
      modbus_free(x);
    }
    void operator()(modbus_mapping_t* x) const noexcept {
      modbus_mapping_free(x);
    }
  };

  process_model model_;
  time_ns moved_at_ = now_ns();
  std::unique_ptr<modbus_t, freer> context_;
  std::unique_ptr<modbus_mapping_t, freer> mapping_;
  int listener_ = -1;
  std::vector<int> clients_;
};

} // namespace

int main(int argc, char** argv) {
  options opts;
  CLI::App app{"A field device that speaks Modbus/TCP."};
  app.add_option("--host", opts.host, "Address to listen on");
  app.add_option("--port", opts.port, "Port to listen on")->required();
  app.add_option("--registers", opts.registers, "Input registers that move")
    ->check(CLI::Range(1, 1000));
  app.add_option("--setpoints", opts.setpoints, "Holding registers")
    ->check(CLI::Range(1, 1000));
  app.add_option("--seed", opts.seed, "Seed of the process behind them");
  app.add_option("--parent", opts.parent, "Process id to die with")->group("");
  CLI11_PARSE(app, argc, argv);
  if (!die_with_parent(opts.parent))
    return 1;
  catch_stop_signals();
  device_server server{opts};
  if (!server.listen()) {
    fmt::print(stderr, "port {} of {}: {}\n", opts.port, opts.host,
               modbus_strerror(errno));
    return 1;
  }
  server.run();
}
