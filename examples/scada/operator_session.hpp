// A session of an operator, who now and then changes a setpoint: the occasional
// writer. It takes the setpoint's tag exclusively on every node, so the device
// connection, wherever it runs, is out of the way; writes through to the device
// by Modbus; writes the tag; and lets go.
//
// Blocks in Modbus calls: to be spawned detached.

#pragma once

#include "modbus_client.hpp"
#include "service_actor.hpp"

#include <map>
#include <random>

namespace scada {

class operator_session : public service_actor {
public:
  operator_session(caf::actor_config& cfg, station_context& host,
                   const service_config& config, std::uint64_t epoch);

  caf::behavior make_behavior() override;

private:
  void think();
  void change_setpoint();
  void change(tag_id tag, double value, const pawl::lock& held);
  modbus_client& client_of(const device_config& device);

  std::mt19937_64 random_;
  std::vector<tag_id> setpoints_;
  std::map<std::string, modbus_client> clients_;
};

} // namespace scada
