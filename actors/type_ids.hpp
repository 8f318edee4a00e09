// The messages between pawl's own actors. All stay inside the process; what
// crosses nodes is bytes (net/wire.hpp).

#pragma once

#include "pawl/actors/caf_compat.hpp"

CAF_BEGIN_TYPE_ID_BLOCK(pawl_actors, pawl::compat::next_type_id)

  // To a manager: somebody may have made the head of your queue grantable.
  CAF_ADD_ATOM(pawl_actors, pawl, look_atom, "look")
  // To a scope's actor: its inbox was empty and is not any more.
  CAF_ADD_ATOM(pawl_actors, pawl, drain_atom, "drain")
  // To oneself: a deadline may have passed.
  CAF_ADD_ATOM(pawl_actors, pawl, wake_atom, "wake")
  // To pawl's helpers: end.
  CAF_ADD_ATOM(pawl_actors, pawl, stop_atom, "stop")

CAF_END_TYPE_ID_BLOCK(pawl_actors)
