// The process behind a field device: input registers that move and setpoints
// that steer them. Time is passed in and randomness comes from a seed, so two
// models with the same seed and steps are equal.

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace scada {

class process_model {
public:
  process_model(std::size_t inputs, std::size_t setpoints, std::uint64_t seed);

  /// Moves all inputs on by `seconds`; `setpoints` are the holding registers.
  void step(double seconds, std::span<const std::uint16_t> setpoints);

  /// What the input registers read now.
  void read(std::span<std::uint16_t> registers) const;

  /// Where the setpoints stand when the device starts.
  static constexpr std::uint16_t initial_setpoint = 500;

private:
  /// A level that follows a setpoint, a wave, a counter, and noise that walks.
  enum class shape : std::uint8_t { level, wave, counter, noise };

  struct signal {
    shape kind;
    std::size_t setpoint;
    double value;
    double phase;
    double speed;
  };

  std::mt19937_64 random_;
  std::vector<signal> signals_;
  double time_ = 0;
};

} // namespace scada
