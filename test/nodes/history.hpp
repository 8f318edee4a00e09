// What members write and the driver checks: one line per event in a file of each
// member, times in ns of CLOCK_MONOTONIC, which all processes of a machine share.
//
//   begin <term> <token> <time> <held>    the lock was granted; held: what
//                                         still_held() said then
//   unsure <from> <until>                 still_held() said no of a lock that
//                                         nobody else wants: the node had slept
//   end <term> <token> <time> <held>      held: what still_held() said at <time>
//                                         or later; 1: the counter was raised
//
// And the guarded resource itself: a counter per term in a file that all map;
// beside it, plain ones for each node, which only it writes.

#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pawl::testing {

inline constexpr int guarded_terms = 8;
inline constexpr int guarding_nodes = 3; // "a", "b" and "c"

inline std::int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

struct guarded_counters {
  /// Read and written in two steps: it is the lock that makes them one.
  std::atomic<std::uint64_t> of[guarded_terms];
  /// What each node has counted into it. Two threads of the node may have the
  /// lock one after another: nothing but the lock orders them.
  std::uint64_t by_node[guarding_nodes][guarded_terms];

  [[nodiscard]] std::uint64_t by_all(int term) const {
    std::uint64_t result = 0;
    for (const auto& node : by_node)
      result += node[term];
    return result;
  }

  /// Null if the file cannot be mapped.
  static guarded_counters* map(const std::string& path) {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
      return nullptr;
    void* x = MAP_FAILED;
    if (::ftruncate(fd, sizeof(guarded_counters)) == 0)
      x = ::mmap(nullptr, sizeof(guarded_counters), PROT_READ | PROT_WRITE,
                 MAP_SHARED, fd, 0);
    ::close(fd);
    return x == MAP_FAILED ? nullptr : static_cast<guarded_counters*>(x);
  }
};

} // namespace pawl::testing
