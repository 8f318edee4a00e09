// Locks by hand in one process: striped mutexes, and tables under them.

#pragma once

#include "bench/harness.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace bench {

/// The floor: no names, modes or owners; two terms may share a mutex.
class striped_mutexes {
public:
  static constexpr std::size_t stripes = 65'536;

  std::mutex& of(std::size_t term) noexcept {
    return stripes_[(term * 0x9e3779b97f4a7c15ull) >> 48];
  }

private:
  static_assert(stripes == std::size_t{1} << 16);
  std::unique_ptr<std::mutex[]> stripes_{new std::mutex[stripes]};
};

/// The cheapest table a user could write: who holds a term is in a map; nobody
/// can wait, nothing is released when its holder dies.
template <std::size_t Stripes>
class striped_maps {
public:
  struct alignas(64) stripe {
    std::mutex mutex;
    std::unordered_map<std::string, std::uint64_t> holders;
  };

  explicit striped_maps(const workload& work) {
    for (const auto& x : work.held)
      lock(x, 1);
  }

  /// The stripe of a term that was free, or null.
  stripe* lock(const std::string& term, std::uint64_t who) {
    auto& s = stripes_[std::hash<std::string>{}(term) % Stripes];
    std::lock_guard guard{s.mutex};
    return s.holders.try_emplace(term, who).second ? &s : nullptr;
  }

  static bool release(stripe& s, const std::string& term) {
    std::lock_guard guard{s.mutex};
    return s.holders.erase(term) == 1;
  }

  std::size_t size() {
    std::size_t result = 0;
    for (std::size_t i = 0; i < Stripes; ++i)
      result += stripes_[i].holders.size();
    return result;
  }

private:
  std::unique_ptr<stripe[]> stripes_{new stripe[Stripes]};
};

} // namespace bench
