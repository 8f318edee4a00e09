// messages: how many messages have been put into the mailboxes of event-based
// actors, CAF's own and pawl's included.
//
// The count stands in the way of CAF's enqueue function: this program defines
// it, counts, and calls CAF's. That works where CAF is a shared library whose
// function has the signature of 0.17 (see bench/CMakeLists.txt); elsewhere
// nothing is counted, and a bench says so.

#pragma once

#include <cstdint>
#include <optional>

namespace bench {

#ifdef PAWL_BENCH_COUNTS_MESSAGES

/// Since the start of the process; nothing if they are not counted.
std::optional<std::uint64_t> messages_so_far();

#else

inline std::optional<std::uint64_t> messages_so_far() {
  return std::nullopt;
}

#endif

} // namespace bench
