// deadlines: when the requests of one scope run out of time. A heap of four
// children per node, each entry of which knows its place.
//
// It is a container, not a timer: time is passed in, and whoever owns it keeps
// one timer for `next()`. The entries belong to their owners; an entry must
// leave before it is destroyed.
//
// Invariants: D1 no entry is earlier than its parent. D2 each entry's place is
// where it stands.
//
// Not thread-safe; deterministic: entries of the same moment come out in an
// order that follows from the sequence of calls alone.

#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace pawl {

/// The hook of whatever has a deadline: derive from it.
class deadline_entry {
public:
  /// The steady clock is the only one that decides anything.
  using time_point = std::chrono::steady_clock::time_point;

  deadline_entry() = default;

  deadline_entry(const deadline_entry&) = delete;
  deadline_entry& operator=(const deadline_entry&) = delete;

  /// Whether some `deadlines` lists it.
  [[nodiscard]] bool pending() const noexcept {
    return place_ != nowhere;
  }

  /// When it is due, or was when last listed.
  [[nodiscard]] time_point due() const noexcept {
    return due_;
  }

protected:
  ~deadline_entry();

private:
  friend class deadlines;

  static constexpr std::size_t nowhere = ~std::size_t{0};

  time_point due_{};
  std::size_t place_ = nowhere;
};

class deadlines {
public:
  using time_point = deadline_entry::time_point;

  deadlines() = default;

  deadlines(const deadlines&) = delete;
  deadlines& operator=(const deadlines&) = delete;

  /// Forgets what is listed.
  ~deadlines();

  // -- events -----------------------------------------------------------------

  /// Lists `x`, which is not listed yet. O(log n). True if it is the next one
  /// now: then the timer has to be set anew.
  /// @throws std::bad_alloc, and nothing has changed
  bool insert(deadline_entry& x, time_point due);

  /// Takes `x` out if it is listed: an end of any kind. O(log n). Returns
  /// whether it was.
  bool remove(deadline_entry& x) noexcept;

  /// Takes out the earliest entry that is due at `now`, or returns null.
  /// O(log n).
  deadline_entry* pop_due(time_point now) noexcept;

  // -- queries ----------------------------------------------------------------

  /// When the earliest entry is due. O(1).
  [[nodiscard]] std::optional<time_point> next() const noexcept {
    if (heap_.empty())
      return std::nullopt;
    return heap_.front().due;
  }

  [[nodiscard]] std::size_t size() const noexcept {
    return heap_.size();
  }

  [[nodiscard]] bool empty() const noexcept {
    return heap_.empty();
  }

  /// D1 and D2. O(n).
  void check_invariants() const;

private:
  /// The moment lies in the heap, so that comparing touches no entry.
  struct slot {
    time_point due;
    deadline_entry* entry;
  };

  static constexpr std::size_t children = 4;

  void rise(std::size_t place, slot x) noexcept;
  void sink(std::size_t place, slot x) noexcept;
  void put(std::size_t place, slot x) noexcept;
  void take_out(std::size_t place) noexcept;

  std::vector<slot> heap_;
};

} // namespace pawl
