// From a service's configuration to its actor: what pawl::lead calls on the
// node that has got the lock.

#pragma once

#include "station_context.hpp"

#include <caf/actor.hpp>

namespace scada {

/// Starts one epoch of a service.
caf::actor start_service(caf::actor_system& system, station_context& host,
                         const service_config& config, std::uint64_t epoch);

} // namespace scada
