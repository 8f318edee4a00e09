// The one clock of the demo: CLOCK_MONOTONIC in nanoseconds. All processes run
// on one machine, so stamps of different processes can be compared.

#pragma once

#include <chrono>
#include <cstdint>

namespace scada {

using time_ns = std::int64_t;

inline time_ns now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch())
    .count();
}

constexpr double seconds(time_ns x) {
  return static_cast<double>(x) / 1e9;
}

} // namespace scada
