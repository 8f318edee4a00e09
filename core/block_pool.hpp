// Blocks of 64 bytes for hold records and rows, without malloc in the steady
// state and without keeping what is no longer used.
//
// Each thread has a small magazine of free blocks; magazines are filled from
// and emptied into slabs of 64 KiB. A slab whose blocks have all come back is
// given back to the system, so memory follows use down as well as up. A block
// may be returned by any thread.
//
// Under AddressSanitizer the pool is a plain new and delete, so that a use
// after free is seen.

#pragma once

#include <cstddef>

namespace pawl {

class block_pool {
public:
  static constexpr std::size_t block_size = 64;

  /// A block of 64 bytes, aligned to 64. Thread-safe. Costs a few plain
  /// instructions; one lock per 64 blocks when the magazine is empty.
  /// @throws std::bad_alloc
  [[nodiscard]] static void* take();

  /// Gives a block back. Thread-safe, same cost.
  static void give(void* block) noexcept;

  /// Blocks that are in use or in a thread's magazine, for tests and
  /// statistics. Takes the slab lock.
  static std::size_t blocks_out();

  /// Empties the calling thread's magazine. Tests use it to see zero.
  static void flush() noexcept;
};

} // namespace pawl
