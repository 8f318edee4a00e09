#include "pawl/core/ids.hpp"

#include <fmt/format.h>

namespace pawl {

std::string to_string(const session_id& x) {
  return fmt::format("{}/{}", to_index(x.home), x.serial);
}

std::string to_string(const request_id& x) {
  return fmt::format("{}/{}", to_index(x.home), x.serial);
}

} // namespace pawl
