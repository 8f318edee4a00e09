// What happened in a run, as all nodes recorded it: the input of the checker.
// Plain data; journal_reader.hpp makes it, checker.hpp judges it.

#pragma once

#include "tag.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace scada {

/// One epoch of one service on one node, from before the first thing it does
/// until after the last.
struct leadership {
  service_id service = 0;
  std::uint64_t epoch = 0;
  std::string node;
  time_ns start = 0;
  time_ns stop = 0;
};

/// The lock under which a tag is written.
struct tag_right {
  tag_id tag = 0;
  std::uint64_t token = 0;
  friend bool operator==(const tag_right&, const tag_right&) = default;
};

/// What a service does under one grant: from the moment the grant is visible to
/// just before it is given back.
struct section {
  service_id service = 0;
  std::uint64_t epoch = 0;
  pawl::lock_mode mode = pawl::lock_mode::none;
  time_ns start = 0;
  time_ns stop = 0;
  std::vector<tag_right> rights;
};

struct history {
  std::vector<leadership> leaderships;
  std::vector<section> sections;
  /// Nodes that ended without saying so although nobody killed them.
  std::vector<std::string> broken_off;
};

} // namespace scada
