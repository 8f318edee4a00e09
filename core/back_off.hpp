// back_off: how long to wait before the next try.
//
// The step starts at `first` and doubles with each try, up to `most`. The delay
// is drawn between half of the step and the whole of it: those who collided
// once do not come back together, and none comes back at once.
//
// Randomness is passed in: same input, same output. Not thread-safe.

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace pawl {

class back_off {
public:
  back_off(std::chrono::nanoseconds first,
           std::chrono::nanoseconds most) noexcept
    : step_(std::min(first, most)), most_(most) {
    // nop
  }

  /// The next delay, drawn by `random` (all 64 bits of it).
  [[nodiscard]] std::chrono::nanoseconds next(std::uint64_t random) noexcept {
    auto whole = static_cast<std::uint64_t>(step_.count());
    auto half = whole / 2;
    auto delay = half + random % (whole - half + 1);
    step_ = step_ > most_ / 2 ? most_ : 2 * step_;
    return std::chrono::nanoseconds{static_cast<std::int64_t>(delay)};
  }

private:
  std::chrono::nanoseconds step_;
  std::chrono::nanoseconds most_;
};

} // namespace pawl
