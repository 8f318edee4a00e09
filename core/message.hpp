// What the nodes of a scope say to each other. docs/PROTOCOL.md has the table
// of who says what when; net/wire.hpp turns it into bytes.
//
// Every message travels inside a frame that names scope and link epoch, so
// none of them repeats it. On one link messages of a scope arrive in the order
// in which they were sent, requests behind everything else (see link).
//
// A message is a value that a peer made: it may be late, doubled, or wrong.
// Receivers answer nonsense with a refusal, never with an assertion.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/lock_mode.hpp"
#include "pawl/core/outcome.hpp"
#include "pawl/core/term.hpp"
#include "pawl/core/wait_for_graph.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace pawl {

/// A term and the mode in which it is wanted or held.
struct term_lock {
  term what;
  lock_mode mode = lock_mode::exclusive;
  friend bool operator==(const term_lock&, const term_lock&) = default;
};

/// home -> node: take all these terms, in this (canonical) order, for this
/// session. Answered by exactly one `granted` or `refused`, unless abandoned.
struct request_message {
  request_id id;
  attempt_number attempt = 0;
  session_id session;
  session_age age;
  std::vector<term_lock> terms;
  /// The largest token that the home (or, at the other nodes, the lead) knows
  /// for each term: the grant must be larger. Same length as `terms`.
  std::vector<fencing_token> carried;
  /// Whether the carried tokens are the lead's own grant: a node whose counters
  /// are all smaller adopts them, instead of issuing larger ones.
  bool adopt = false;
  /// Refuse with `busy` instead of waiting.
  bool no_wait = false;
  /// The session waits elsewhere, too: what is behind this request in a queue
  /// has to be able to follow it there.
  bool elsewhere = false;
  /// The session held nothing and waited for nothing when it asked: what it
  /// holds now are most likely parts of this very request, and contended
  /// hand-overs resolve by themselves. A search for a deadlock may wait a little.
  bool patient = false;
  friend bool operator==(const request_message&, const request_message&)
    = default;
};

/// node -> home: all terms are held here; one token for each, in order.
struct granted_message {
  request_id id;
  attempt_number attempt = 0;
  std::vector<fencing_token> tokens;
  friend bool operator==(const granted_message&, const granted_message&)
    = default;
};

/// node -> home: nothing of this attempt is held or waits here any more.
struct refused_message {
  request_id id;
  attempt_number attempt = 0;
  outcome why = outcome::pending;
  friend bool operator==(const refused_message&, const refused_message&)
    = default;
};

/// home -> node: this attempt has ended. Whatever of it waits leaves, whatever
/// of it is held is given back to its prior mode. Idempotent.
struct abandon_message {
  request_id id;
  attempt_number attempt = 0;
  friend bool operator==(const abandon_message&, const abandon_message&)
    = default;
};

/// home -> node: the hold that came from this request is over, for the terms
/// listed by index (all if empty). Idempotent.
struct release_message {
  request_id id;
  std::vector<std::uint16_t> which;
  friend bool operator==(const release_message&, const release_message&)
    = default;
};

/// home -> node: the session's hold on this term of the request becomes shared;
/// its token stays. Idempotent.
struct downgrade_message {
  request_id id;
  std::uint16_t which = 0;
  friend bool operator==(const downgrade_message&, const downgrade_message&)
    = default;
};

/// home -> node: the request as a whole got these tokens; raise your counters
/// to at least that and write them into the holds. Answered by `raised`.
/// `whole`: it is held everywhere; the answer to a `lost` that asked for that.
struct raise_message {
  request_id id;
  attempt_number attempt = 0;
  std::vector<fencing_token> tokens;
  bool whole = false;
  friend bool operator==(const raise_message&, const raise_message&) = default;
};

/// node -> home.
struct raised_message {
  request_id id;
  attempt_number attempt = 0;
  friend bool operator==(const raised_message&, const raised_message&)
    = default;
};

/// node -> home: the hold that came from this request has lost here, against a
/// hold with a larger token (a heal). A pending request gives way and asks
/// anew; a granted one ends: its home answers with an abandon, or if it holds
/// other terms still with a release.
struct lost_message {
  request_id id;
  std::uint16_t which = 0;
  /// A question: it is outranked only if it is not granted yet. If it is, its
  /// home answers with a raise to the tokens it has.
  bool if_partial = false;
  friend bool operator==(const lost_message&, const lost_message&) = default;
};

/// Both ways: this scope is now open here. Sent for each open scope when a
/// link comes up, and when a scope is opened. Answered by `hand_over`.
struct scope_opened_message {
  /// What the nodes of a scope must agree on; see scope options.
  std::uint64_t fingerprint = 0;
  friend bool operator==(const scope_opened_message&,
                         const scope_opened_message&)
    = default;
};

/// Both ways: this scope is closed here.
struct scope_closed_message {
  friend bool operator==(const scope_closed_message&,
                         const scope_closed_message&)
    = default;
};

/// An `every_node` hold as its home hands it over to a node that joins.
struct handed_over {
  request_id id;
  attempt_number attempt = 0;
  session_id session;
  session_age age;
  /// All that were asked for.
  std::vector<term_lock> terms;
  /// One for each; 0: given up since, and only keeps its place.
  std::vector<fencing_token> tokens;
  friend bool operator==(const handed_over&, const handed_over&) = default;
};

