#include "wait_history.hpp"

#include "options.hpp"
#include "trace.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace pawl::sim {

namespace {

std::string text(const wait_edge& x) {
  const auto& [who, what, node, by] = x;
  return fmt::format("{} for {} on {} because of {}; ", to_string(who),
                     to_string(what), to_index(node), to_string(by));
}

std::vector<wait_edge> edges_of(const walk_verdict_message& x) {
  std::vector<wait_edge> result;
  for (std::size_t i = 0; i < x.cycle.size(); ++i) {
    const auto& s = x.cycle[i];
    result.emplace_back(s.session, s.what, s.node,
                        x.cycle[(i + 1) % x.cycle.size()].session);
  }
  return result;
}

} // namespace

void wait_history::note(const std::set<wait_edge>& now,
                        const age_query& age_of) {
  ++instant_;
  std::set<session_id> sessions;
  for (const auto& e : now) {
    also(e);
    sessions.insert({std::get<0>(e), std::get<3>(e)});
  }
  for (const auto& who : sessions) {
    auto age = age_of(who);
    auto& known = ages_[who];
    if (known.empty() || known.back().second != age)
      known.push_back({instant_, age});
  }
}

void wait_history::also(const wait_edge& x) {
  auto& all = edges_[x];
  if (all.empty() || all.back().second + 1 < instant_)
    all.push_back({instant_, instant_});
  else
    all.back().second = instant_;
}

void wait_history::check_verdict(
  const walk_verdict_message& x,
  const std::function<bool(const session_id&)>& single) {
  auto cycle = edges_of(x);
  std::set<std::uint64_t> times;
  each_time(cycle, [&](std::uint64_t when) { times.insert(when); });
  if (times.empty()) {
    std::string all;
    for (const auto& e : cycle)
      all += text(e);
    throw violation{"a verdict names a cycle that never was: " + all};
  }
  // It may have been over and have come again since it was confirmed, and its
  // sessions may have got an age in between.
  auto since = std::find_if(times.rbegin(), times.rend(), [&](auto when) {
    return who_is_younger(x, when).empty();
  });
  if (since == times.rend())
    throw violation{who_is_younger(x, *times.rbegin())};
  auto all_single
    = std::all_of(x.cycle.begin(), x.cycle.end(),
                  [&](const cycle_step& s) { return single(s.session); });
  if (all_single && alone(cycle, *since))
    check_once(x, std::move(cycle), *since);
}

/// Whether none of its sessions waits for anybody else, or has since.
bool wait_history::alone(const std::vector<wait_edge>& cycle,
                         std::uint64_t since) const {
  for (const auto& e : cycle)
    for (auto i = edges_.lower_bound({std::get<0>(e), term{}, {}, {}});
         i != edges_.end() && std::get<0>(i->first) == std::get<0>(e); ++i)
      if (i->first != e && i->second.back().second >= since)
        return false;
  return true;
}

void wait_history::each_time(
  const std::vector<wait_edge>& cycle,
  const std::function<void(std::uint64_t)>& f) const {
  for (const auto& e : cycle)
    if (auto i = edges_.find(e); i != edges_.end())
      for (const auto& during : i->second)
        if (all_there(cycle, during.first))
          f(during.first);
}

bool wait_history::all_there(const std::vector<wait_edge>& cycle,
                             std::uint64_t when) const {
  return std::all_of(cycle.begin(), cycle.end(), [&](const wait_edge& e) {
    auto i = edges_.find(e);
    return i != edges_.end()
           && std::any_of(
             i->second.begin(), i->second.end(), [=](const span& during) {
               return during.first <= when && when <= during.second;
             });
  });
}

/// Ages change while a cycle is there only from "nothing" to something.
std::pair<session_age, session_age> wait_history::ages_since(
  const session_id& who, std::uint64_t since) const {
  session_age least{session_age::holds_nothing, who};
  session_age most{0, who};
  auto last = session_age::holds_nothing;
  auto take = [&](std::uint64_t age) {
    least.lamport = std::min(least.lamport, age);
    most.lamport = std::max(most.lamport, age);
  };
  if (auto i = ages_.find(who); i != ages_.end())
    for (auto [when, age] : i->second) {
      if (when > since) {
        take(last);
        take(age);
      }
      last = age;
    }
  take(last);
  return {least, most};
}

/// In words; empty if the one who is told is the youngest.
std::string wait_history::who_is_younger(const walk_verdict_message& x,
                                         std::uint64_t since) const {
  auto mine = ages_since(x.session, since).second;
  for (const auto& s : x.cycle) {
    auto its = ages_since(s.session, since).first;
    if (s.session != x.session && its >= mine)
      return fmt::format("{} of {}.{} is younger than {} of {}.{}",
                         to_string(s.session), its.lamport, its.who.serial,
                         to_string(x.session), mine.lamport, mine.who.serial);
  }
  return {};
}

void wait_history::check_once(const walk_verdict_message& x,
                              std::vector<wait_edge> cycle,
                              std::uint64_t since) {
  std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()),
              cycle.end());
  auto [i, fresh] = told_.try_emplace({std::move(cycle), since}, x.session);
  if (!fresh && i->second != x.session)
    throw violation{
      fmt::format("a second verdict for one cycle, on {} after {}",
                  to_string(x.session), to_string(i->second))};
}

std::string wait_history::stuck() const {
  std::string result;
  std::map<session_id, std::vector<const wait_edge*>> from;
  for (const auto& [e, all] : edges_)
    if (all.back().second == instant_) {
      from[std::get<0>(e)].push_back(&e);
      result += text(e);
    }
  for (const auto& [who, edges] : from) {
    std::map<session_id, const wait_edge*> came;
    std::vector<session_id> next{who};
    for (std::size_t i = 0; i < next.size(); ++i)
      for (const auto* e : from[next[i]])
        if (came.emplace(std::get<3>(*e), e).second)
          next.push_back(std::get<3>(*e));
    if (came.count(who) == 0)
      continue;
    result.clear();
    auto at = who;
    do {
      result += text(*came[at]);
      at = std::get<0>(*came[at]);
    } while (at != who);
    break;
  }
  return result;
}

} // namespace pawl::sim
