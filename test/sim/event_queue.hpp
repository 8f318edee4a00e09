// event_queue: simulated time. What is due runs in order of its time, at equal
// times in the order in which it was put in. Nothing else moves the clock.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace pawl::sim {

using time_point = std::chrono::nanoseconds;

class event_queue {
public:
  [[nodiscard]] time_point now() const noexcept {
    return now_;
  }

  [[nodiscard]] bool empty() const noexcept {
    return events_.empty();
  }

  /// When the next one is due. There must be one.
  [[nodiscard]] time_point next() const noexcept {
    return events_.top().when;
  }

  void at(time_point when, std::function<void()> what) {
    events_.push({when, ++serials_, std::move(what)});
  }

  /// Runs the next one.
  void step() {
    auto next = std::move(const_cast<event&>(events_.top()));
    events_.pop();
    now_ = std::max(now_, next.when);
    next.what();
  }

  /// Time passes until then; nothing is due before.
  void wait_until(time_point when) noexcept {
    now_ = std::max(now_, when);
  }

private:
  struct event {
    time_point when;
    std::uint64_t serial;
    std::function<void()> what;
    bool operator<(const event& x) const noexcept {
      return std::tie(when, serial) > std::tie(x.when, x.serial);
    }
  };

  time_point now_{0};
  std::priority_queue<event> events_;
  std::uint64_t serials_ = 0;
};

} // namespace pawl::sim
