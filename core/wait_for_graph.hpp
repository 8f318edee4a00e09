// wait_for_graph: who waits for whom, as far as one search has found out, and
// the cycle through the session from which the search began.
//
//   session --(a wait of it: request, attempt, node)--> term --> session ...
//
// An edge leads from a wait to whoever is in its way: a holder, or a request
// ahead of it in the queue. Edges are keyed by (request, attempt, node): a
// request waits on several nodes at once, and a session may have several
// requests. A session is in its own way never: such edges are not taken in.
//
// What is known of a session is where it waits; what is known of a wait is what
// blocks it. Both are asked for once: whatever is reached for the first time is
// put on a list of things to ask, from which the search takes them.
//
// An edge that turned out to be over is removed and never taken in again (names
// of attempts are not used twice, so it cannot come back), and another path is
// looked for among the others. So a search ends. One thing is asked for again: a
// shared request names only one of the exclusive ones ahead of it, and of a
// session that holds exclusively only that hold; when it is over, the next one
// ahead, or another hold that keeps the mode, is in its place.
//
// The victim of a cycle is its youngest session: the one whose first lock of
// its present set came last by the Lamport time of its home; who holds nothing
// is younger than all others; ties by session id (Rosenkrantz, Stearns, Lewis
// 1978 choose by age for the same reason: the oldest is never a victim, so
// somebody always gets on).
//
// Invariants: G1 no edge leads from a session to itself. G2 every edge's wait
// has been reached, and so has the session that it leads to. G3 each session and
// each wait is put on the lists once, a shared one once more for
// each request ahead that was over. G4 `closing` is the number of edges that
// lead to the origin.
//
// Not thread-safe. Adding costs O(log n) per edge; looking for a cycle costs
// O(edges), and nothing unless an edge leads to the origin.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/lock_mode.hpp"
#include "pawl/core/term.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace pawl {

/// One attempt of a request that waits on one node.
struct wait_name {
  session_id session;
  request_id request;
  attempt_number attempt = 0;
  /// Where it waits.
  node_slot node = no_node;
  friend auto operator<=>(const wait_name&, const wait_name&) = default;
};

/// One attempt of a request, wherever.
struct attempt_name {
  request_id request;
  attempt_number attempt = 0;
  friend auto operator<=>(const attempt_name&, const attempt_name&) = default;
};

/// What blocks a wait, apart from those that are known to be over?
struct wait_question {
  wait_name wait;
  std::vector<attempt_name> except;
  friend bool operator==(const wait_question&, const wait_question&) = default;
};

/// How firmly somebody is in the way.
enum class standing : std::uint8_t {
  /// Not known; as an answer: not any more.
  none,
  /// Part of a request that is not whole yet: it can be given back unseen.
  partial,
  /// A client has it, or has a request of its own for it.
  whole,
};

/// Who is in the way of a wait.
struct blocker {
  enum class kind : std::uint8_t {
    /// Holds the term by a lock for that node alone. The request is its home
    /// and 0.
    direct_hold,
    /// Holds it as a part of a request for several nodes or terms.
    part_hold,
    /// Is ahead in the queue.
    queued,
  };

  session_id session;
  request_id request;
  attempt_number attempt = 0;
  kind how = kind::direct_hold;
  /// In the way of shared requests, too, although the hold says `shared`: the
  /// session had it exclusively and has kept that.
  bool kept = false;
  /// What the session's home has said in the same breath, if it is the one that
  /// was asked, and its age then.
  standing said = standing::none;
  session_age age = {};
  friend bool operator==(const blocker&, const blocker&) = default;
};

/// Where a session waits.
struct session_waits {
  session_id session;
  std::vector<wait_name> waits;
  friend bool operator==(const session_waits&, const session_waits&) = default;
};

/// What a wait is for, and who is in its way.
struct blocked_wait {
  wait_name wait;
  term what;
  lock_mode mode = lock_mode::exclusive;
  std::vector<blocker> by;
  friend bool operator==(const blocked_wait&, const blocked_wait&) = default;
};

