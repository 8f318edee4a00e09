// The one place where pawl writes to a log: wrong input that was refused, peers
// that do not fit, links that come and go. Nothing is logged per lock.
//
// Lines go to stderr until an application sets its own sink.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pawl {

enum class log_level : std::uint8_t { info, warning, error };

std::string_view to_string(log_level x) noexcept;

using log_sink = std::function<void(log_level, const std::string&)>;

/// Replaces where lines go; an empty sink stands for stderr. Thread-safe. A
/// sink is called by any thread, by one at a time, and must not log itself.
void set_log_sink(log_sink sink);

/// Hands one line, without its end, to the sink. Thread-safe. What a sink
/// throws is lost.
void log_line(log_level level, const std::string& text) noexcept;

/// Lets through a few lines per second and counts the others: a peer that sends
/// nonsense fills no disk. Is told the time. Not thread-safe.
class log_limiter {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit log_limiter(unsigned per_second = 5) : per_second_(per_second) {
    // nop
  }

  /// Logs, or counts. The next line that gets through says how many did not.
  void line(log_level level, std::string text, time_point now);

private:
  unsigned per_second_;
  unsigned used_ = 0;
  std::uint64_t dropped_ = 0;
  time_point second_;
};

} // namespace pawl
