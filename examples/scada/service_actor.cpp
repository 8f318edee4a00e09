#include "service_actor.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace scada {

service_actor::service_actor(caf::actor_config& cfg, station_context& host,
                             const service_config& config, std::uint64_t epoch)
  : caf::event_based_actor(cfg), host_(host), config_(config), epoch_(epoch) {
  ++host_.running;
  host_.log.leader_began(config_.id, epoch_);
  host_.tell.say("lead", {{"service", config_.name}, {"epoch", epoch_}});
}

service_actor::~service_actor() {
  // nop
}

void service_actor::on_exit() {
  if (std::exchange(ended_, true))
    return;
  if (subscription_ != 0)
    host_.store.unsubscribe(subscription_);
  stop();
  host_.log.leader_ended(config_.id, epoch_);
  host_.tell.say("left", {{"service", config_.name}, {"epoch", epoch_}});
  --host_.running;
}

void service_actor::subscribe(const std::vector<tag_id>& tags) {
  auto pass_on
    = [me = caf::actor_cast<caf::actor>(this)](const tag_updates& updates) {
        compat::anon_send(me, changed_atom_v, updates);
      };
  subscription_ = tags.empty() ? host_.store.subscribe_all(pass_on)
                               : host_.store.subscribe(tags, pass_on);
}

void service_actor::tick_after(std::chrono::nanoseconds delay) {
  compat::delayed_send(this, delay, tick_atom_v);
}

void service_actor::write(std::span<const tag_right> rights,
                          pawl::lock_mode mode, std::span<const double> values,
                          quality state) {
  auto now = now_ns();
  tag_updates updates;
  updates.reserve(rights.size());
  for (std::size_t i = 0; i < rights.size(); ++i)
    updates.push_back({rights[i].tag,
                       i < values.size() ? values[i] : 0,
                       state,
                       {config_.id, epoch_, rights[i].token, mode, now}});
  if (auto refused = host_.store.write(updates); refused > 0)
    complain(fmt::format("the store refused {} of {} writes", refused,
                         updates.size()));
}

void service_actor::complain(std::string_view sentence) {
  fmt::print(stderr, "{:.3f} {}: {}\n", seconds(now_ns()), config_.name,
             sentence);
}

} // namespace scada
