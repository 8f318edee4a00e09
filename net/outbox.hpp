// outbox: what is to go to one peer, appended by any thread, taken by the link.
//
// A client costs the link no message unless the outbox was empty: the one that
// finds it so wakes the link, and what has come until the link looks is one
// batch. So batches grow with load, and an idle link adds no delay.
//
// Thread-safe. The lock is held for a push_back or a swap.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace pawl {

class outbox {
public:
  struct item {
    link_epoch epoch;
    std::string scope;
    message what;
  };

  /// True: it was empty, so the caller is to wake the link.
  [[nodiscard]] bool append(item x) {
    std::lock_guard lock{guard_};
    items_.push_back(std::move(x));
    return items_.size() == 1;
  }

  /// Swaps what is there with `spare`, which is emptied first and whose
  /// capacity serves the next clients.
  void take(std::vector<item>& spare) {
    spare.clear();
    std::lock_guard lock{guard_};
    items_.swap(spare);
  }

private:
  std::mutex guard_;
  std::vector<item> items_;
};

} // namespace pawl
