// What a station tells whoever started it: one JSON object per line on stdout.
// Thread-safe.

#pragma once

#include "clock.hpp"

#include <nlohmann/json.hpp>

#include <mutex>
#include <string>
#include <string_view>

namespace scada {

class reporter {
public:
  explicit reporter(std::string node) : node_(std::move(node)) {
    // nop
  }

  /// `kind` is "lead", "left", "figures" or "final"; see supervisor.cpp.
  void say(std::string_view kind, nlohmann::json fields);

private:
  std::string node_;
  std::mutex mutex_;
};

} // namespace scada
