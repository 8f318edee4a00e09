#include "reporter.hpp"

#include <cstdio>

namespace scada {

void reporter::say(std::string_view kind, nlohmann::json fields) {
  fields["kind"] = kind;
  fields["node"] = node_;
  fields["time"] = now_ns();
  auto line = fields.dump() + "\n";
  std::unique_lock guard{mutex_};
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

} // namespace scada
