#include "pawl/core/deadlines.hpp"

#include "pawl/core/ensure.hpp"

#include <algorithm>

namespace pawl {

namespace {

/// Memory is kept for so many entries, whatever the load has been.
constexpr std::size_t kept_capacity = 256;

} // namespace

deadline_entry::~deadline_entry() {
  ensure(!pending(), "what has a deadline leaves the deadlines before it ends");
}

deadlines::~deadlines() {
  for (auto& x : heap_)
    x.entry->place_ = deadline_entry::nowhere;
}

// -- events -------------------------------------------------------------------

bool deadlines::insert(deadline_entry& x, time_point due) {
  ensure(!x.pending(), "a deadline is listed once");
  heap_.push_back({due, &x});
  x.due_ = due;
  rise(heap_.size() - 1, heap_.back());
  return x.place_ == 0;
}

bool deadlines::remove(deadline_entry& x) noexcept {
  if (!x.pending())
    return false;
  ensure(x.place_ < heap_.size() && heap_[x.place_].entry == &x,
         "D2: an entry is listed here");
  take_out(x.place_);
  return true;
}

deadline_entry* deadlines::pop_due(time_point now) noexcept {
  if (heap_.empty() || heap_.front().due > now)
    return nullptr;
  auto* result = heap_.front().entry;
  take_out(0);
  return result;
}

// -- queries ------------------------------------------------------------------

void deadlines::check_invariants() const {
  for (std::size_t i = 0; i < heap_.size(); ++i) {
    auto& x = heap_[i];
    ensure(i == 0 || heap_[(i - 1) / children].due <= x.due,
           "D1: no entry is earlier than its parent");
    ensure(x.entry->place_ == i && x.entry->due_ == x.due,
           "D2: an entry knows its place");
  }
}

// -- helpers ------------------------------------------------------------------

void deadlines::take_out(std::size_t place) noexcept {
  heap_[place].entry->place_ = deadline_entry::nowhere;
  auto last = heap_.back();
  heap_.pop_back();
  if (place < heap_.size()) {
    if (place > 0 && last.due < heap_[(place - 1) / children].due)
      rise(place, last);
    else
      sink(place, last);
  }
  // Memory follows use down: a quarter full is halved.
  if (heap_.capacity() > kept_capacity
      && heap_.size() <= heap_.capacity() / 4) {
    try {
      std::vector<slot> smaller;
      smaller.reserve(heap_.capacity() / 2);
      smaller.assign(heap_.begin(), heap_.end());
      heap_.swap(smaller);
    } catch (...) {
      // It stays as large as it is.
    }
  }
}

void deadlines::rise(std::size_t place, slot x) noexcept {
  while (place > 0) {
    auto parent = (place - 1) / children;
    if (heap_[parent].due <= x.due)
      break;
    put(place, heap_[parent]);
    place = parent;
  }
  put(place, x);
}

void deadlines::sink(std::size_t place, slot x) noexcept {
  for (;;) {
    auto first = place * children + 1;
    if (first >= heap_.size())
      break;
    auto end = std::min(first + children, heap_.size());
    auto least = first;
    for (auto i = first + 1; i < end; ++i)
      if (heap_[i].due < heap_[least].due)
        least = i;
    if (x.due <= heap_[least].due)
      break;
    put(place, heap_[least]);
    place = least;
  }
  put(place, x);
}

void deadlines::put(std::size_t place, slot x) noexcept {
  heap_[place] = x;
  x.entry->place_ = place;
}

} // namespace pawl
