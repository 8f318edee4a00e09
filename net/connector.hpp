// connector: makes the connections to one peer.
//
// CAF's middleman_actor connects in its own thread and blocks there for as long
// as the system lets a connect hang: two minutes for a host that swallows
// packets, during which it connects to nobody else and keeps an actor system
// from ending. So each peer has a connector of its own, whose connects take at
// most the time it is given and stop when told.

#pragma once

#define PAWL_CAF_IO
#include "pawl/actors/caf_compat.hpp"

#include <atomic>
#include <chrono>
#include <memory>

namespace pawl {

/// Thread-safe: set once, read by the connector.
using stop_flag = std::shared_ptr<std::atomic<bool>>;

/// Starts one. It ends when it is killed (it takes no other exit).
caf::io::middleman_actor make_connector(caf::actor_system& sys,
                                        std::chrono::milliseconds patience,
                                        stop_flag stop);

} // namespace pawl
