#include "pawl/core/outcome.hpp"

#include <fmt/format.h>

#include <array>

namespace pawl {

namespace {

struct row {
  std::string_view word;
  cause by;
  std::string_view text;
};

constexpr std::array<row, static_cast<std::size_t>(last_outcome) + 1> rows{{
  {"pending", cause::nobody, "the request waits"},
  {"granted", cause::nobody, "the lock is held"},
  {"busy", cause::caller,
   "the lock was not free and the request was told not to wait"},
  {"timeout", cause::time,
   "the lock was not granted before the request's deadline"},
  {"deadlock", cause::peer,
   "the request closed a cycle of waiting sessions and its session is the "
   "youngest of them; what the session holds it keeps"},
  {"probe_limit", cause::us,
   "the search for a cycle visited more locks and sessions than probe-limit"},
  {"node_down", cause::peer, "a node that the request needs is down"},
  {"scope_closed", cause::caller,
   "the scope is not open on a node that the request needs"},
  {"cancelled", cause::caller, "the request was cancelled"},
  {"session_ended", cause::caller,
   "the session has ended, or its actor has terminated"},
  {"too_many_waiters", cause::us,
   "the scope already has max-waiters requests waiting"},
  {"term_too_large", cause::caller,
   "the canonical bytes of the term exceed 65536"},
  {"shutting_down", cause::caller, "the node is shutting down"},
  {"body_failed", cause::caller, "the body gave up by itself, or threw"},
}};

const row& row_of(outcome x) noexcept {
  auto index = static_cast<std::size_t>(x);
  return rows[index < rows.size() ? index : 0];
}

} // namespace

std::string_view to_string(outcome x) noexcept {
  return row_of(x).word;
}

cause cause_of(outcome x) noexcept {
  return row_of(x).by;
}

std::string_view sentence(outcome x) noexcept {
  return row_of(x).text;
}

std::string_view to_string(release_result x) noexcept {
  switch (x) {
    case release_result::released:
      return "released";
    case release_result::already_released:
      return "already_released";
    default:
      return "lost";
  }
}

failure make_failure(outcome why, std::string node) {
  failure result;
  result.why = why;
  result.message = node.empty() ? std::string{sentence(why)}
                                : fmt::format("{} ({})", sentence(why), node);
  result.node = std::move(node);
  return result;
}

std::string to_string(const failure& x) {
  auto text = fmt::format("{}: {}", to_string(x.why), x.message);
  for (const auto& edge : x.cycle)
    text += fmt::format("; session {} waits for {} on {} ({})",
                        to_string(edge.session), edge.term, edge.node,
                        to_string(edge.mode));
  return text;
}

} // namespace pawl
