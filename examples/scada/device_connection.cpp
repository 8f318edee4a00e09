#include "device_connection.hpp"

namespace scada {

using namespace std::chrono_literals;

device_connection::device_connection(caf::actor_config& cfg,
                                     station_context& host,
                                     const service_config& config,
                                     std::uint64_t epoch)
  : service_actor(cfg, host, config, epoch),
    device_(host.layout.devices()[config.device]), client_(device_.address),
    locks_(host.layout, config.writes), values_(config.writes.count) {
  // nop
}

caf::behavior device_connection::make_behavior() {
  next_poll_ = now_ns();
  tick_after(0ns);
  return {[this](tick_atom) { poll(); }};
}

void device_connection::poll() {
  host()
    .tags.activity(this)
    .lock_all(locks_.terms(), pawl::shared)
    .within(2s)
    .then(
      [this, asked = now_ns()](pawl::lock_set held) {
        granted(asked, held.size());
        transfer(locks_.rights(held));
        held.release();
        poll_again();
      },
      [this](const pawl::failure& why) {
        ++host().counters.lock_failures;
        complain(to_string(why));
        poll_again();
      });
}

void device_connection::transfer(std::span<const tag_right> rights) {
  auto open = section(pawl::shared, rights);
  auto inputs = client_.read_inputs(0, device_.inputs.count);
  if (!inputs)
    return failed(rights, inputs.error());
  auto setpoints = client_.read_holdings(0, device_.setpoints.count);
  if (!setpoints)
    return failed(rights, setpoints.error());
  auto end = std::copy(inputs->begin(), inputs->end(), values_.begin());
  std::copy(setpoints->begin(), setpoints->end(), end);
  write(rights, pawl::shared, values_, quality::good);
  answering_ = true;
}

// The tags keep their last values and say that they are not to be trusted.
void device_connection::failed(std::span<const tag_right> rights,
                               std::string_view why) {
  ++host().counters.device_errors;
  if (std::exchange(answering_, false))
    complain(why);
  write(rights, pawl::shared, values_, quality::bad);
}

// Keeps the pace, but does not make up for polls that were missed.
void device_connection::poll_again() {
  auto interval = std::chrono::nanoseconds{host().poll_interval};
  next_poll_ = std::max(next_poll_ + interval.count(), now_ns());
  tick_after(std::chrono::nanoseconds{next_poll_ - now_ns()});
}

} // namespace scada
