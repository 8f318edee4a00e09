// What a session is told about a hold of its own that changed without it.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/term.hpp"

#include <cstdint>
#include <string>

namespace pawl {

struct hold_event {
  enum class kind : std::uint8_t {
    /// The hold is gone: a node of its list went down or closed the scope, or a
    /// hold with a larger token was met after a cut had healed.
    lost,
    /// An `every_node` hold shrank by a node that went away. It stays valid.
    node_left,
  };
  kind what = kind::lost;
  pawl::term term;
  fencing_token token = 0;
  /// The node concerned, if there is one.
  std::string node;
};

} // namespace pawl
