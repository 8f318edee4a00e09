// walk: the searches for deadlocks that one node makes in one scope, and its
// answers to those of other nodes.
//
// A walk is kept by the node at which a wait was entered (or the news that its
// session waits elsewhere, too). It has all that is known; other nodes answer
// questions and keep nothing, so there is nothing to clean up or to lose when
// a node, a request or the walk itself goes (docs/decisions/0006).
//
//              questions out        answers in
//   start -> [ exploring ] <------------------------+
//                |  |  nothing left to ask          |
//                |  +-----------------> over        | one of it does not hold
//                |                                  | any more: its edges go,
//                | an edge leads to the origin      | the walk goes on
//                v                                  |
//            [ confirming ] ------------------------+
//                |  all homes say yes
//                v
//             verdict: the edges of what it ends go, and the walk goes on
//
// What is asked, in one message per node and step: where does this session
// wait? (its home knows) and what blocks this wait? (the node where it waits
// knows). Who is asked goes on by itself as far as it can. What can be asked on
// this node itself is a look-up.
//
// No phantoms. A cycle that was found is a candidate: all its edges have been
// seen, but at different times, and some may be over. So each session's home is
// asked once: is that attempt still pending, and is what is in the other's way
// still held or pending? And each node of an edge: has anything ended there by
// itself, when a link was lost, that its home may not know of yet? Seen by its
// node, an edge had begun; granted by both, it had not ended: so all existed at
// one instant, when the last of them was seen. No answer, no verdict; and if
// something has ended by itself, whatever it was, the walk begins anew. If the
// candidate was closed by an answer of the origin's home, and all other edges
// had been seen before that answer was asked for or are in it, what the home
// says of the origin in it counts: a ring of two over two nodes takes two
// message delays, and one for the verdict.
//
// No misses. Whoever enters the last fact of a cycle begins a walk after it is
// entered, from the session that changed; so it sees all of it.
//
// The verdict hits the youngest session of the cycle. If all that is in the way
// are parts of requests that are not whole, nobody is told: the youngest
// gives back and asks again. Its home judges: what has ended meanwhile, has.
//
// What cannot be asked, because there is no link, is asked when there is one
// again: whoever began a walk that had to do without a peer, or sent its
// verdict there, begins it once more then, if it still waits.
//
// Walks from one session are coalesced: one runs, others make it run once more.
// A walk dies with the wait it began with. One that visits more than its limit
// ends its request with `probe_limit`.
//
// Invariants: A1 one walk per origin. A2 a walk that is not over waits for an
// answer. A3 what it waits for are peers, never this node itself. A4 what is
// remembered for a peer is at most twice what waits, plus a few.
//
// Not thread-safe: it belongs to the owner of the scope's coordinator. Costs
// per wait visited: one look-up, or a share of a message.

#pragma once

#include "pawl/core/message.hpp"
#include "pawl/core/scope_effect.hpp"
#include "pawl/core/wait_for_graph.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace pawl {

/// What walks ask on their own node.
class walk_port {
public:
  virtual ~walk_port();

  /// Appends where a session of this node waits.
  virtual void waits_of(const session_id& who, std::vector<wait_name>& out) = 0;

  /// What blocks a wait on this node: at most `limit` blockers. False if it does
  /// not wait here (any more).
  [[nodiscard]] virtual bool blockers_of(const wait_question& what,
                                         std::size_t limit, blocked_wait& out)
    = 0;

  /// Whether a peer can be asked: who cannot will not answer.
  [[nodiscard]] virtual bool reachable(node_slot peer) = 0;

  /// local_locks::own_ends of this node.
  [[nodiscard]] virtual std::uint64_t own_ends() = 0;

  /// Whether it still waits on this node.
  [[nodiscard]] virtual bool waits_here(const wait_name& what) = 0;

  /// What a session of this node has to say of a claim.
  [[nodiscard]] virtual walk_standing standing_of(const walk_claim& x) = 0;

  /// A verdict on a session of this node. False: it is too late, and nothing
  /// was done.
  virtual bool sentence(const walk_verdict_message& x, scope_effects& out) = 0;

  /// A walk is over. For statistics.
  virtual void walked(std::size_t visited) = 0;
};

struct walk_options {
  node_slot self = no_node;
  /// How many nodes are configured.
  std::size_t nodes = 1;
  /// Sessions and waits that one walk may visit.
  std::size_t limit = 10'000;
};

