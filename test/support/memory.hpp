// How much memory this process has.

#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include <malloc.h>

namespace pawl::testing {

/// Resident memory now, or the most of it so far ("VmRSS:", "VmHWM:"), in
/// bytes.
inline std::uint64_t memory(const std::string& key = "VmRSS:") {
  std::ifstream file{"/proc/self/status"};
  std::string word;
  std::uint64_t kib = 0;
  while (file >> word)
    if (word == key) {
      file >> kib;
      break;
    }
  return kib * 1024;
}

inline std::uint64_t peak_memory() {
  return memory("VmHWM:");
}

/// Gives what malloc keeps for later back to the system, so that `memory` is
/// what is in use.
inline void trim_memory() {
  ::malloc_trim(0);
}

} // namespace pawl::testing
