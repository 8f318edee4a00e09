#include "pawl/core/walk.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/core/planted.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace pawl {

namespace {

/// Edges that a walk may know, as a multiple of what it may visit.
constexpr std::size_t edges_per_visit = 4;

} // namespace

walk_port::~walk_port() = default;

walks::walks(const walk_options& options, walk_port& port)
  : options_(options), port_(port) {
  // nop
}

// -- events -------------------------------------------------------------------

void walks::start(const wait_name& what, bool all_waits, scope_effects& out) {
  auto i = walks_.find(what.session);
  if (i == walks_.end()) {
    begin({what, all_waits}, out);
    return;
  }
  auto& again = i->second.again;
  for (auto& x : again)
    if (x.what == what) {
      x.all_waits |= all_waits;
      return;
    }
  again.push_back({what, all_waits});
}

void walks::receive(node_slot from, const message& what, scope_effects& out) {
  std::visit(
    [&](const auto& x) {
      if constexpr (requires { this->receive_one(from, x, out); })
        this->receive_one(from, x, out);
    },
    what);
}

void walks::peer_gone(node_slot which, scope_effects& out) {
  std::vector<session_id> all;
  for (const auto& [origin, w] : walks_)
    all.push_back(origin);
  for (const auto& origin : all) {
    auto i = walks_.find(origin);
    if (i == walks_.end())
      continue;
    auto& w = i->second;
    w.missed.insert(which);
    w.graph.remove(which);
    std::erase_if(w.far_sessions,
                  [=](const session_id& x) { return x.home == which; });
    std::erase_if(w.far_waits,
                  [=](const auto& x) { return x.wait.node == which; });
    std::erase_if(w.answers, [=](const auto& x) { return x.by == which; });
    auto on_it = [=](const wait_for_graph::edge& x) {
      return x.wait.node == which || x.wait.session.home == which;
    };
    if (std::any_of(w.candidate.begin(), w.candidate.end(), on_it))
      drop_candidate(w);
    if (!go_on(w, out))
      end(origin, out);
  }
}

void walks::peer_back(node_slot which, scope_effects& out) {
  // Those that go on have done without it so far.
  for (auto& [origin, w] : walks_)
    if (w.missed.erase(which) != 0)
      w.again.push_back(w.first);
  auto known = missed_.extract(which);
  if (known.empty())
    return;
  for (const auto& [what, all_waits] : known.mapped().all)
    if (still_waits({what, all_waits}))
      start(what, all_waits, out);
}

// -- answering ----------------------------------------------------------------

void walks::receive_one(node_slot from, const walk_question_message& x,
                        scope_effects& out) {
  if (from == options_.self || !known(from))
    return;
  walk_answer_message answer;
  answer.walk = x.walk;
  answer.step = x.step;
  answer.own_ends = port_.own_ends(); // before anything is looked up
  auto limit = std::min<std::size_t>(x.budget, options_.limit);
  wait_for_graph graph{x.origin.session};
  for (const auto& who : x.sessions)
    if (who.home == options_.self)
      graph.reach(who);
  std::map<wait_name, std::vector<attempt_name>> except;
  for (const auto& what : x.waits)
    if (what.wait.node == options_.self) {
      graph.reach(what.wait);
      except[what.wait] = what.except;
    }
  auto too_much = [&] {
    return graph.visited() > limit || graph.edges() > edges_per_visit * limit;
  };
  // What was asked is answered. Beyond that it goes on until an edge leads to
  // the origin: the asker looks at that first, and asks for the rest again.
  auto asked = true;
  for (auto more = true; more && !too_much();) {
    more = false;
    for (const auto& who : graph.take_sessions()) {
      if (who.home != options_.self || too_much())
        continue;
      more = true;
      session_waits found{who, {}};
      port_.waits_of(who, found.waits);
      graph.add(found);
      answer.sessions.push_back(std::move(found));
    }
    for (auto& what : graph.take_waits()) {
      blocked_wait found;
      if (auto i = except.find(what.wait); i != except.end())
        what.except.insert(what.except.end(), i->second.begin(),
                           i->second.end());
      if (what.wait.node != options_.self || too_much()
          || (!asked && graph.closes())
          || !port_.blockers_of(what, limit + 1, found))
        continue;
      more = true;
      answer.cut_short |= found.by.size() > limit;
      auto is_over = [&](blocker& by) {
        if (by.session != x.origin.session
            || by.session.home != options_.self)
          return false;
        auto said = port_.standing_of(
          {x.origin, by, found.what, found.mode, options_.self});
        if (said.waits) {
          by.said = said.how;
          by.age = said.age;
        }
        return said.how == standing::none;
      };
      std::erase_if(found.by, is_over);
      graph.add(found, {});
      answer.waits.push_back(std::move(found));
    }
    asked = false;
    if (graph.closes())
      break;
  }
  answer.cut_short |= too_much();
  for (const auto& claim : x.claims)
    answer.standings.push_back(claim.wait.session.home == options_.self
                                 ? port_.standing_of(claim)
                                 : walk_standing{});
  out.push_back(effect::send{from, std::move(answer)});
}

