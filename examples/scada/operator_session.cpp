#include "operator_session.hpp"

namespace scada {

using namespace std::chrono_literals;

operator_session::operator_session(caf::actor_config& cfg,
                                   station_context& host,
                                   const service_config& config,
                                   std::uint64_t epoch)
  : service_actor(cfg, host, config, epoch), random_(epoch),
    setpoints_(host.layout.setpoints()) {
  // nop
}

caf::behavior operator_session::make_behavior() {
  think();
  return {[this](tick_atom) { change_setpoint(); }};
}

void operator_session::think() {
  std::uniform_int_distribution<int> milliseconds{200, 600};
  tick_after(std::chrono::milliseconds{milliseconds(random_)});
}

void operator_session::change_setpoint() {
  std::uniform_int_distribution<std::size_t> which{0, setpoints_.size() - 1};
  std::uniform_int_distribution<int> what{100, 900};
  auto tag = setpoints_[which(random_)];
  double value = what(random_);
  host()
    .tags.activity(this)
    .lock(host().layout.tags()[tag], pawl::exclusive)
    .on(pawl::every_node)
    .within(5s)
    .then(
      [this, tag, value, asked = now_ns()](pawl::lock held) {
        granted(asked, 1);
        change(tag, value, held);
        held.release();
        think();
      },
      [this](const pawl::failure& why) {
        ++host().counters.operator_failures;
        complain(to_string(why));
        think();
      });
}

void operator_session::change(tag_id tag, double value,
                              const pawl::lock& held) {
  std::vector<tag_right> rights{{tag, held.token()}};
  auto open = section(pawl::exclusive, rights);
  auto& device = *host().layout.device_of_setpoint(tag);
  auto address = static_cast<std::uint16_t>(tag - device.setpoints.first);
  auto written = client_of(device).write_holding(
    address, static_cast<std::uint16_t>(value));
  if (!written) {
    ++host().counters.operator_failures;
    return complain(written.error());
  }
  write(rights, pawl::exclusive, std::vector{value}, quality::good);
  ++host().counters.operator_writes;
}

modbus_client& operator_session::client_of(const device_config& device) {
  return clients_.try_emplace(device.name, device.address).first->second;
}

} // namespace scada
