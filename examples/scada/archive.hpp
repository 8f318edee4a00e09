// The archive: subscribes to all tags and hands the values to a pool of writers
// in front of RocksDB. Takes no lock on any tag: it only reads.
//
// Opens and closes its store in its own time: to be spawned detached. If the
// store does not open it ends, and is tried again, here or on another node.

#pragma once

#include "archive_store.hpp"
#include "service_actor.hpp"

namespace scada {

class archive : public service_actor {
public:
  archive(caf::actor_config& cfg, station_context& host,
          const service_config& config, std::uint64_t epoch);

  caf::behavior make_behavior() override;

private:
  void stop() override;

  std::unique_ptr<archive_store> store_;
};

} // namespace scada
