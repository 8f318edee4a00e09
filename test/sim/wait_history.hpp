// wait_history: who was in whose way when, as the checker of the simulator sees
// it: from the rows themselves, after every step. Its idea of time is the
// number of steps.
//
// A verdict must name a cycle all of which was there at one instant, and its
// youngest session; and a cycle gets one verdict.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"
#include "pawl/core/term.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pawl::sim {

/// A session waits for a term on a node, where another one is in its way.
using wait_edge = std::tuple<session_id, term, node_slot, session_id>;

class wait_history {
public:
  using age_query = std::function<std::uint64_t(const session_id&)>;

  /// One step has passed, and these edges are there.
  void note(const std::set<wait_edge>& now, const age_query& age_of);

  /// In the same step: this one would be there, had it not been judged at once.
  void also(const wait_edge& x);

  /// Throws a violation if the verdict is wrong. `single` says of a session
  /// that it never had two requests at once.
  void check_verdict(const walk_verdict_message& x,
                     const std::function<bool(const session_id&)>& single);

  /// Of those who wait now: a cycle, or if there is none all of them, in words.
  /// Empty if nobody waits.
  [[nodiscard]] std::string stuck() const;

private:
  /// First and last step.
  using span = std::pair<std::uint64_t, std::uint64_t>;

  /// Called with the step at which the last edge of the cycle began: each time
  /// that it was there.
  void each_time(const std::vector<wait_edge>& cycle,
                 const std::function<void(std::uint64_t)>& f) const;
  [[nodiscard]] bool all_there(const std::vector<wait_edge>& cycle,
                               std::uint64_t when) const;
  [[nodiscard]] std::pair<session_age, session_age> ages_since(
    const session_id& who, std::uint64_t when) const;
  [[nodiscard]] std::string who_is_younger(const walk_verdict_message& x,
                                           std::uint64_t since) const;
  [[nodiscard]] bool alone(const std::vector<wait_edge>& cycle,
                           std::uint64_t since) const;
  void check_once(const walk_verdict_message& x, std::vector<wait_edge> cycle,
                  std::uint64_t since);

  std::map<wait_edge, std::vector<span>> edges_;
  /// The age of a session, from that step on.
  std::map<session_id, std::vector<span>> ages_;
  /// Cycles that were told, with the step at which they were closed, and who
  /// was told.
  std::map<std::pair<std::vector<wait_edge>, std::uint64_t>, session_id> told_;
  std::uint64_t instant_ = 0;
};

} // namespace pawl::sim
