// row_watch: whether tickets are granted in order. After each step on a node it
// looks at the queues of that node and compares them with what they were.
//
//   W1 nobody is granted past somebody who waits on, was ahead, and is in its
//      way; except an upgrade, and a session that held the term already or had
//      another request ahead of that one.
//   W2 nobody who was not in the queue is let in past it; unless holds may be
//      handed over (`strict` is false), since these go in front of any queue.
//
// It keeps a reference to each waiter that it has seen hanging, so that it can
// ask it how it ended.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/lock_table.hpp"
#include "pawl/core/term.hpp"
#include "pawl/core/waiter.hpp"

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace pawl::sim {

class row_watch {
public:
  explicit row_watch(bool strict) : strict_(strict) {
    // nop
  }

  row_watch(const row_watch&) = delete;
  row_watch& operator=(const row_watch&) = delete;

  ~row_watch();

  /// A step was taken on that node. Throws a violation.
  void look(std::size_t node, const lock_table& table, const term& what);

  /// The node is gone, or its scope is.
  void forget(std::size_t node);

private:
  struct place {
    waiter* who;
    session_id session; // the waiter's own way to it may be gone
    bool upgrade;
  };

  struct seen {
    std::vector<place> queue;
    std::map<session_id, lock_mode> holders;
  };

  [[nodiscard]] static seen see(const lock_table& table, const term& what);
  static void check_order(const seen& before);
  static void check_newcomers(const seen& before, const seen& now);
  static void let_go(seen& x) noexcept;

  const bool strict_;
  std::map<std::pair<std::size_t, term>, seen> rows_;
};

} // namespace pawl::sim