void walks::receive_one(node_slot, const walk_verdict_message& x,
                        scope_effects& out) {
  if (x.session.home == options_.self && x.request.home == options_.self)
    sentence(x, out);
}

void walks::sentence(const walk_verdict_message& x, scope_effects& out) {
  if (port_.sentence(x, out) || x.why == outcome::probe_limit)
    return;
  // Too late. What was to be given back has become whole meanwhile, or what was
  // to end has been granted, or it has ended. Who searched has taken it for
  // ended, and nobody has entered a wait since; but if it holds something now,
  // who waited behind it waits for that, maybe in a true cycle.
  std::vector<wait_name> waits;
  port_.waits_of(x.session, waits);
  if (!waits.empty())
    start(waits.front(), true, out);
}

// -- a walk -------------------------------------------------------------------

void walks::begin(beginning what, scope_effects& out) {
  auto origin = what.what.session;
  auto& w = walks_.try_emplace(origin, what).first->second;
  w.id = ++next_id_;
  by_id_[w.id] = origin;
  if (what.what.node == options_.self && known(what.what.request.home))
    w.graph.reach(what.what);
  if (what.all_waits)
    w.graph.reach(origin);
  if (!go_on(w, out))
    end(origin, out);
}

/// False: it is over.
bool walks::go_on(walk& w, scope_effects& out) {
  for (;;) {
    if (!still_waits(w.first))
      return false;
    if (!w.candidate.empty())
      return true;
    auto closed = explore_here(w);
    if (auto found = w.graph.find_cycle()) {
      w.candidate = std::move(*found);
      if (!confirm(w, out))
        continue; // part of it is over, and gone from the graph
      if (!w.confirmations.empty())
        return true;
      if (!conclude(w, out))
        return false;
      continue;
    }
    if (too_large(w)) {
      give_up(w, out);
      return false;
    }
    if (closed)
      continue;
    ask(w, out);
    return !w.answers.empty();
  }
}

/// Moves what the graph wants to know to where it is to be found out.
void walks::sort_out(walk& w) {
  for (const auto& x : w.graph.take_sessions()) {
    if (x.home == options_.self)
      w.near_sessions.push_back(x);
    else if (known(x.home))
      w.far_sessions.push_back(x);
  }
  for (const auto& x : w.graph.take_waits()) {
    if (x.wait.node == options_.self)
      w.near_waits.push_back(x);
    else if (known(x.wait.node))
      w.far_waits.push_back(x);
  }
}

/// Looks up what this node knows, until nothing is left or the limit is reached;
/// true if it stops before that, because an edge leads to the origin.
bool walks::explore_here(walk& w) {
  for (sort_out(w); !too_large(w); sort_out(w)) {
    auto closed = w.graph.closes();
    if (!w.near_sessions.empty()) {
      session_waits found{w.near_sessions.back(), {}};
      w.near_sessions.pop_back();
      port_.waits_of(found.session, found.waits);
      w.graph.add(found);
    } else if (!w.near_waits.empty()) {
      auto what = w.near_waits.back();
      w.near_waits.pop_back();
      blocked_wait found;
      ++w.clock;
      auto own_ends = port_.own_ends();
      if (port_.blockers_of(what, options_.limit + 1, found)) {
        // Some may be left out, and those that are not be of a few sessions.
        w.cut_short |= found.by.size() > options_.limit;
        w.graph.add(found, {w.clock, w.clock, own_ends});
      } else {
        w.graph.remove(what.wait);
      }
      if (!closed && w.graph.closes())
        return true;
    } else {
      return false;
    }
  }
  return false;
}

