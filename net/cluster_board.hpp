// cluster_board: what the links of a node know and any thread may read.
//
// One line per peer, written by its link; two numbers for the whole node, which
// only grow. Lock-free. Each value stands for itself, except that a link writes
// `gap` before `ran` (release), and awake() reads `ran` first (acquire):
// whoever sees that a link runs again also sees that it did not.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/ids.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pawl {

class cluster_board {
public:
  using clock = std::chrono::steady_clock;
  using time_point = clock::time_point;

  cluster_board(std::size_t nodes, node_slot self,
                std::chrono::milliseconds node_timeout)
    : nodes_(nodes), self_(self), node_timeout_(node_timeout) {
    // nop
  }

  // -- for the link of a peer -------------------------------------------------

  /// An event of the link: it runs, and its epoch is this (0: down).
  void ran(node_slot peer, link_epoch epoch, time_point heard,
           time_point now) noexcept {
    auto& x = lines_[to_index(peer)];
    auto gap = x.gap.load(std::memory_order_relaxed);
    auto over = epoch == 0
                  ? now - time(gap) >= node_timeout_
                  : epoch == x.gap_epoch.load(std::memory_order_relaxed)
                      && heard >= time(gap);
    if (gap != never && over)
      x.gap.store(never, std::memory_order_relaxed);
    x.epoch.store(epoch, std::memory_order_relaxed);
    x.heard.store(ticks(heard), std::memory_order_relaxed);
    x.ran.store(ticks(now), std::memory_order_release);
  }

  /// This node did not run until now. To be called before `ran`.
  void gap(node_slot peer, time_point now) noexcept {
    auto& x = lines_[to_index(peer)];
    x.gap_epoch.store(x.epoch.load(std::memory_order_relaxed),
                      std::memory_order_relaxed);
    x.gap.store(ticks(now), std::memory_order_relaxed);
  }

  // -- for everybody ----------------------------------------------------------

  [[nodiscard]] link_epoch epoch(node_slot peer) const noexcept {
    return lines_[to_index(peer)].epoch.load(std::memory_order_relaxed);
  }

  /// When this node sent the latest that the peer has confirmed; see
  /// link_machine::last_heard.
  [[nodiscard]] time_point last_heard(node_slot peer) const noexcept {
    return time(lines_[to_index(peer)].heard.load(std::memory_order_relaxed));
  }

  /// Whether the peer is linked and cannot have given this node up. True for
  /// this node itself.
  [[nodiscard]] bool heard(node_slot peer,
                           time_point now = clock::now()) const noexcept {
    return peer == self_
           || (epoch(peer) != 0 && now - last_heard(peer) < node_timeout_);
  }

  /// False when this node did not run for half of node-timeout (so that peers
  /// may have found it silent), until of every link one of these has been true:
  /// it was heard since, in the same epoch; it came up since, and what is held
  /// was exchanged then: `exchanged(slot)` is when the link came up that served
  /// for the latest exchange; it was down when node-timeout had passed. What has
  /// been true once counts, whatever the link does later. (Who was out was found
  /// down by its peers: what it held may be held by others when it wakes.)
  /// O(nodes).
  template <class Exchanged>
  [[nodiscard]] bool awake(Exchanged exchanged,
                           time_point now = clock::now()) const noexcept {
    for (std::size_t i = 0; i < nodes_; ++i) {
      if (i == to_index(self_))
        continue;
      const auto& x = lines_[i];
      auto ran = x.ran.load(std::memory_order_acquire);
      if (ran != never && now - time(ran) >= node_timeout_ / 2)
        return false; // peers have counted from before: see link_machine
      auto gap = x.gap.load(std::memory_order_relaxed);
      if (gap != never && exchanged(static_cast<node_slot>(i)) <= time(gap))
        return false;
    }
    return true;
  }

  // -- what only grows --------------------------------------------------------

  [[nodiscard]] fencing_token floor() const noexcept {
    return floor_.at(clock::now().time_since_epoch());
  }

  [[nodiscard]] std::uint64_t lamport() const noexcept {
    return lamport_.load(std::memory_order_relaxed);
  }

  /// The largest token that may have been issued by anybody, as far as is
  /// known.
  void raise_floor(fencing_token x) noexcept {
    floor_.raise(x, clock::now().time_since_epoch());
  }

  void raise_lamport(std::uint64_t x) noexcept {
    raise(lamport_, x);
  }

  /// The Lamport time of something that happens now.
  std::uint64_t next_lamport() noexcept {
    return lamport_.fetch_add(1, std::memory_order_relaxed) + 1;
  }

private:
  static constexpr std::int64_t never = INT64_MIN;

  static std::int64_t ticks(time_point x) noexcept {
    return x.time_since_epoch().count();
  }

  static time_point time(std::int64_t x) noexcept {
    // Far back, but such that differences to it do not overflow.
    return time_point{clock::duration{x == never ? INT64_MIN / 4 : x}};
  }

  static void raise(std::atomic<std::uint64_t>& to, std::uint64_t x) noexcept {
    auto old = to.load(std::memory_order_relaxed);
    while (old < x
           && !to.compare_exchange_weak(old, x, std::memory_order_relaxed)) {
      // nop
    }
  }

  struct alignas(64) line {
    std::atomic<link_epoch> epoch = 0;
    std::atomic<std::int64_t> heard = never;
    std::atomic<std::int64_t> ran = never;
    std::atomic<std::int64_t> gap = never;
    std::atomic<link_epoch> gap_epoch = 0;
  };

  std::size_t nodes_;
  node_slot self_;
  std::chrono::milliseconds node_timeout_;
  std::array<line, max_nodes> lines_;
  alignas(64) fencing::running_floor floor_;
  std::atomic<std::uint64_t> lamport_ = 0;
};

} // namespace pawl
