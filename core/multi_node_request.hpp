// multi_node_request: one request for several nodes, or for several terms, at
// its home: all of it is granted, or all of it is given back.
//
//   +------+    +-------------+    +---------------+    +---------+
//   | idle | -> | asking_lead | -> | asking_others | -> | granted | --+
//   +------+    +-------------+    +---------------+    +---------+   |
//                   ^    ^             |    ^  |             ^        v
//                   |    +-------------+    |  v             |    +-------+
//                   |                      +---------+       |    | ended |
//                   +--------------------- | raising | ------+    +-------+
//                                          +---------+     (from anywhere)
//
//   idle           start                             -> asking_lead
//   asking_lead    granted, by the lead              -> asking_others
//   asking_others  granted, by the last:
//                    exclusive tokens agree          -> granted
//                    they differ                     -> raising
//   raising        raised, by the last               -> granted
//   raising        view_changed, a node entered      -> asking_others
//   asking_others, raising
//                  view_changed, the last one left   -> granted, raising
//   any of the three
//                  view_changed, another lead        -> asking_lead
//                  give_back_and_ask_again, lost     -> asking_lead
//   all but granted
//                  cancel, fail, refused, node_gone  -> ended
//   granted        release of all, lose, lost,
//                  node_gone                         -> ended
//
// The nodes are asked in the node order of the scope. At the lead, the first,
// the request takes all its terms in canonical order; then it asks all others
// at once. So rivals over the same nodes wait at the lead and hold nothing
// elsewhere. One round trip if the lead is here or the only other node, else
// two. The others adopt the lead's tokens where their own are smaller; where
// one of them had to issue a larger token for an exclusive term, one extra
// round raises the rest before anybody sees the grant (rare). A shared grant
// carries the largest value reported and is never raised.
//
// `every_node` follows the view. While the lead stays, the request keeps its
// place there: nodes that left are dropped, new ones are asked once the lead
// has granted. When the lead changes, all is given back and the new lead is
// asked, with a new attempt number: answers to older attempts are not believed.
// Progress: the age is fixed at the first partial grant and kept over attempts.
//
// Invariants:
//   M1 parts are in node order, without doubles.
//   M2 asking_lead: the lead is asked, no other node is.
//   M3 asking_others: the lead is held; all others are asked, held or being
//      raised, and at least one is asked.
//   M4 raising: all are held or being raised, at least one is being raised.
//   M5 granted: all are held, and every exclusive term has the same token at
//      all of them.
//   M6 idle, ended: no parts.
//   M7 the age is fixed as soon as a part has been held.
//
// Not thread-safe: it belongs to the coordinator of its scope. O(nodes + terms)
// per event and in size.

#pragma once

#include "pawl/core/message.hpp"
#include "pawl/core/node_order.hpp"
#include "pawl/core/scope_effect.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pawl {

/// Which nodes a request is for.
enum class node_choice : std::uint8_t {
  /// Exactly these; losing one of them loses all.
  listed,
  /// All that have the scope open, as they come and go.
  every_node,
};

/// What a client asks for.
struct request_spec {
  request_id id;
  session_id session;
  /// Of the session when it asked.
  session_age age;
  /// In canonical order, each term once.
  std::vector<term_lock> terms;
  node_choice choice = node_choice::every_node;
  /// For `listed`. Empty: granted at once, and holds nothing.
  std::vector<node_slot> nodes;
  bool no_wait = false;
  /// The session has another pending request.
  bool elsewhere = false;
  /// The session held nothing and waited for nothing when it asked.
  bool patient = false;
};

/// Brings terms into canonical order; of doubles the stronger mode remains.
void to_canonical_order(std::vector<term_lock>& terms);

/// Whether terms are in canonical order, each once, each short enough and in a
/// mode that can be asked for.
[[nodiscard]] outcome check_terms(std::span<const term_lock> terms) noexcept;

class multi_node_request {
public:
  enum class phase : std::uint8_t {
    idle,
    asking_lead,
    asking_others,
    raising,
    granted,
    ended,
  };

  /// `order` outlives the request.
  multi_node_request(request_spec spec, const node_order& order);

  // -- events while it is pending ---------------------------------------------

  /// Asks the lead of `nodes`. `carried` is what the home knows to have been
  /// issued for each term.
  void start(std::vector<node_slot> nodes, std::vector<fencing_token> carried,
             scope_effects& out);

  /// It cannot be started: a node is not there.
  void fail(outcome why, node_slot concerned, scope_effects& out);

  /// A node holds all terms. `lamport` is the time of this home: the age of a
  /// session that held nothing before. An answer that fits no part is answered
  /// with an abandon.
  void granted(node_slot from, const granted_message& what,
               std::uint64_t lamport, scope_effects& out);

  /// A node holds nothing and waits no more.
  void refused(node_slot from, const refused_message& what, scope_effects& out);

  void raised(node_slot from, const raised_message& what, scope_effects& out);

  /// The client does not want it any more. Nothing if it is granted: then the
  /// client's word judges, and `release` follows.
  void cancel(outcome why, scope_effects& out);

