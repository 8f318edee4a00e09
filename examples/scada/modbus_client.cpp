#include "modbus_client.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <modbus/modbus.h>

namespace scada {

modbus_client::modbus_client(device_address address)
  : address_(std::move(address)) {
  // nop
}

result<std::vector<std::uint16_t>> modbus_client::read_inputs(
  std::uint16_t first, std::uint16_t count) {
  return read(modbus_read_input_registers, "reading input registers", first,
              count);
}

result<std::vector<std::uint16_t>> modbus_client::read_holdings(
  std::uint16_t first, std::uint16_t count) {
  return read(modbus_read_registers, "reading holding registers", first, count);
}

result<done> modbus_client::write_holding(std::uint16_t address,
                                          std::uint16_t value) {
  if (auto connected = connect(); !connected)
    return connected;
  if (modbus_write_register(context_.get(), address, value) != 1)
    return broken("writing a holding register");
  return done{};
}

// -- private ------------------------------------------------------------------

void modbus_client::closer::operator()(_modbus* context) const noexcept {
  modbus_close(context);
  modbus_free(context);
}

result<done> modbus_client::connect() {
  if (context_)
    return done{};
  if (now_ns() < next_try_)
    return trouble{fmt::format("{}:{} does not answer; it is tried again soon",
                               address_.host, address_.port)};
  next_try_ = now_ns() + retry_after;
  context_.reset(modbus_new_tcp(address_.host.c_str(), address_.port));
  if (!context_)
    return trouble{fmt::format("{} is no address", address_.host)};
  modbus_set_response_timeout(context_.get(), 0, response_timeout_ms * 1000);
  if (modbus_connect(context_.get()) != 0)
    return broken("connecting");
  return done{};
}

trouble modbus_client::broken(const char* doing) {
  auto why = fmt::format("{}:{}: {}: {}", address_.host, address_.port, doing,
                         modbus_strerror(errno));
  context_.reset();
  return trouble{std::move(why)};
}

// One request takes at most 125 registers (MODBUS_MAX_READ_REGISTERS).
result<std::vector<std::uint16_t>> modbus_client::read(reader how,
                                                       const char* doing,
                                                       std::uint16_t first,
                                                       std::uint16_t count) {
  if (auto connected = connect(); !connected)
    return trouble{connected.error()};
  std::vector<std::uint16_t> values(count);
  for (int at = 0; at < count;) {
    auto ask = std::min(count - at, int{MODBUS_MAX_READ_REGISTERS});
    if (how(context_.get(), first + at, ask, values.data() + at) != ask)
      return broken(doing);
    at += ask;
  }
  return values;
}

} // namespace scada
