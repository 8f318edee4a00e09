// The messages of a station's actors, and what of them crosses nodes.
//
// What comes from another node is in plain numbers (wire_update) and becomes a
// tag_update only if it makes sense.

#pragma once

#include "tag.hpp"

#include <pawl/actors/caf_compat.hpp>

#include <optional>
#include <string>
#include <vector>

namespace scada {

namespace compat = pawl::compat;

struct wire_stamp {
  std::uint32_t service = 0;
  std::uint64_t epoch = 0;
  std::uint64_t lock_token = 0;
  std::uint8_t mode = 0;
  std::int64_t time = 0;
};

struct wire_update {
  std::uint32_t tag = 0;
  double value = 0;
  std::uint8_t state = 0;
  wire_stamp stamp;
};

struct wire_image {
  wire_update current;
  std::vector<wire_stamp> marks;
};

using wire_updates = std::vector<wire_update>;
using wire_images = std::vector<wire_image>;

PAWL_INSPECT(wire_stamp, service, epoch, lock_token, mode, time)
PAWL_INSPECT(wire_update, tag, value, state, stamp)
PAWL_INSPECT(wire_image, current, marks)

wire_updates to_wire(const tag_updates& xs);
wire_images to_wire(const tag_images& xs);

/// Nothing if any of them names a mode or a quality that does not exist.
std::optional<tag_updates> from_wire(const wire_updates& xs);
std::optional<tag_images> from_wire(const wire_images& xs);

} // namespace scada

// clang-format off
CAF_BEGIN_TYPE_ID_BLOCK(scada, caf::first_custom_type_id)

  CAF_ADD_TYPE_ID(scada, (scada::wire_stamp))
  CAF_ADD_TYPE_ID(scada, (scada::wire_update))
  CAF_ADD_TYPE_ID(scada, (scada::wire_image))
  CAF_ADD_TYPE_ID(scada, (std::vector<scada::wire_stamp>))
  CAF_ADD_TYPE_ID(scada, (scada::wire_updates))
  CAF_ADD_TYPE_ID(scada, (scada::wire_images))

  // to services of this node
  CAF_ADD_ATOM(scada, scada, tick_atom, "tick")
  CAF_ADD_ATOM(scada, scada, changed_atom, "changed")

  // between the replicators of two nodes
  CAF_ADD_ATOM(scada, scada, hello_atom, "hello")
  CAF_ADD_ATOM(scada, scada, update_atom, "update")
  CAF_ADD_ATOM(scada, scada, image_atom, "image")

CAF_END_TYPE_ID_BLOCK(scada)

PAWL_LOCAL_MESSAGE_TYPE(scada::tag_updates)

CAF_BEGIN_TYPE_ID_BLOCK(scada_local, caf::id_block::scada::end)

  CAF_ADD_TYPE_ID(scada_local, (scada::tag_updates))

CAF_END_TYPE_ID_BLOCK(scada_local)
// clang-format on