/// Answer to `scope_opened`: all `every_node` holds of the sender's sessions.
/// From here on the sender's view contains the receiver. Comes before any
/// request of the sender in this link epoch.
struct hand_over_message {
  /// False: the sender has not opened the scope, and is not in the view.
  bool open = true;
  std::vector<handed_over> holds;
  /// The largest token that the sender knows to have been issued by anybody,
  /// as the receiver's floor.
  fencing_token floor = 0;
  friend bool operator==(const hand_over_message&, const hand_over_message&)
    = default;
};

/// Answer to `scope_closed`: no request that was meant for that scope follows,
/// and nothing else that one opened anew could take for its own.
struct scope_closed_ack_message {
  friend bool operator==(const scope_closed_ack_message&,
                         const scope_closed_ack_message&)
    = default;
};

/// Answer to `hand_over`: all of it is installed.
struct hand_over_ack_message {
  std::uint32_t installed = 0;
  friend bool operator==(const hand_over_ack_message&,
                         const hand_over_ack_message&)
    = default;
};

/// home -> node: the session of this request, which is asked there, waits
/// elsewhere by now. The node marks what waits, and begins a search.
struct waits_elsewhere_message {
  request_id id;
  attempt_number attempt = 0;
  friend bool operator==(const waits_elsewhere_message&,
                         const waits_elsewhere_message&)
    = default;
};

/// Two sessions of a cycle that may be one: `wait` is what its session waits
/// for, `by` how that session is in the way of the one before it, which asks for
/// `what` in `mode` on `node`.
struct walk_claim {
  wait_name wait;
  blocker by;
  term what;
  lock_mode mode = lock_mode::exclusive;
  node_slot node = no_node;
  friend bool operator==(const walk_claim&, const walk_claim&) = default;
};

/// A search for a deadlock -> node: all that this step of it wants to know from
/// that node. Answered by exactly one walk_answer.
struct walk_question_message {
  /// Of the asker; comes back with the answer, as does `step`.
  std::uint64_t walk = 0;
  std::uint32_t step = 0;
  /// How much the answer may say.
  std::uint32_t budget = 0;
  /// The wait from whose session the search began, and where it ends.
  wait_name origin;
  /// Where do these wait? They live there.
  std::vector<session_id> sessions;
  /// What blocks these? They wait there.
  std::vector<wait_question> waits;
  /// Does all of this still hold? Of sessions that live there.
  std::vector<walk_claim> claims;
  friend bool operator==(const walk_question_message&,
                         const walk_question_message&)
    = default;
};

/// What a session's home says of a claim.
struct walk_standing {
  /// That attempt is still pending.
  bool waits = false;
  /// How it is in the other's way. `none`: not any more.
  standing how = standing::none;
  session_age age;
  friend bool operator==(const walk_standing&, const walk_standing&) = default;
};

/// node -> asker. The node has gone on by itself as far as it could: more may be
/// in it than was asked for.
struct walk_answer_message {
  std::uint64_t walk = 0;
  std::uint32_t step = 0;
  /// The budget was used up, and there is more.
  bool cut_short = false;
  /// How much had ended on the node, when it was asked, that no home had ended:
  /// see local_locks::own_ends. Equal numbers mean: nothing in between.
  std::uint64_t own_ends = 0;
  std::vector<session_waits> sessions;
  std::vector<blocked_wait> waits;
  /// One for each claim, in order.
  std::vector<walk_standing> standings;
  friend bool operator==(const walk_answer_message&, const walk_answer_message&)
    = default;
};

/// The answer of a node on which the scope is not open.
[[nodiscard]] walk_answer_message
nothing_known(const walk_question_message& x);

/// One edge of a cycle: `session` waits for `what` on `node`, where the next
/// session of the cycle is in its way.
struct cycle_step {
  session_id session;
  term what;
  lock_mode mode = lock_mode::exclusive;
  node_slot node = no_node;
  friend bool operator==(const cycle_step&, const cycle_step&) = default;
};

/// A search -> home of the session concerned, which does it only if that
/// attempt is still pending.
struct walk_verdict_message {
  session_id session;
  request_id request;
  attempt_number attempt = 0;
  /// `deadlock`, `probe_limit`; or `pending`: the request gives back what it has
  /// and asks again, and nobody sees it.
  outcome why = outcome::deadlock;
  std::vector<cycle_step> cycle;
  friend bool operator==(const walk_verdict_message&,
                         const walk_verdict_message&)
    = default;
};

using message
  = std::variant<request_message, granted_message, refused_message,
                 abandon_message, release_message, downgrade_message,
                 raise_message, raised_message, lost_message,
                 scope_opened_message, scope_closed_message, hand_over_message,
                 hand_over_ack_message, waits_elsewhere_message,
                 walk_question_message, walk_answer_message,
                 walk_verdict_message, scope_closed_ack_message>;

/// The word for a message, as in docs/PROTOCOL.md and in logs.
std::string_view name_of(const message& x) noexcept;

} // namespace pawl