/// One question to each node that knows something.
void walks::ask(walk& w, scope_effects& out) {
  std::map<node_slot, walk_question_message> questions;
  for (const auto& x : std::exchange(w.far_sessions, {}))
    questions[x.home].sessions.push_back(x);
  for (const auto& x : std::exchange(w.far_waits, {}))
    questions[x.wait.node].waits.push_back(x);
  if (questions.empty())
    return;
  ++w.step;
  for (auto& [node, question] : questions) {
    if (!port_.reachable(node)) {
      w.missed.insert(node);
      w.graph.remove(node);
      continue;
    }
    question.walk = w.id;
    question.step = w.step;
    // What is asked for has been counted here, and is counted there again.
    question.budget = static_cast<std::uint32_t>(
      options_.limit - std::min(options_.limit, w.graph.visited()) + 1
      + question.sessions.size() + question.waits.size());
    question.origin = w.first.what;
    w.answers.push_back({node, w.step, w.clock, {}});
    for (const auto& x : question.waits)
      w.answers.back().waits.push_back(x.wait);
    out.push_back(effect::send{node, std::move(question)});
  }
  ++w.clock;
}

void walks::receive_one(node_slot from, const walk_answer_message& x,
                        scope_effects& out) {
  auto id = by_id_.find(x.walk);
  if (id == by_id_.end())
    return; // it is over
  auto origin = id->second;
  auto& w = walks_.at(origin);
  auto owed
    = std::find_if(w.answers.begin(), w.answers.end(), [&](const auto& y) {
        return y.by == from && y.step == x.step;
      });
  if (owed != w.answers.end()) {
    auto asked = std::move(*owed);
    w.answers.erase(owed);
    learn(w, asked, x);
  } else {
    auto claims = std::find_if(
      w.confirmations.begin(), w.confirmations.end(),
      [&](const auto& y) { return y.by == from && y.step == x.step; });
    if (claims == w.confirmations.end())
      return; // of a candidate that was dropped meanwhile, or nonsense
    if (!vouched_for(w, from, x.own_ends)) {
      begin_anew(w);
      end(origin, out);
      return;
    }
    auto places = std::move(claims->places);
    w.confirmations.erase(claims);
    auto good = true;
    for (std::size_t i = 0; i < places.size(); ++i)
      good &= accept(w, places[i],
                     i < x.standings.size() ? x.standings[i]
                                            : walk_standing{});
    if (!good) {
      drop_candidate(w);
    } else if (w.confirmations.empty() && !conclude(w, out)) {
      end(origin, out);
      return;
    }
  }
  if (!go_on(w, out))
    end(origin, out);
}

/// Takes in what a peer may know: of its sessions and of waits on it.
void walks::learn(walk& w, const walk::owed& asked,
                  const walk_answer_message& x) {
  auto from = asked.by;
  ++w.clock;
  w.cut_short |= x.cut_short;
  for (const auto& y : x.sessions)
    if (y.session.home == from)
      w.graph.add(y);
  for (const auto& y : x.waits) {
    if (y.wait.node != from)
      continue;
    auto found = y;
    for (auto& by : found.by)
      if (by.session.home != from || by.session != w.graph.origin())
        by.said = standing::none;
    std::erase_if(found.by,
                  [this](const blocker& by) { return !known(by.session.home); });
    w.graph.add(found, {w.clock, asked.asked, x.own_ends});
  }
  // What the node has no answer for waits there no more, whatever its home has
  // said before: who was named as behind it is behind somebody else.
  if (!x.cut_short)
    for (const auto& wait : asked.waits)
      if (std::none_of(x.waits.begin(), x.waits.end(),
                       [&](const auto& y) { return y.wait == wait; }))
        w.graph.remove(wait);
}

// -- a candidate --------------------------------------------------------------