class wait_for_graph {
public:
  /// When an edge was seen: by which answer, when that had been asked for, and
  /// what its node counted as its own ends by then.
  struct moment {
    std::uint64_t seen = 0;
    std::uint64_t asked = 0;
    std::uint64_t own_ends = 0;
  };

  struct edge {
    wait_name wait;
    term what;
    lock_mode mode = lock_mode::exclusive;
    blocker by;
    moment when;
  };

  /// A cycle: each edge leads to the session of the next one's wait.
  using cycle = std::vector<edge>;

  explicit wait_for_graph(const session_id& origin);

  // -- events -----------------------------------------------------------------

  /// The session is to be asked where it waits. Once; nothing afterwards. The
  /// origin is reached from the start, and asked only by this.
  void reach(const session_id& who);

  /// The wait is to be asked what blocks it. Once.
  void reach(const wait_name& what);

  /// The answers. Of what was not reached yet, too: the answering node goes on
  /// by itself.
  void add(const session_waits& x);
  void add(const blocked_wait& x, moment when);

  /// An edge is over: all edges from that wait to that session by that request.
  void remove(const edge& x);

  /// A request has ended, or its attempt: what it waits for, and for what it is
  /// waited.
  void remove(const request_id& request, attempt_number attempt);

  /// An attempt waits no longer on that node; it may elsewhere, and what it
  /// holds is still in the way.
  void remove(const wait_name& wait);

  /// Nothing is known any more of what is on that node, nor of its sessions.
  void remove(node_slot node);

  // -- what is to be asked ----------------------------------------------------

  [[nodiscard]] std::vector<session_id> take_sessions();
  [[nodiscard]] std::vector<wait_question> take_waits();

  // -- queries ----------------------------------------------------------------

  /// A shortest cycle through the origin, beginning with a wait of it.
  [[nodiscard]] std::optional<cycle> find_cycle() const;

  /// Whether there may be one. O(1).
  [[nodiscard]] bool closes() const noexcept {
    return closing_ > 0;
  }

  /// Sessions and waits that were reached, without the origin.
  [[nodiscard]] std::size_t visited() const noexcept {
    return sessions_.size() - 1 + waits_.size();
  }

  [[nodiscard]] std::size_t edges() const noexcept {
    return edge_count_;
  }

  [[nodiscard]] const session_id& origin() const noexcept {
    return origin_;
  }

  void check_invariants() const;

private:
  struct edge_key {
    wait_name wait;
    session_id to;
    request_id by;
    attempt_number attempt = 0;
    friend auto operator<=>(const edge_key&, const edge_key&) = default;
  };

  static edge_key key_of(const edge& x) noexcept;
  template <class Predicate>
  void remove_if(Predicate over);
  template <class Predicate>
  void ask_again_if(Predicate over);
  void ask_again(const wait_name& x, const attempt_name& over);

  const session_id origin_;
  bool origin_asked_ = false;
  std::set<session_id> sessions_;
  std::set<wait_name> waits_;
  std::set<session_id> sessions_to_ask_;
  std::set<wait_name> waits_to_ask_;
  /// Of shared waits: who was ahead of them, and is over.
  std::map<wait_name, std::vector<attempt_name>> over_;
  /// From each session, in the order in which they were found.
  std::map<session_id, std::vector<edge>> edges_;
  std::set<edge_key> known_; // also those that are over
  /// Attempts that have ended, as far as has been heard.
  std::set<attempt_name> ended_;
  /// By session: which shared waits named a request of it as what is ahead.
  std::map<session_id, std::vector<std::pair<wait_name, attempt_name>>> named_;
  /// What each session that was asked waits for.
  std::map<session_id, std::set<attempt_name>> answered_;
  std::size_t edge_count_ = 0;
  std::size_t closing_ = 0;
};

/// The place in `ages` of the youngest: the largest one.
[[nodiscard]] std::size_t youngest(std::span<const session_age> ages) noexcept;

} // namespace pawl
