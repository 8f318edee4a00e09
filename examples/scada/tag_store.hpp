// The tags of one node: their values, a fence around each, and who is to be
// told when they change. There is one per node; it is filled by the services
// that run here and by replication from the other nodes.
//
// A write passes the fence of its tag or is refused and counted (fence.hpp).
// The store itself takes no lock of pawl's: whoever writes has taken one, and
// the fence is the guard against writers that have lost theirs.
//
// Thread-safe. Listeners are called by the writing thread, before it returns,
// so a listener that sends messages sends them in the order of the locks; it
// must not call back into the store.

#pragma once

#include "fence.hpp"
#include "tag.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace scada {

/// What a store has done so far.
struct store_figures {
  std::uint64_t written = 0;     // by services of this node
  std::uint64_t replicated = 0;  // from other nodes
  std::uint64_t stale_epoch = 0; // refused: the service has a newer leader
  std::uint64_t overtaken = 0;   // refused: another service's lock is newer
};

class tag_store {
public:
  using listener = std::function<void(const tag_updates&)>;
  using listener_id = std::uint64_t;

  explicit tag_store(std::size_t tags);

  // -- writes -----------------------------------------------------------------

  /// What a service of this node writes. Returns how many were refused.
  std::size_t write(const tag_updates& updates);

  /// What another node has written.
  void replicate(const tag_updates& updates);

  /// What another node knows; brings a fresh store up to date.
  void replicate(const tag_images& images);

  // -- reads ------------------------------------------------------------------

  [[nodiscard]] std::size_t size() const noexcept {
    return tags_.size();
  }

  [[nodiscard]] tag_update current(tag_id tag) const;

  /// All tags of the range that have been written.
  [[nodiscard]] tag_images images(tag_range range) const;

  [[nodiscard]] store_figures figures() const;

  // -- subscriptions ----------------------------------------------------------

  /// Whoever wrote it, here or elsewhere.
  listener_id subscribe(const std::vector<tag_id>& tags, listener f);

  listener_id subscribe_all(listener f);

  /// Only what services of this node write: what others need to be told.
  listener_id subscribe_local(listener f);

  /// After this has returned the listener is not called again.
  void unsubscribe(listener_id id);

private:
  struct tag {
    fence guard;
    tag_update current;
  };

  struct subscription {
    listener f;
    std::vector<tag_id> tags;
  };

  static constexpr std::size_t stripes = 64;

  std::mutex& stripe(tag_id x) const noexcept {
    return stripes_[x % stripes];
  }

  /// Returns what passed.
  tag_updates pass(const tag_updates& updates,
                   std::atomic<std::uint64_t>& counter);
  void tell(const tag_updates& passed, bool local) const;

  std::vector<tag> tags_; // each guarded by its stripe
  mutable std::array<std::mutex, stripes> stripes_;

  std::atomic<std::uint64_t> written_ = 0;
  std::atomic<std::uint64_t> replicated_ = 0;
  std::atomic<std::uint64_t> stale_epoch_ = 0;
  std::atomic<std::uint64_t> overtaken_ = 0;

  mutable std::shared_mutex subscriptions_mutex_; // guards what follows
  listener_id last_id_ = 0;
  std::unordered_map<listener_id, subscription> some_;
  std::unordered_map<tag_id, std::vector<listener_id>> by_tag_;
  std::unordered_map<listener_id, listener> all_;
  std::unordered_map<listener_id, listener> local_;
};

} // namespace scada