/// What the session of the wait at `place` has to confirm.
walk_claim walks::claim_of(const wait_for_graph::cycle& x, std::size_t place) {
  const auto& mine = x[place];
  const auto& before = x[(place + x.size() - 1) % x.size()];
  return {mine.wait, before.by, before.what, before.mode, before.wait.node};
}

/// Looks up what can be, and asks for the rest. False: part of it is over.
bool walks::confirm(walk& w, scope_effects& out) {
  const auto& all = w.candidate;
  w.standings.assign(all.size(), {});
  if (PAWL_PLANTED(skips_the_confirmation)) {
    for (std::size_t i = 0; i < all.size(); ++i)
      w.standings[i] = {true, standing::whole, {i, all[i].wait.session}};
    return true;
  }
  std::map<node_slot, walk::to_confirm> asked;
  const auto& last = all.back();
  auto good = true;
  auto said_already = false; // by the origin's home, with the last edge
  for (std::size_t i = 0; i < all.size() && good; ++i) {
    auto home = all[i].wait.session.home;
    auto seen_before = [&](const wait_for_graph::edge& x) {
      return x.when.seen <= last.when.asked || x.when.seen == last.when.seen;
    };
    if (home == options_.self)
      good = accept(w, i, port_.standing_of(claim_of(all, i)));
    else if (i == 0 && last.by.said != standing::none
             && all[0].wait == w.first.what
             && std::all_of(all.begin(), all.end(), seen_before)) {
      said_already = true;
      good = accept(w, i, {true, last.by.said, last.by.age});
    } else if (port_.reachable(home))
      asked[home].places.push_back(i);
    else {
      w.missed.insert(home);
      good = accept(w, i, {});
    }
  }
  for (const auto& e : all) {
    if (e.wait.node == options_.self
        || (said_already && e.when.seen == last.when.seen))
      continue;
    asked.try_emplace(e.wait.node); // maybe a home, too
    if (!port_.reachable(e.wait.node)) {
      w.missed.insert(e.wait.node);
      w.graph.remove(e.wait.node);
      good = false;
    }
  }
  if (!good) {
    drop_candidate(w);
    return false;
  }
  ask_to_confirm(w, std::move(asked), out);
  return true;
}

/// One question to each node that has a say.
void walks::ask_to_confirm(walk& w, std::map<node_slot, walk::to_confirm> asked,
                           scope_effects& out) {
  if (asked.empty())
    return;
  ++w.step;
  for (auto& [node, x] : asked) {
    walk_question_message question;
    question.walk = w.id;
    question.step = w.step;
    question.budget = 1;
    question.origin = w.first.what;
    for (auto i : x.places)
      question.claims.push_back(claim_of(w.candidate, i));
    x.by = node;
    x.step = w.step;
    w.confirmations.push_back(std::move(x));
    out.push_back(effect::send{node, std::move(question)});
  }
}

/// False: the claim does not hold, and the edges of it are gone.
bool walks::accept(walk& w, std::size_t place, const walk_standing& x) {
  const auto& all = w.candidate;
  w.standings[place] = x;
  const auto& mine = all[place];
  if (!x.waits)
    w.graph.remove(wait_name{mine.wait});
  if (x.how == standing::none)
    w.graph.remove(all[(place + all.size() - 1) % all.size()]);
  return x.waits && x.how != standing::none;
}

/// Whether nothing has ended by itself on a node since the edges of the
/// candidate were seen there.
bool walks::vouched_for(const walk& w, node_slot node,
                        std::uint64_t own_ends) noexcept {
  return std::all_of(
    w.candidate.begin(), w.candidate.end(), [=](const wait_for_graph::edge& x) {
      return x.wait.node != node || x.when.own_ends == own_ends;
    });
}

/// All others have confirmed the candidate. False: this node does not, and the
/// walk is over.
bool walks::conclude(walk& w, scope_effects& out) {
  if (!vouched_for(w, options_.self, port_.own_ends())) {
    begin_anew(w);
    return false;
  }
  pass_verdict(w, out);
  return true;
}

/// To be ended now; then it is started again, and knows nothing.
void walks::begin_anew(walk& w) {
  drop_candidate(w);
  w.again.push_back(w.first);
}

