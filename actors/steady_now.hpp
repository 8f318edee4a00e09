// The clock of the actors: steady, in nanoseconds. core is told the time.

#pragma once

#include <chrono>
#include <cstdint>

namespace pawl {

inline std::int64_t steady_now_ns() noexcept {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

} // namespace pawl
