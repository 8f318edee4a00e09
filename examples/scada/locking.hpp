// A station's use of pawl, apart from the locks that services take themselves:
// joining the cluster, the two scopes, leadership, and figures.
//
//   services   one term per service: its lock is its leadership
//   tags       one term per tag
//
// Lives between the actor system and the services. Thread-safe once leading.

#pragma once

#include <pawl/pawl.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace scada {

struct lock_figures {
  pawl::residue left; // all zero when nothing is held and nothing waits
  std::uint64_t locked = 0;
  std::uint64_t waited = 0;
  std::uint64_t p99_wait_ns = 0; // of those that waited
};

class locking {
public:
  /// @throws pawl::node_error
  locking(caf::actor_system& system, const pawl::config& options);

  /// Runs a service here whenever this node gets its lock.
  void lead(const std::string& service, pawl::service_factory start);

  /// Stops all services that run here, then gives up their locks; returns at
  /// once.
  void stop_leading();

  [[nodiscard]] const pawl::scope& tags() const noexcept {
    return tags_;
  }

  [[nodiscard]] lock_figures tag_figures() const;
  [[nodiscard]] lock_figures service_figures() const;

private:
  pawl::node node_;
  pawl::scope services_;
  pawl::scope tags_;
  std::vector<pawl::leadership> leaderships_;
};

} // namespace scada
