#include "script.hpp"

#include <algorithm>
#include <numeric>

namespace scada {

using namespace std::chrono_literals;

script::script(caf::actor_config& cfg, station_context& host,
               const service_config& config, std::uint64_t epoch)
  : service_actor(cfg, host, config, epoch),
    locks_(host.layout, config.writes) {
  // nop
}

caf::behavior script::make_behavior() {
  subscribe(config().reads);
  // Subscribed first, so no change is missed in between.
  tag_updates known;
  for (auto tag : config().reads)
    if (auto now = host().store.current(tag); now.state != quality::unknown)
      known.push_back(now);
  take(known);
  return {[this](changed_atom, const tag_updates& updates) { take(updates); },
          [this](tick_atom) { run(); }};
}

void script::take(const tag_updates& updates) {
  for (auto& update : updates)
    if (update.state == quality::good)
      inputs_[update.tag] = update.value;
  changed_ = changed_ || !updates.empty();
  if (changed_ && !std::exchange(due_, true))
    tick_after(host().poll_interval);
}

void script::run() {
  changed_ = false;
  if (inputs_.empty())
    return ran();
  // Computed before the locks are taken: nobody waits for a script to think.
  auto outputs = compute();
  host()
    .tags.activity(this)
    .lock_all(locks_.terms(), pawl::shared)
    .within(2s)
    .then(
      [this, outputs, asked = now_ns()](pawl::lock_set held) {
        granted(asked, held.size());
        auto rights = locks_.rights(held);
        {
          auto open = section(pawl::shared, rights);
          write(rights, pawl::shared, outputs, quality::good);
        }
        held.release();
        ran();
      },
      [this](const pawl::failure& why) {
        ++host().counters.lock_failures;
        complain(to_string(why));
        changed_ = true;
        ran();
      });
}

/// mean, low, high, spread: the order of the output tags.
std::vector<double> script::compute() const {
  auto value = [](auto& entry) { return entry.second; };
  std::vector<double> values;
  std::transform(inputs_.begin(), inputs_.end(), std::back_inserter(values),
                 value);
  auto [low, high] = std::minmax_element(values.begin(), values.end());
  auto sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), *low, *high, *high - *low};
}

void script::ran() {
  due_ = changed_;
  if (due_)
    tick_after(host().poll_interval);
}

} // namespace scada
