#include "services.hpp"

#include "archive.hpp"
#include "device_connection.hpp"
#include "operator_session.hpp"
#include "script.hpp"

#include <stdexcept>

namespace scada {

caf::actor start_service(caf::actor_system& system, station_context& host,
                         const service_config& config, std::uint64_t epoch) {
  switch (config.kind) {
    case service_kind::device_connection:
      return system.spawn<device_connection, caf::detached>(
        std::ref(host), std::cref(config), epoch);
    case service_kind::script:
      return system.spawn<script>(std::ref(host), std::cref(config), epoch);
    case service_kind::operator_session:
      return system.spawn<operator_session, caf::detached>(
        std::ref(host), std::cref(config), epoch);
    case service_kind::archive:
      return system.spawn<archive, caf::detached>(std::ref(host),
                                                  std::cref(config), epoch);
  }
  throw std::logic_error{"a service of no kind"};
}

} // namespace scada