class walks {
public:
  walks(const walk_options& options, walk_port& port);

  // -- events -----------------------------------------------------------------

  /// A wait was entered, on this node. With `all_waits` what is new may concern
  /// the others of its session, too: then they are asked for.
  void start(const wait_name& what, bool all_waits, scope_effects& out);

  /// walk_question, walk_answer, walk_verdict; others are ignored.
  void receive(node_slot from, const message& what, scope_effects& out);

  /// A peer is gone, or its scope is: it answers nothing any more.
  void peer_gone(node_slot which, scope_effects& out);

  /// There is a link to a peer (again).
  void peer_back(node_slot which, scope_effects& out);

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] std::size_t running() const noexcept {
    return walks_.size();
  }

  void check_invariants() const;

private:
  struct beginning {
    wait_name what;
    bool all_waits = false;
  };

  struct walk {
    explicit walk(beginning x) : first(x), graph(x.what.session) {
      // nop
    }

    beginning first;
    wait_for_graph graph;
    /// Taken from the graph: what is to be looked up, what is to be asked.
    std::vector<session_id> near_sessions;
    std::vector<wait_question> near_waits;
    std::vector<session_id> far_sessions;
    std::vector<wait_question> far_waits;
    /// An answer had more to say than it was allowed to.
    bool cut_short = false;
    std::uint64_t id = 0;
    std::uint32_t step = 0;
    /// Counts what is learnt: to tell what was seen before what.
    std::uint64_t clock = 0;
    /// Who owes the answer to an exploring question, with its step, the clock
    /// at which it was asked, and the waits that it asked for.
    struct owed {
      node_slot by;
      std::uint32_t step;
      std::uint64_t asked;
      std::vector<wait_name> waits;
    };
    std::vector<owed> answers;
    /// The candidate: empty if there is none.
    wait_for_graph::cycle candidate;
    std::vector<walk_standing> standings; // by place in the candidate
    struct to_confirm {
      node_slot by;
      std::uint32_t step;
      std::vector<std::size_t> places;
    };
    std::vector<to_confirm> confirmations;
    std::vector<beginning> again;
    /// Peers that it had to do without.
    std::set<node_slot> missed;
  };

  /// Beginnings for when a peer is back, by wait; the value is `all_waits`.
  struct remembered {
    std::map<wait_name, bool> all;
    std::size_t look_at = 64; // when it has so many, those that are over go
  };

  void receive_one(node_slot from, const walk_question_message& x,
                   scope_effects& out);
  void receive_one(node_slot from, const walk_answer_message& x,
                   scope_effects& out);
  void receive_one(node_slot from, const walk_verdict_message& x,
                   scope_effects& out);

  void begin(beginning what, scope_effects& out);
  bool go_on(walk& w, scope_effects& out);
  bool explore_here(walk& w);
  void sort_out(walk& w);
  void ask(walk& w, scope_effects& out);
  bool confirm(walk& w, scope_effects& out);
  void ask_to_confirm(walk& w, std::map<node_slot, walk::to_confirm> asked,
                      scope_effects& out);
  bool accept(walk& w, std::size_t place, const walk_standing& x);
  [[nodiscard]] static bool vouched_for(const walk& w, node_slot node,
                                        std::uint64_t own_ends) noexcept;
  bool conclude(walk& w, scope_effects& out);
  void begin_anew(walk& w);
  void drop_candidate(walk& w);
  void pass_verdict(walk& w, scope_effects& out);
  void give_up(walk& w, scope_effects& out);
  void end(const session_id& origin, scope_effects& out);
  void learn(walk& w, const walk::owed& asked, const walk_answer_message& x);
  void sentence(const walk_verdict_message& x, scope_effects& out);
  void send_verdict(walk_verdict_message x, scope_effects& out);
  [[nodiscard]] bool too_large(const walk& w) const noexcept;
  void remember(node_slot peer, const beginning& x);
  [[nodiscard]] bool still_waits(const beginning& x);
  [[nodiscard]] bool known(node_slot x) const noexcept {
    return to_index(x) < options_.nodes;
  }
  static walk_claim claim_of(const wait_for_graph::cycle& x, std::size_t place);

  const walk_options options_;
  walk_port& port_;
  std::map<session_id, walk> walks_;
  std::map<std::uint64_t, session_id> by_id_;
  std::map<node_slot, remembered> missed_;
  std::uint64_t next_id_ = 0;
};

} // namespace pawl
