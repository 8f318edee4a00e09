// The guard bit: bit 0 of a 64-bit word that is a spin lock and data at once.
//
// The rows of the lock table and the session ledgers carry it. Sections under
// it are a handful of instructions, never a call into anything that may block.
// A session's bit and a bucket's bit are never held together; the one nesting
// there is (a bucket and the bucket it splits into) goes upward by index.
//
// Readers may load the word without the bit: all its fields are consistent
// with each other, since whoever holds the bit stores the whole new word once,
// when it lets go.

#pragma once

#include <atomic>
#include <cstdint>

#include <sched.h>

namespace pawl {

/// Called before each guard bit is taken when not null: the hook of
/// test/core/interleavings.hpp for exploring interleavings (each section under
/// a bit is one step). Set it only while no other thread runs.
#ifdef PAWL_YIELD_HOOK
inline void (*guard_bit_hook)() = nullptr;
#endif

constexpr std::uint64_t guard_bit = 1;

namespace detail {

/// Spins politely, then gives the processor away: with fewer processors than
/// threads the holder of a bit may be descheduled in its section.
inline std::uint64_t take_guard_slow(std::atomic<std::uint64_t>& word) noexcept {
  for (unsigned round = 0;; ++round) {
    auto seen = word.load(std::memory_order_relaxed);
    if ((seen & guard_bit) == 0
        && word.compare_exchange_weak(seen, seen | guard_bit,
                                      std::memory_order_acquire,
                                      std::memory_order_relaxed))
      return seen;
    if (round % 64 == 63) {
      sched_yield();
    } else {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
    }
  }
}

} // namespace detail

/// Takes the bit; returns the word without it. One atomic update when free.
/// Acquire: pairs with the release in `drop_guard`.
inline std::uint64_t take_guard(std::atomic<std::uint64_t>& word) noexcept {
#ifdef PAWL_YIELD_HOOK
  if (guard_bit_hook != nullptr)
    guard_bit_hook();
#endif
  auto seen = word.load(std::memory_order_relaxed) & ~guard_bit;
  if (word.compare_exchange_strong(seen, seen | guard_bit,
                                   std::memory_order_acquire,
                                   std::memory_order_relaxed)) [[likely]]
    return seen;
  return detail::take_guard_slow(word);
}

/// Lets go and publishes the new word (guard bit clear) in one store.
inline void drop_guard(std::atomic<std::uint64_t>& word,
                       std::uint64_t next) noexcept {
  word.store(next, std::memory_order_release);
}

} // namespace pawl
