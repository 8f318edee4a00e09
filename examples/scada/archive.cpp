#include "archive.hpp"

namespace scada {

archive::archive(caf::actor_config& cfg, station_context& host,
                 const service_config& config, std::uint64_t epoch)
  : service_actor(cfg, host, config, epoch) {
  // nop
}

caf::behavior archive::make_behavior() {
  auto opened = archive_store::open(host().archive);
  if (!opened) {
    complain(opened.error());
    return {}; // without a behavior it ends
  }
  store_ = std::move(*opened);
  subscribe({});
  return {[this](changed_atom, const tag_updates& updates) {
    store_->add(updates);
    host().counters.archived += updates.size();
  }};
}

void archive::stop() {
  store_.reset();
}

} // namespace scada
