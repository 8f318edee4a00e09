// The connection to one field device: polls its registers and writes them to
// its tags, in one batch under shared locks of its own node.
//
// The locks come first and the registers are read under them. Read before, a
// setpoint could be written back as it was before an operator changed it. So an
// operator waits for at most one Modbus round trip.
//
// Blocks in Modbus calls: to be spawned detached.

#pragma once

#include "modbus_client.hpp"
#include "service_actor.hpp"
#include "tag_locks.hpp"

namespace scada {

class device_connection : public service_actor {
public:
  device_connection(caf::actor_config& cfg, station_context& host,
                    const service_config& config, std::uint64_t epoch);

  caf::behavior make_behavior() override;

private:
  void poll();
  void transfer(std::span<const tag_right> rights);
  void failed(std::span<const tag_right> rights, std::string_view why);
  void poll_again();

  const device_config& device_;
  modbus_client client_;
  tag_locks locks_;
  std::vector<double> values_;
  time_ns next_poll_ = 0;
  bool answering_ = true;
};

} // namespace scada
