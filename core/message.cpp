#include "pawl/core/message.hpp"

#include <array>

namespace pawl {

std::string_view name_of(const message& x) noexcept {
  constexpr std::array<std::string_view, std::variant_size_v<message>> names{
    "request",       "granted",      "refused",         "abandon",
    "release",       "downgrade",    "raise",           "raised",
    "lost",          "scope_opened", "scope_closed",    "hand_over",
    "hand_over_ack", "waits_elsewhere", "walk_question", "walk_answer",
    "walk_verdict",  "scope_closed_ack"};
  return names[x.index()];
}

walk_answer_message nothing_known(const walk_question_message& x) {
  walk_answer_message result;
  result.walk = x.walk;
  result.step = x.step;
  result.standings.resize(x.claims.size());
  return result;
}

} // namespace pawl
