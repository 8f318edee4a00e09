// How requests end, how releases end, and what a user is told about it.
//
// Every request ends exactly once, in one of these. `timeout`, `busy` and
// `deadlock` are normal outcomes, not errors.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/lock_mode.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pawl {

/// Who brought an outcome about.
enum class cause : std::uint8_t { nobody, caller, time, peer, us };

enum class outcome : std::uint8_t {
  /// Not ended: the request waits. Never told to a user.
  pending,
  /// The lock is held.
  granted,
  /// `no_wait` was asked and the request would have had to wait. (caller)
  busy,
  /// The deadline of the request passed at its home. (time)
  timeout,
  /// The request closed a cycle of waiting sessions and its session is the
  /// youngest of it; the session keeps what it holds. (peer) Also: a blocking
  /// wait for what another session of the same actor or thread holds, which
  /// could not let go while it is blocked here. (caller)
  deadlock,
  /// The search for a cycle visited more than `probe-limit`. (us)
  probe_limit,
  /// A node of the request's list is down; the failure names it. (peer)
  node_down,
  /// The scope is not open on a node of the list, or was closed. (caller)
  scope_closed,
  /// Cancelled by its cancel token. (caller)
  cancelled,
  /// The session's actor ended, or the session was born ended. (caller)
  session_ended,
  /// `max-waiters` of the scope was reached. (us)
  too_many_waiters,
  /// The canonical bytes of the term exceed 64 KiB. (caller)
  term_too_large,
  /// The node shuts down. (caller)
  shutting_down,
  /// The body of a transaction gave up, or threw. Never how a request ends.
  /// (caller)
  body_failed,
};

inline constexpr outcome last_outcome = outcome::body_failed;

/// The word for an outcome, as in documentation, options and logs.
std::string_view to_string(outcome x) noexcept;

/// Who brought it about.
cause cause_of(outcome x) noexcept;

/// One sentence that explains the outcome to a reader who sees only it.
std::string_view sentence(outcome x) noexcept;

/// What `release()` found.
enum class release_result : std::uint8_t {
  /// This call gave the lock up. Parts on other nodes may be under way.
  released,
  /// It had been given up before: by a call, or with its session.
  already_released,
  /// It had been taken away: a node of its list went down or closed the scope,
  /// or a hold with a larger token won after a cut had healed.
  lost,
};

std::string_view to_string(release_result x) noexcept;

/// One edge of a reported cycle: `session`, which lives on `home`, waits for
/// `term` on `node`, where the next session of the cycle is in its way.
struct cycle_edge {
  session_id session;
  std::string term;
  std::string node;
  lock_mode mode = lock_mode::none;
  friend bool operator==(const cycle_edge&, const cycle_edge&) = default;
};

/// A deadlock that was resolved by telling one of its sessions.
struct deadlock_report {
  /// Who was told.
  session_id victim;
  std::vector<cycle_edge> cycle;
};

/// Why a request did not get its lock.
struct failure {
  outcome why = outcome::pending;
  /// The node concerned, where there is one: down, scope closed, refused.
  std::string node;
  /// The whole cycle, for a `deadlock` that a search or two upgrades found.
  /// Empty for a blocking wait for oneself, and for all other outcomes.
  std::vector<cycle_edge> cycle;
  /// One sentence for a log.
  std::string message;
};

/// Makes a failure with its sentence, which names `node` if there is one.
failure make_failure(outcome why, std::string node = {});

std::string to_string(const failure& x);

} // namespace pawl