void walks::drop_candidate(walk& w) {
  w.candidate.clear();
  w.confirmations.clear();
}

void walks::pass_verdict(walk& w, scope_effects& out) {
  auto all = std::exchange(w.candidate, {});
  std::vector<session_age> ages;
  auto whole = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ages.push_back(w.standings[i].age);
    whole |= w.standings[i].how == standing::whole;
  }
  auto victim = youngest(ages);
  walk_verdict_message x;
  x.session = all[victim].wait.session;
  if (whole) {
    x.why = outcome::deadlock;
    x.request = all[victim].wait.request;
    x.attempt = all[victim].wait.attempt;
  } else {
    // What it has in the other's way is what has to go.
    const auto& by = all[(victim + all.size() - 1) % all.size()].by;
    x.why = outcome::pending;
    x.request = by.request;
    x.attempt = by.attempt;
  }
  for (const auto& e : all)
    x.cycle.push_back({e.wait.session, e.what, e.mode, e.wait.node});
  w.graph.remove(x.request, x.attempt);
  // It may be lost on its way.
  if (x.session.home != options_.self)
    remember(x.session.home, w.first);
  send_verdict(std::move(x), out);
}

void walks::give_up(walk& w, scope_effects& out) {
  const auto& first = w.first.what;
  if (!known(first.request.home))
    return;
  walk_verdict_message x;
  x.session = first.session;
  x.request = first.request;
  x.attempt = first.attempt;
  x.why = outcome::probe_limit;
  send_verdict(std::move(x), out);
}

void walks::send_verdict(walk_verdict_message x, scope_effects& out) {
  auto home = x.session.home;
  if (home == options_.self)
    sentence(x, out);
  else
    out.push_back(effect::send{home, std::move(x)});
}

// -- helpers ------------------------------------------------------------------

void walks::end(const session_id& origin, scope_effects& out) {
  auto node = walks_.extract(origin);
  auto& w = node.mapped();
  by_id_.erase(w.id);
  port_.walked(w.graph.visited());
  for (auto peer : w.missed)
    remember(peer, w.first);
  for (const auto& x : w.again)
    start(x.what, x.all_waits, out);
}

void walks::remember(node_slot peer, const beginning& x) {
  auto& [all, look_at] = missed_[peer];
  all[x.what] |= x.all_waits;
  if (all.size() < look_at)
    return;
  std::erase_if(all, [this](const auto& y) {
    const auto& [first, all_waits] = y;
    // Of a session that lives elsewhere only its waits here are known.
    return first.session.home != options_.self && known(first.request.home)
             ? first.node != options_.self || !port_.waits_here(first)
             : !still_waits({first, all_waits});
  });
  look_at = std::max<std::size_t>(64, 2 * all.size());
}

bool walks::too_large(const walk& w) const noexcept {
  return w.cut_short || w.graph.visited() > options_.limit
         || w.graph.edges() > edges_per_visit * options_.limit;
}

bool walks::still_waits(const beginning& first) {
  const auto& x = first.what;
  // Of several waits one may be granted, and the others go on.
  if (first.all_waits) {
    std::vector<wait_name> left;
    if (x.session.home == options_.self)
      port_.waits_of(x.session, left);
    return x.session.home != options_.self || !left.empty();
  }
  return x.node != options_.self || !known(x.request.home)
         || port_.waits_here(x);
}

void walks::check_invariants() const {
  ensure(walks_.size() == by_id_.size(), "A1: one walk per origin");
  for (const auto& [origin, w] : walks_) {
    ensure(w.graph.origin() == origin && by_id_.at(w.id) == origin,
           "A1: a walk is listed under its origin");
    ensure(!w.answers.empty() || !w.confirmations.empty(),
           "A2: it waits for an answer");
    ensure(w.candidate.empty() == w.confirmations.empty(),
           "A2: a candidate is being confirmed");
    for (const auto& x : w.answers)
      ensure(x.by != options_.self && known(x.by), "A3: a peer owes it");
    for (const auto& x : w.confirmations)
      ensure(x.by != options_.self && known(x.by), "A3: a peer owes it");
    w.graph.check_invariants();
  }
}

} // namespace pawl
