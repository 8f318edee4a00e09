// leadership: lock as leadership. Every node starts every service; the one that
// gets the exclusive lock on every node runs it, the others wait inside their
// request, holding nothing.
//
//   auto plc = pawl::lead(tags, "service/plc-7",
//                         [](caf::actor_system& sys, pawl::fencing_token epoch) {
//                           return sys.spawn<plc_connection>(epoch);
//                         });
//
//                                granted        service is up
//   +----------+    +--------+ ----------> (factory) ----------> +---------+
//   | settling |--->| asking |                 | throws          | leading |
//   +----------+    +--------+ <-+             v                 +---------+
//                       |  ^     |        +---------+   service died  |  | lost,
//      scope closed,    |  |     +--------| backing | <---------------+  | resign,
//      stop             |  | timer        |   off   |   (lock given up)  | stop
//                       v  |              +---------+                    v
//                   +-------+                              service  +----------+
//                   | ended | <----------------------------- down --| stopping |
//                   +-------+      (stop; otherwise: asking)        +----------+
//
// In each state it is true that
//   settling, asking, backing off, ended: no service runs here and no lock is
//     held;
//   leading: the lock is held and the service runs;
//   stopping: the service has been told to end; the lock is given up only after
//     it has ended (after `stop_within` it is killed). If the lock was lost, the
//     service is ended all the same, and its token tells its writes apart.
//
// Settling: so that services spread over the nodes, a node that the term does
// not prefer (rendezvous weight of term and node) waits a short time before its
// *first* ask. This is for balance only, not for safety.

#pragma once

#include "pawl/actors/make_term.hpp"
#include "pawl/actors/scope.hpp"
#include "pawl/core/fencing.hpp"

#include <caf/fwd.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace pawl {

/// Makes the service's actor. `epoch` is the token of this round of leadership:
/// whatever the service writes it should mark with it.
using service_factory
  = std::function<caf::actor(caf::actor_system& system, fencing_token epoch)>;

struct leadership_options {
  /// How long a node that the term does not prefer waits before it first asks.
  std::chrono::milliseconds settle{500};
  /// How long a service may take to end before it is killed.
  std::chrono::milliseconds stop_within{5000};
  /// After a factory that threw or a service that died; doubled up to `most`
  /// as long as that goes on.
  std::chrono::milliseconds back_off{100};
  std::chrono::milliseconds back_off_most{5000};
};

class leadership_state;

/// A handle; the leadership goes on without it, until `stop`, or until the scope
/// is closed. Thread-safe.
class leadership {
public:
  explicit leadership(std::shared_ptr<leadership_state> state) noexcept
    : state_(std::move(state)) {
    // nop
  }

  /// Whether the service runs on this node.
  [[nodiscard]] bool leading() const noexcept;

  /// The epoch's token while leading, else 0.
  [[nodiscard]] fencing_token epoch() const noexcept;

  /// Gives the leadership up, after the service has ended, and asks again: the
  /// next in line takes over, in one round trip.
  void resign() const;

  /// Ends it on this node. The service is stopped before the lock is given up;
  /// `wait` until that is done, or not longer than `limit`.
  void stop() const;
  [[nodiscard]] bool wait_stopped(std::chrono::milliseconds limit) const;

private:
  std::shared_ptr<leadership_state> state_;
};

/// Takes part in the leadership of `what`. Exceptions from the factory give the
/// lock up; the node then queues again, with back-off.
[[nodiscard]] leadership lead_term(const scope& where, term what,
                                   service_factory factory,
                                   leadership_options options = {});

template <class T>
[[nodiscard]] leadership lead(const scope& where, T&& what,
                              service_factory factory,
                              leadership_options options = {}) {
  return lead_term(where, make_term(std::forward<T>(what)), std::move(factory),
                   options);
}

} // namespace pawl
