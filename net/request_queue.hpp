// request_queue: the requests that a link has not sent yet, in order.
//
// What goes ahead of them may be about one that is still here: an abandon takes
// it out, and neither is sent; that its session waits elsewhere, too, becomes
// part of it, since it would arrive where nobody knows what it is about.
//
// One that is taken out leaves a hole, so that the others keep their places. An
// index by request and attempt is built when it is asked for first, and grows
// only then: most requests are sent before anybody looks for them.
//
// Invariants: Q1 holes_ is the number of empty places. Q2 an entry of the index
// names the place of that attempt, or one that has left the queue (below
// gone_). Q3 all requests in places below indexed_ are in the index.
//
// Not thread-safe. Everything is O(1) amortized, but for taking out a scope.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>

namespace pawl {

/// A message of a scope for a peer.
struct outgoing {
  std::string scope;
  message what;
};

class request_queue {
public:
  /// `what` is a request.
  void push(outgoing x);

  /// The next one; none if there is none left.
  [[nodiscard]] std::optional<outgoing> pop();

  /// True if the abandoned attempt was here; it is gone then.
  bool take_out(const std::string& scope, const abandon_message& x);

  /// True if the attempt is here; it says so itself then.
  bool tell(const std::string& scope, const waits_elsewhere_message& x);

  /// All of a scope: whoever opens it anew must not be asked what the old one
  /// was. O(requests).
  void take_out_all(const std::string& scope);

  void clear() noexcept;

  [[nodiscard]] std::size_t size() const noexcept {
    return places_.size() - holes_;
  }

private:
  struct key {
    std::string scope;
    request_id id;
    attempt_number attempt = 0;
    bool operator==(const key&) const = default;
  };

  struct key_hash {
    std::size_t operator()(const key& x) const noexcept;
  };

  std::optional<outgoing>* find(const key& what);

  std::deque<std::optional<outgoing>> places_;
  std::size_t holes_ = 0;
  /// Places are counted from the first since the queue was empty.
  std::unordered_map<key, std::uint64_t, key_hash> index_;
  std::uint64_t gone_ = 0;
  std::uint64_t indexed_ = 0;
};

} // namespace pawl