  /// A cycle of partial grants is broken here: everything is given back and
  /// asked for again, with the age it has.
  void give_back_and_ask_again(scope_effects& out);

  /// Another request of its session was granted: of a term that both want
  /// exclusively, on a node that both are for, this one will not have an older
  /// token.
  void sibling_granted(const multi_node_request& other);

  /// Its session has another pending request now: the nodes that are asked, and
  /// those that will be, are told.
  void waits_elsewhere(scope_effects& out);

  // -- events in any phase ----------------------------------------------------

  /// `every_node`: the view is this now. A granted request only shrinks; it
  /// grows by `hand_over_to`.
  void view_changed(std::vector<node_slot> nodes, scope_effects& out);

  /// `listed`: a node of the list is gone, with all that it held for us.
  void node_gone(node_slot which, loss why, scope_effects& out);

  /// A node says that a hold there was outranked. While pending, the request
  /// gives way and asks anew. True if it is not held there any more.
  bool lost(node_slot from, const lost_message& what, scope_effects& out);

  // -- events once it is granted ----------------------------------------------

  /// Its client had ended it before, and has seen nothing: it falls back to
  /// what its session held before, on all nodes.
  void take_back(scope_effects& out);

  /// All of it is taken away, on account of `gone`, which needs no telling.
  void lose(loss why, node_slot gone, scope_effects& out);

  /// Gives up these terms (all if empty), on all nodes.
  void release(std::span<const std::uint16_t> which, scope_effects& out);

  /// A term that is held. Its nodes are told whatever mode it is in: they may
  /// have kept it exclusive for another handle of the session.
  void downgrade(std::uint16_t which, scope_effects& out);

  /// `every_node`: `node` enters the hold's nodes and learns of the hold, in
  /// one step.
  [[nodiscard]] handed_over hand_over_to(node_slot node);

  // -- queries ----------------------------------------------------------------

  [[nodiscard]] const request_id& id() const noexcept {
    return spec_.id;
  }

  [[nodiscard]] const request_spec& spec() const noexcept {
    return spec_;
  }

  [[nodiscard]] phase state() const noexcept {
    return phase_;
  }

  [[nodiscard]] bool pending() const noexcept {
    return phase_ != phase::granted && phase_ != phase::ended;
  }

  [[nodiscard]] attempt_number attempt() const noexcept {
    return attempt_;
  }

  [[nodiscard]] const session_age& age() const noexcept {
    return spec_.age;
  }

  [[nodiscard]] bool involves(node_slot node) const noexcept {
    return find(node) != nullptr;
  }

  /// The index of a term.
  [[nodiscard]] std::optional<std::uint16_t> find_term(
    const term& what) const noexcept;

  /// Its nodes, in node order.
  [[nodiscard]] std::vector<node_slot> nodes() const;

  /// The nodes that have not answered, where it may wait.
  [[nodiscard]] std::vector<node_slot> asked() const;

  /// Whether that node is asked and has not answered.
  [[nodiscard]] bool asks(node_slot node) const noexcept;

  /// How it is in the way of a request for `what` in `mode`, on one of its
  /// nodes. `kept`: also if its hold is shared by now.
  [[nodiscard]] standing in_the_way(const term& what, lock_mode mode,
                                    bool kept) const noexcept;

  /// Once granted: one token per term.
  [[nodiscard]] const std::vector<fencing_token>& tokens() const noexcept {
    return tokens_;
  }

  void check_invariants() const;

private:
  enum class part_state : std::uint8_t { unasked, asked, held, raising };

  /// What one node does for this attempt.
  struct part {
    node_slot node = no_node;
    part_state state = part_state::unasked;
    std::vector<fencing_token> tokens;
    /// It knows that the session waits elsewhere, too.
    bool told = false;
  };

  void ask(part& x, bool elsewhere, scope_effects& out);
  void tell_elsewhere(scope_effects& out);
  void ask_lead(scope_effects& out);
  void ask_others(scope_effects& out);
  void raise_or_finish(scope_effects& out);
  [[nodiscard]] bool behind(const part& x) const noexcept;
  void raise(part& x, scope_effects& out);
  void end(outcome why, node_slot concerned, scope_effects& out);
  void abandon_all(scope_effects& out);
  void stop();
  void ask_new_lead(scope_effects& out);
  [[nodiscard]] std::vector<std::uint16_t> terms_left() const;
  [[nodiscard]] part* find(node_slot node) noexcept;
  [[nodiscard]] const part* find(node_slot node) const noexcept;

  request_spec spec_;
  const node_order* order_;
  phase phase_ = phase::idle;
  attempt_number attempt_ = 0;
  bool held_before_ = false; // a part has been held, in any attempt
  std::vector<part> parts_;  // in node order: the lead is first
  /// The largest token known for each term, from wherever: what the lead has
  /// to exceed.
  std::vector<fencing_token> carried_;
  /// The largest one that a node gave for each term in this attempt. Not
  /// `carried_`: a session that asks again gets the token that it has.
  std::vector<fencing_token> tokens_;
};

} // namespace pawl
