// wait_board: who waits in one scope on one node, by name: what a search for a
// deadlock looks up. Clients' requests by their session, parts of requests for
// several nodes by request.
//
// A waiter is on the board before it hangs in a queue, or its worker begins a
// search after it has put it there; so no search misses it. It leaves before its
// last reference goes. The board keeps no references; who looks something up is
// given one.
//
// Sharded by session, so that clients do not meet here. Thread-safe; one lock,
// one look-up each.

#pragma once

#include "pawl/core/wait_for_graph.hpp"
#include "pawl/core/waiter.hpp"
#include "pawl/core/worker.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pawl {

class pending;

struct drop_ref {
  void operator()(auto* x) const noexcept {
    x->unref();
  }
};

/// A reference to a waiter.
template <class T>
using waiter_ref = std::unique_ptr<T, drop_ref>;

template <class T>
waiter_ref<T> keep(T& x) noexcept {
  x.ref();
  return waiter_ref<T>{&x};
}

class wait_board {
public:
  // -- clients' requests ------------------------------------------------------

  /// Puts a request on the board; returns the others of its session.
  [[nodiscard]] std::vector<waiter_ref<pending>> add(pending& x);

  void remove(pending& x) noexcept;

  [[nodiscard]] std::vector<waiter_ref<pending>>
  waits_of(const session_id& who);

  [[nodiscard]] waiter_ref<pending> find(const session_id& who,
                                         const request_id& request);

  // -- parts ------------------------------------------------------------------

  void add(part_waiter& x);
  void remove(part_waiter& x) noexcept;

  [[nodiscard]] waiter_ref<part_waiter> find(const request_id& request,
                                             attempt_number attempt);

private:
  struct alignas(64) shard {
    std::mutex lock;
    std::unordered_multimap<std::uint64_t, pending*> requests;
  };

  shard& shard_of(const session_id& who) noexcept {
    return shards_[who.serial % shards_.size()];
  }

  std::array<shard, 16> shards_;
  std::mutex parts_lock_;
  std::unordered_map<request_id, part_waiter*> parts_;
};

} // namespace pawl
