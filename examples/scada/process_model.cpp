#include "process_model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace scada {

process_model::process_model(std::size_t inputs, std::size_t setpoints,
                             std::uint64_t seed)
  : random_(seed) {
  std::uniform_real_distribution<double> phase{0, 2 * std::numbers::pi};
  std::uniform_real_distribution<double> speed{0.2, 2.0};
  for (std::size_t i = 0; i < inputs; ++i)
    signals_.push_back({static_cast<shape>(i % 4),
                        setpoints == 0 ? 0 : i / 4 % setpoints,
                        initial_setpoint, phase(random_), speed(random_)});
}

void process_model::step(double seconds,
                         std::span<const std::uint16_t> setpoints) {
  time_ += seconds;
  std::normal_distribution<double> noise{0, std::sqrt(seconds)};
  for (auto& x : signals_) {
    double target = x.setpoint < setpoints.size() ? setpoints[x.setpoint]
                                                  : initial_setpoint;
    switch (x.kind) {
      case shape::level: // first-order lag behind its setpoint
        x.value += (target - x.value) * std::min(1.0, seconds * x.speed);
        break;
      case shape::wave: // around its setpoint
        x.value = target + 100 * std::sin(x.phase + time_ * x.speed);
        break;
      case shape::counter:
        x.value += seconds * x.speed * 100;
        break;
      case shape::noise: // a walk that is pulled back
        x.value += 20 * noise(random_) + (target - x.value) * seconds * 0.1;
        break;
    }
  }
}

void process_model::read(std::span<std::uint16_t> registers) const {
  for (std::size_t i = 0; i < registers.size() && i < signals_.size(); ++i) {
    auto& x = signals_[i];
    registers[i]
      = x.kind == shape::counter
          ? static_cast<std::uint16_t>(std::fmod(x.value, 65536))
          : static_cast<std::uint16_t>(std::clamp(x.value, 0.0, 65535.0));
  }
}

} // namespace scada
