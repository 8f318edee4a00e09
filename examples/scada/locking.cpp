#include "locking.hpp"

namespace scada {

namespace {

lock_figures figures_of(const pawl::scope& scope) {
  auto counted = scope.statistics();
  return {.left = scope.residue(),
          .locked = counted.ended(pawl::outcome::granted),
          .waited = counted.waits,
          .p99_wait_ns = counted.wait.p99};
}

} // namespace

locking::locking(caf::actor_system& system, const pawl::config& options)
  : node_(system, options), services_(node_.open("services")),
    tags_(node_.open("tags")) {
  // nop
}

void locking::lead(const std::string& service, pawl::service_factory start) {
  leaderships_.push_back(pawl::lead(services_, service, std::move(start)));
}

void locking::stop_leading() {
  for (auto& leadership : leaderships_)
    leadership.stop();
}

lock_figures locking::tag_figures() const {
  return figures_of(tags_);
}

lock_figures locking::service_figures() const {
  return figures_of(services_);
}

} // namespace scada
