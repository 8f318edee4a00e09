#include "trace.hpp"

#include <fmt/format.h>

#include <variant>

namespace pawl::sim {

namespace {

std::string text(const blocked_wait& x) {
  auto result = fmt::format("; {} for {}{} because of", sim::text(x.wait),
                            to_string(x.what), letter(x.mode));
  for (const auto& by : x.by)
    result += fmt::format(" {} ({}.{}{}{})", to_string(by.session),
                          to_string(by.request), by.attempt,
                          by.how == blocker::kind::queued ? " waiting" : "",
                          by.kept ? " kept" : "");
  return result;
}

std::string text(const walk_standing& x) {
  return fmt::format("; {}, {}", x.waits ? "waits" : "no",
                     x.how == standing::none      ? "no"
                     : x.how == standing::partial ? "partial"
                                                  : "whole");
}

template <class Question>
std::string text_of_question(const Question& x) {
  std::string result;
  for (const auto& who : x.sessions)
    result += "; where is " + to_string(who);
  for (const auto& y : x.waits)
    result += "; what blocks " + sim::text(y.wait);
  for (const auto& y : x.claims)
    result += fmt::format("; is {} in the way by {}.{}", sim::text(y.wait),
                          to_string(y.by.request), y.by.attempt);
  return result;
}

template <class Answer>
std::string text_of_answer(const Answer& x) {
  std::string result;
  for (const auto& who : x.sessions)
    for (const auto& y : who.waits)
      result += "; " + sim::text(y);
  for (const auto& y : x.waits)
    result += text(y);
  for (const auto& y : x.standings)
    result += text(y);
  return result;
}

template <class T>
std::string text_of(const T& x) {
  std::string result;
  if constexpr (requires { x.id; })
    result += " " + to_string(x.id);
  if constexpr (requires { x.attempt; })
    result += fmt::format(".{}", x.attempt);
  if constexpr (requires { x.carried; })
    result += fmt::format("{}, carried{}{}", sim::text(x.terms),
                          sim::text(x.carried), x.adopt ? ", adopt" : "");
  if constexpr (requires { x.tokens; })
    result += sim::text(x.tokens);
  if constexpr (requires { x.if_partial; })
    result
      += fmt::format(" [{}]{}", x.which, x.if_partial ? " if partial" : "");
  if constexpr (requires { x.why; })
    result += fmt::format(" {}", to_string(x.why));
  if constexpr (requires { x.walk; })
    result += fmt::format(" {}.{}", x.walk, x.step);
  if constexpr (requires { x.claims; })
    result += text_of_question(x);
  if constexpr (requires { x.standings; })
    result += text_of_answer(x);
  if constexpr (requires { x.holds; })
    for (const auto& hold : x.holds)
      result += fmt::format("; {}{},{}", to_string(hold.id),
                            sim::text(hold.terms), sim::text(hold.tokens));
  return result;
}

} // namespace

char letter(lock_mode x) noexcept {
  return x == lock_mode::exclusive ? 'X' : x == lock_mode::shared ? 'S' : '-';
}

std::string text(const std::vector<term_lock>& terms) {
  std::string result;
  for (const auto& x : terms)
    result += fmt::format(" {}{}", to_string(x.what), letter(x.mode));
  return result;
}

std::string text(const std::vector<fencing_token>& tokens) {
  std::string result;
  for (auto x : tokens)
    result += fmt::format(" {}", x);
  return result;
}

std::string text(const std::vector<node_slot>& nodes) {
  std::string result;
  for (auto x : nodes)
    result += fmt::format(" {}", to_index(x));
  return result;
}

std::string text(const wait_name& x) {
  return fmt::format("{} ({}.{} on {})", to_string(x.session),
                     to_string(x.request), x.attempt, to_index(x.node));
}

std::string text(const message& x) {
  return std::string{name_of(x)}
         + std::visit([](const auto& y) { return text_of(y); }, x);
}

} // namespace pawl::sim
