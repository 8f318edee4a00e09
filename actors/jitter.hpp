// What delays are drawn by.

#pragma once

#include <cstdint>
#include <random>

namespace pawl {

/// 64 random bits, for delays only. Any thread; a generator per thread.
inline std::uint64_t jitter() {
  thread_local std::mt19937_64 bits{std::random_device{}()};
  return bits();
}

} // namespace pawl
