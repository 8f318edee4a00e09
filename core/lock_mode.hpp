// How a term is locked.

#pragma once

#include <cstdint>
#include <string_view>

namespace pawl {

/// `none` is the mode of a row that nobody holds and the *prior mode* of a
/// grant that was no upgrade; nobody asks for it.
enum class lock_mode : std::uint8_t { none, shared, exclusive };

inline constexpr lock_mode shared = lock_mode::shared;
inline constexpr lock_mode exclusive = lock_mode::exclusive;

/// Whether a hold in mode `held` already gives what `asked` asks for.
constexpr bool covers(lock_mode held, lock_mode asked) noexcept {
  return held >= asked;
}

constexpr lock_mode stronger(lock_mode a, lock_mode b) noexcept {
  return a < b ? b : a;
}

constexpr std::string_view to_string(lock_mode x) noexcept {
  switch (x) {
    case lock_mode::shared:
      return "shared";
    case lock_mode::exclusive:
      return "exclusive";
    default:
      return "none";
  }
}

} // namespace pawl
