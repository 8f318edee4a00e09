// What all services have in common: they are one epoch of leadership, recorded
// from before their first action until after their last.
//
// A service ends when it is told to (by an exit message, sent before its lock
// is given up), when it fails, or with its node. CAF calls on_exit() in each
// case but the last, after the running handler has returned: nothing of the
// service is under way any more when its end is recorded.

#pragma once

#include "messages.hpp"
#include "station_context.hpp"

#include <span>
#include <string>
#include <vector>

namespace scada {

class service_actor : public caf::event_based_actor {
public:
  service_actor(caf::actor_config& cfg, station_context& host,
                const service_config& config, std::uint64_t epoch);

  ~service_actor() override;

  void on_exit() final;

protected:
  /// Stops what does not stop by itself when the actor ends.
  virtual void stop() {
    // nop
  }

  /// Sends (changed_atom, tag_updates) for whatever is written to `tags`; to
  /// all tags if there are none.
  void subscribe(const std::vector<tag_id>& tags);

  /// Sends tick_atom after `delay`; there is one tick under way at a time.
  void tick_after(std::chrono::nanoseconds delay);

  /// Writes values under locks that are held, all in this service's name. Must
  /// be called between the opening and the closing of a recorded section.
  void write(std::span<const tag_right> rights, pawl::lock_mode mode,
             std::span<const double> values, quality state);

  [[nodiscard]] station_context& host() noexcept {
    return host_;
  }

  [[nodiscard]] const service_config& config() const noexcept {
    return config_;
  }

  [[nodiscard]] recorded_section section(pawl::lock_mode mode,
                                         std::span<const tag_right> rights) {
    return {host_.log, config_.id, epoch_, mode, rights};
  }

  /// Notes how long it took to get `locks` locks.
  void granted(time_ns asked, std::size_t locks) {
    host_.counters.locks.record(now_ns() - asked, locks);
  }

  /// For the log of the node: what went wrong, in a sentence.
  void complain(std::string_view sentence);

private:
  station_context& host_;
  const service_config& config_;
  const std::uint64_t epoch_;
  tag_store::listener_id subscription_ = 0;
  bool ended_ = false;
};

} // namespace scada
