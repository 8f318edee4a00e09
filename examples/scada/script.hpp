// A user script: subscribes to its input tags, computes when they have changed,
// and writes its output tags in one batch under shared locks of its own node.
//
// It waits a little after a change for others to come, so it computes at a
// bounded rate however often its inputs move.

#pragma once

#include "service_actor.hpp"
#include "tag_locks.hpp"

#include <unordered_map>

namespace scada {

class script : public service_actor {
public:
  script(caf::actor_config& cfg, station_context& host,
         const service_config& config, std::uint64_t epoch);

  caf::behavior make_behavior() override;

private:
  void take(const tag_updates& updates);
  void run();
  std::vector<double> compute() const;
  void ran();

  tag_locks locks_;
  std::unordered_map<tag_id, double> inputs_;
  bool changed_ = false;
  bool due_ = false; // a tick or a lock is under way
};

} // namespace scada
