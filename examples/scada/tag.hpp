// What travels between tag stores: a tag's value and the right by which it was
// written.
//
// The right consists of two fencing tokens. The *epoch* is the token of the
// lock by which the writing service is led: a later leader has a larger one.
// The *lock token* is that of the lock on the tag itself, and it is what writes
// of different services are compared by.

#pragma once

#include "clock.hpp"
#include "plant.hpp"

#include <pawl/core/lock_mode.hpp>

#include <cstdint>
#include <vector>

namespace scada {

enum class quality : std::uint8_t { unknown, good, bad };

/// Who wrote, by what right, and when. Times are ordered within one epoch of
/// one service, which runs on one node.
struct write_stamp {
  service_id service = 0;
  std::uint64_t epoch = 0;
  std::uint64_t lock_token = 0;
  pawl::lock_mode mode = pawl::lock_mode::none;
  time_ns time = 0;
  friend bool operator==(const write_stamp&, const write_stamp&) = default;
};

struct tag_update {
  tag_id tag = 0;
  double value = 0;
  quality state = quality::unknown;
  write_stamp stamp;
};

using tag_updates = std::vector<tag_update>;

/// All that a store knows of a tag, for a store that has just started: the
/// value, whose it is, and the marks of all services that have written.
struct tag_image {
  tag_update current;
  std::vector<write_stamp> marks;
};

using tag_images = std::vector<tag_image>;

} // namespace scada
