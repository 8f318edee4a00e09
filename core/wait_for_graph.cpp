#include "pawl/core/wait_for_graph.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/core/planted.hpp"

#include <algorithm>
#include <utility>

namespace pawl {

wait_for_graph::wait_for_graph(const session_id& origin) : origin_(origin) {
  sessions_.insert(origin);
}

// -- events -------------------------------------------------------------------

void wait_for_graph::reach(const session_id& who) {
  if (who == origin_) {
    if (!std::exchange(origin_asked_, true))
      sessions_to_ask_.insert(who);
  } else if (sessions_.insert(who).second) {
    sessions_to_ask_.insert(who);
  }
}

void wait_for_graph::reach(const wait_name& what) {
  if (waits_.insert(what).second)
    waits_to_ask_.insert(what);
}

void wait_for_graph::add(const session_waits& x) {
  sessions_.insert(x.session);
  sessions_to_ask_.erase(x.session);
  if (x.session == origin_)
    origin_asked_ = true;
  auto& all = answered_[x.session];
  for (const auto& wait : x.waits)
    if (wait.session == x.session) {
      all.insert({wait.request, wait.attempt});
      reach(wait);
    }
  for (const auto& [wait, ahead] : named_[x.session])
    if (all.count(ahead) == 0)
      ask_again(wait, ahead);
}

void wait_for_graph::add(const blocked_wait& x, moment when) {
  sessions_.insert(x.wait.session);
  waits_.insert(x.wait);
  waits_to_ask_.erase(x.wait);
  for (const auto& by : x.by) {
    if (by.session == x.wait.session)
      continue; // nobody is in his own way
    attempt_name ahead{by.request, by.attempt};
    auto in_line
      = x.mode == lock_mode::shared && by.how == blocker::kind::queued;
    if (ended_.count(ahead) != 0) {
      // The node has not heard of it yet.
      if (x.mode == lock_mode::shared)
        ask_again(x.wait, ahead);
      continue;
    }
    if (in_line) {
      named_[by.session].push_back({x.wait, ahead});
      if (auto i = answered_.find(by.session);
          i != answered_.end() && i->second.count(ahead) == 0)
        ask_again(x.wait, ahead);
    }
    edge fresh{x.wait, x.what, x.mode, by, when};
    if (!known_.insert(key_of(fresh)).second)
      continue;
    edges_[x.wait.session].push_back(std::move(fresh));
    ++edge_count_;
    if (by.session == origin_)
      ++closing_;
    else
      reach(by.session);
  }
}

void wait_for_graph::remove(const edge& x) {
  auto key = key_of(x);
  ask_again_if([&](const edge& y) { return key_of(y) == key; });
  remove_if([&](const edge& y) { return key_of(y) == key; });
}

void wait_for_graph::remove(const request_id& request, attempt_number attempt) {
  ended_.insert({request, attempt});
  ask_again_if([&](const edge& x) {
    return x.by.request == request && x.by.attempt == attempt;
  });
  remove_if([&](const edge& x) {
    return (x.wait.request == request && x.wait.attempt == attempt)
           || (x.by.request == request && x.by.attempt == attempt);
  });
}

void wait_for_graph::remove(const wait_name& wait) {
  ask_again_if([&](const edge& x) {
    return x.wait.node == wait.node && x.by.request == wait.request
           && x.by.attempt == wait.attempt;
  });
  remove_if([&](const edge& x) { return x.wait == wait; });
}

void wait_for_graph::remove(node_slot node) {
  ask_again_if([=](const edge& x) { return x.by.session.home == node; });
  remove_if([&](const edge& x) {
    return x.wait.node == node || x.wait.session.home == node
           || x.by.session.home == node;
  });
  std::erase_if(sessions_to_ask_,
                [=](const session_id& x) { return x.home == node; });
  std::erase_if(waits_to_ask_,
                [=](const wait_name& x) { return x.node == node; });
}

// -- what is to be asked ------------------------------------------------------

std::vector<session_id> wait_for_graph::take_sessions() {
  auto all = std::exchange(sessions_to_ask_, {});
  return {all.begin(), all.end()};
}

std::vector<wait_question> wait_for_graph::take_waits() {
  std::vector<wait_question> result;
  for (const auto& x : std::exchange(waits_to_ask_, {})) {
    auto i = over_.find(x);
    result.push_back(
      {x, i != over_.end() ? i->second : std::vector<attempt_name>{}});
  }
  return result;
}

// -- queries ------------------------------------------------------------------

std::optional<wait_for_graph::cycle> wait_for_graph::find_cycle() const {
  if (!closes())
    return std::nullopt;
  // Breadth first, so that the cycle is a shortest one. `came_by` is how each
  // session was reached first.
  std::map<session_id, const edge*> came_by;
  std::vector<session_id> next{origin_};
  for (std::size_t i = 0; i < next.size(); ++i) {
    auto here = edges_.find(next[i]);
    if (here == edges_.end())
      continue;
    for (const auto& x : here->second) {
      if (x.by.session != origin_) {
        if (came_by.emplace(x.by.session, &x).second)
          next.push_back(x.by.session);
        continue;
      }
      cycle result{x};
      while (result.back().wait.session != origin_)
        result.push_back(*came_by.at(result.back().wait.session));
      std::reverse(result.begin(), result.end());
      return result;
    }
  }
  return std::nullopt;
}

void wait_for_graph::check_invariants() const {
  std::size_t edges = 0;
  std::size_t closing = 0;
  for (const auto& [from, all] : edges_) {
    for (const auto& x : all) {
      ++edges;
      closing += x.by.session == origin_;
      ensure(x.wait.session == from, "an edge is listed where it begins");
      ensure(x.by.session != from, "G1: nobody is in his own way");
      ensure(waits_.count(x.wait) != 0 && sessions_.count(x.by.session) != 0,
             "G2: what an edge joins has been reached");
      ensure(known_.count(key_of(x)) != 0, "an edge is known");
    }
  }
  for (const auto& x : sessions_to_ask_)
    ensure(sessions_.count(x) != 0, "G3: a session on the list is reached");
  for (const auto& x : waits_to_ask_)
    ensure(waits_.count(x) != 0, "G3: a wait on the list is reached");
  ensure(edges == edge_count_, "the edges are counted");
  ensure(closing == closing_, "G4: the edges that close are counted");
}

// -- helpers ------------------------------------------------------------------

wait_for_graph::edge_key wait_for_graph::key_of(const edge& x) noexcept {
  return {x.wait, x.by.session, x.by.request, x.by.attempt};
}

/// What was in the way of these shared waits is over, and something else may
/// be: another one of the queue, or what its session has left there, which
/// keeps the mode. (All that is in the way of an exclusive wait is known at
/// once.)
template <class Predicate>
void wait_for_graph::ask_again_if(Predicate over) {
  for (const auto& [from, all] : edges_)
    for (const auto& x : all)
      if (x.mode == lock_mode::shared && over(x))
        ask_again(x.wait, {x.by.request, x.by.attempt});
}

void wait_for_graph::ask_again(const wait_name& x, const attempt_name& over) {
  auto& all = over_[x];
  if (std::find(all.begin(), all.end(), over) != all.end())
    return;
  all.push_back(over);
  waits_to_ask_.insert(x);
}

template <class Predicate>
void wait_for_graph::remove_if(Predicate over) {
  for (auto& [from, all] : edges_)
    std::erase_if(all, [&](const edge& x) {
      if (!over(x))
        return false;
      --edge_count_;
      closing_ -= x.by.session == origin_;
      return true;
    });
}

std::size_t youngest(std::span<const session_age> ages) noexcept {
  auto i = PAWL_PLANTED(sentences_the_oldest)
             ? std::min_element(ages.begin(), ages.end())
             : std::max_element(ages.begin(), ages.end());
  return static_cast<std::size_t>(i - ages.begin());
}

} // namespace pawl
