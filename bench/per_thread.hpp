// per_thread: a thing of each thread, written without a lock and read by others.

#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace bench {

/// One T for each thread that asks for its own. One object of a type T: the
/// thread's is found through a thread-local pointer.
template <class T>
class per_thread {
public:
  static T& mine() {
    thread_local T* x = make();
    return *x;
  }

  /// Calls `f` for each. They are kept when their threads end.
  template <class F>
  static void for_each(F f) {
    auto& x = self();
    std::lock_guard guard{x.lock_};
    for (auto& y : x.all_)
      f(*y);
  }

private:
  static per_thread& self() {
    static per_thread x;
    return x;
  }

  static T* make() {
    auto& x = self();
    std::lock_guard guard{x.lock_};
    return x.all_.emplace_back(std::make_unique<T>()).get();
  }

  std::mutex lock_;
  std::vector<std::unique_ptr<T>> all_;
};

} // namespace bench
