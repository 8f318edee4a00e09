#include "pawl/actors/log.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <utility>

namespace pawl {

namespace {

struct place {
  std::mutex guard;
  log_sink sink;
};

/// Never destroyed: actors may log while the program ends.
place& the_place() {
  static auto* result = new place;
  return *result;
}

} // namespace

std::string_view to_string(log_level x) noexcept {
  switch (x) {
    case log_level::info:
      return "info";
    case log_level::warning:
      return "warning";
    default:
      return "error";
  }
}

void set_log_sink(log_sink sink) {
  auto& p = the_place();
  std::lock_guard lock{p.guard};
  p.sink = std::move(sink);
}

void log_line(log_level level, const std::string& text) noexcept {
  auto& p = the_place();
  try {
    std::lock_guard lock{p.guard};
    if (p.sink)
      p.sink(level, text);
    else
      fmt::print(stderr, "pawl {}: {}\n", to_string(level), text);
  } catch (...) {
    // A log that fails is no reason to fail.
  }
}

void log_limiter::line(log_level level, std::string text, time_point now) {
  if (now - second_ >= std::chrono::seconds{1}) {
    second_ = now;
    used_ = 0;
  }
  if (used_ >= per_second_) {
    ++dropped_;
    return;
  }
  ++used_;
  if (auto n = std::exchange(dropped_, 0))
    text += fmt::format(" (and {} lines like this before)", n);
  log_line(level, text);
}

} // namespace pawl
