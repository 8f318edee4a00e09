// A connection to one field device by Modbus/TCP. Blocks while it talks, so it
// belongs to a thread or a detached actor, and to one only.
//
// Connects when it is first used, and again after an error, but not more often
// than every `retry_after`. No call throws; each says in a sentence what went
// wrong.

#pragma once

#include "clock.hpp"
#include "plant.hpp"
#include "result.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct _modbus; // libmodbus' own name for modbus_t

namespace scada {

class modbus_client {
public:
  static constexpr time_ns retry_after = 200'000'000;
  static constexpr unsigned response_timeout_ms = 500;

  explicit modbus_client(device_address address);

  result<std::vector<std::uint16_t>> read_inputs(std::uint16_t first,
                                                 std::uint16_t count);

  result<std::vector<std::uint16_t>> read_holdings(std::uint16_t first,
                                                   std::uint16_t count);

  result<done> write_holding(std::uint16_t address, std::uint16_t value);

private:
  struct closer {
    void operator()(_modbus* context) const noexcept;
  };

  result<done> connect();
  trouble broken(const char* doing);

  using reader = int (*)(_modbus*, int, int, std::uint16_t*);
  result<std::vector<std::uint16_t>> read(reader how, const char* doing,
                                          std::uint16_t first,
                                          std::uint16_t count);

  device_address address_;
  std::unique_ptr<_modbus, closer> context_;
  time_ns next_try_ = 0;
};

} // namespace scada
