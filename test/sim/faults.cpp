// Nodes that start, die, freeze and are slow, scopes that open and close, and
// links that break.

#include "open_scope.hpp"

#include <algorithm>
#include <utility>

namespace pawl::sim {

// -- processes ----------------------------------------------------------------

bool scope_cluster::lives(std::size_t i, std::uint64_t life) const {
  return nodes_[i] != nullptr && nodes_[i]->life == life;
}

scope_cluster::open_scope* scope_cluster::scope_at(std::size_t i) const {
  return nodes_[i] != nullptr ? nodes_[i]->here.get() : nullptr;
}

scope_cluster::open_scope* scope_cluster::scope_of(const ask& a) const {
  auto* s = scope_at(a.node);
  return s != nullptr && s->life == a.life ? s : nullptr;
}

/// What its wall clock says has been issued before.
fencing_token scope_cluster::wall_floor(const process& p) const {
  auto wall = wall_start + p.started + time_point{p.wall_step};
  return fencing::floor_at(
    fencing::origin_ns
    + static_cast<std::uint64_t>(wall.count() * token_scale));
}

void scope_cluster::start_node(std::size_t i, std::int64_t wall_step) {
  nodes_[i] = std::make_unique<process>();
  auto& p = *nodes_[i];
  p.index = i;
  p.life = ++lives_;
  p.started = events_.now();
  p.wall_step = wall_step;
  p.floor.raise(wall_floor(p), token_time());
  p.epochs.resize(options_.nodes);
  say("{} starts", i);
  later_on(p, options_.late_openers ? below(2500) : below(30),
           [this, &p] { open(p); });
  for (std::size_t j = 0; j < nodes_.size(); ++j)
    if (j != i)
      connect_later(i, j);
}

/// As kill -9, seen from the others; here, memory is given back.
void scope_cluster::stop_node(std::size_t i) {
  auto* p = nodes_[i].get();
  if (p == nullptr)
    return;
  if (p->here)
    empty_scope(*p->here);
  auto epochs = p->epochs;
  nodes_[i].reset();
  for (std::size_t j = 0; j < nodes_.size(); ++j)
    if (j != i)
      notice_later(j, i, epochs[j], notice);
}

// -- scopes -------------------------------------------------------------------

void scope_cluster::open(process& p) {
  say("{} opens the scope", p.index);
  p.here = std::make_unique<open_scope>(*this, p, ++lives_);
  auto& s = *p.here;
  s.feed([&](scope_effects& out) { s.home.open_scope(events_.now(), out); });
  for (std::size_t peer = 0; peer < options_.nodes; ++peer)
    if (p.endings.count(peer) != 0)
      s.home.peer_is_up(slot(peer));
    else if (p.epochs[peer] != 0)
      meet(s, peer);
  tick_later(s);
}

void scope_cluster::tick_later(open_scope& s) {
  auto deadline = s.home.next_deadline();
  if (!deadline)
    return;
  auto when = std::max(*deadline, events_.now() + time_point{1});
  at_node(s.on, when, [this, i = s.on.index, life = s.life] {
    auto* now = scope_at(i);
    if (now == nullptr || now->life != life)
      return;
    now->feed([&](scope_effects& out) { now->home.tick(events_.now(), out); });
    tick_later(*now);
  });
}

/// In order, as its owner does: who waits is told, what is held is given back.
void scope_cluster::close(process& p) {
  say("{} closes the scope", p.index);
  auto& s = *p.here;
  s.feed([&](scope_effects& out) {
    s.home.close_scope(out);
    s.own.close_scope(out);
  });
  for (std::size_t peer = 0; peer < options_.nodes; ++peer)
    if (s.links[peer] != 0 && s.links[peer] == p.epochs[peer])
      p.endings.insert(peer);
  empty_scope(s);
  p.here.reset();
}

/// All that is there goes, and nobody is told.
void scope_cluster::empty_scope(open_scope& s) {
  for (auto* a : live_asks())
    if (a->node == s.on.index) {
      a->told = true;
      finish_ask(*a);
    }
  for (auto& [serial, x] : std::exchange(s.sessions, {})) {
    s.locks.close(*x, outcome::scope_closed);
    x->unref();
    scripts_.erase(serial);
  }
  scope_effects nobody;
  s.own.close_epoch(nobody);
  s.workers.clear();
  for (std::size_t m = 0; m < s.managers.size(); ++m)
    for (int looks = 0; s.managers[m] != nullptr; ++looks) {
      check(looks < 10'000, "a scope that was emptied has no queues");
      s.manage(static_cast<manager_ref>(m + 1));
    }
  check(s.locks.table().rows() == 0, "a scope that was emptied has no rows");
  rows_.forget(s.on.index);
}

// -- faults -------------------------------------------------------------------

/// Something happens to that node, unless it is spared.
bool scope_cluster::act_of_god(std::size_t i, std::uint64_t dice) {
  auto* p = nodes_[i].get();
  auto other = below(nodes_.size());
  if (dice == 0 && options_.kills && p != nullptr && may_lose_one()) {
    kill(i);
  } else if (dice == 1 && options_.cuts && other != i && may_lose_one()) {
    if (options_.one_way && below(2) == 0)
      go_deaf(other, i);
    else
      cut(i, other);
  } else if (dice == 2 && options_.freezes && p != nullptr && !p->frozen) {
    freeze(*p);
  } else if (dice == 3 && options_.reopens && p != nullptr && !p->frozen
             && p->here) {
    reopen(*p);
  } else if (dice == 4 && options_.slow_nodes && p != nullptr) {
    tally("slow");
    say("{} is slow", i);
    p->slow_until = events_.now() + time_point{below(2000)};
  } else {
    return false;
  }
  return true;
}

/// If nobody is left who knows what was issued, and the clock steps back,
/// tokens repeat: the documented exception. So one at a time then.
bool scope_cluster::may_lose_one() const {
  return !options_.clock_steps
         || std::all_of(nodes_.begin(), nodes_.end(), [](const auto& x) {
              return x != nullptr && x->here && x->here->is_ready;
            });
}

void scope_cluster::kill(std::size_t i) {
  tally("kills");
  say("{} is killed", i);
  check_forgotten_later(i);
  stop_node(i);
  auto step
    = options_.clock_steps ? static_cast<std::int64_t>(below(50'000)) - 45'000 : 0;
  later(below(2500), [this, i, step] { start_again(i, step); });
}

/// For a node that hears nobody, all others are down: see above.
void scope_cluster::start_again(std::size_t i, std::int64_t wall_step) {
  if (nodes_[i] != nullptr)
    return;
  auto hears = false;
  for (std::size_t j = 0; j < nodes_.size(); ++j)
    hears |= j != i && nodes_[j] != nullptr && !deaf(i, j) && !deaf(j, i);
  if (hears || !options_.clock_steps)
    start_node(i, wall_step);
  else
    later(100, [this, i, wall_step] { start_again(i, wall_step); });
}

void scope_cluster::freeze(process& p) {
  tally("freezes");
  say("{} is frozen", p.index);
  p.frozen = true;
  auto span = below(2) == 0 ? below(900) : 1200 + below(3000);
  auto epochs = p.epochs;
  for (std::size_t j = 0; j < options_.nodes; ++j)
    later(node_timeout.count() + below(200),
          [this, i = p.index, life = p.life, j, epoch = epochs[j]] {
            // Nothing has been heard of it.
            if (lives(i, life) && nodes_[i]->frozen)
              notice_later(j, i, epoch, 1);
          });
  later(span, [this, i = p.index, life = p.life] {
    if (lives(i, life))
      thaw(*nodes_[i]);
  });
}

void scope_cluster::thaw(process& p) {
  if (!std::exchange(p.frozen, false))
    return;
  say("{} is thawed", p.index);
  touched_ = p.index;
  for (const auto& what : std::exchange(p.due, {}))
    what();
  for (std::size_t j = 0; j < options_.nodes; ++j)
    if (j != p.index)
      connect_later(p.index, j);
}

void scope_cluster::reopen(process& p) {
  tally("reopens");
  close(p);
  later_on(p, below(3) == 0 ? 0 : below(1500), [this, &p] {
    if (!p.here)
      open(p);
  });
}

void scope_cluster::cut(std::size_t i, std::size_t j) {
  if (deaf(i, j) || deaf(j, i))
    return;
  tally("cuts");
  say("cut between {} and {}", i, j);
  deaf_.insert({{i, j}, {j, i}});
  for (auto [x, y] : {std::pair{i, j}, std::pair{j, i}})
    if (nodes_[x] != nullptr)
      notice_later(x, y, nodes_[x]->epochs[y], notice);
  later(100 + below(3000), [this, i, j] { heal(i, j); });
}

/// One end hears nothing any more, and tells the other when it has noticed.
void scope_cluster::go_deaf(std::size_t from, std::size_t to) {
  if (deaf(from, to) || deaf(to, from))
    return;
  tally("cuts");
  tally("one way");
  say("{} does not hear {}", to, from);
  deaf_.insert({from, to});
  if (nodes_[to] != nullptr)
    notice_later(to, from, nodes_[to]->epochs[from], notice);
  later(100 + below(3000), [this, from, to] { heal(from, to); });
}

void scope_cluster::heal(std::size_t i, std::size_t j) {
  if (deaf_.erase({i, j}) + deaf_.erase({j, i}) == 0)
    return;
  say("{} and {} can hear each other again", i, j);
  // Who was cut off finds the epoch closed at the other end.
  for (auto [x, y] : {std::pair{i, j}, std::pair{j, i}})
    if (nodes_[x] != nullptr)
      run_on(x, nodes_[x]->life,
             [this, x = x, y = y, epoch = nodes_[x]->epochs[y]] {
               if (nodes_[x]->epochs[y] == epoch)
                 drop_link(*nodes_[x], y);
             });
  connect_later(i, j);
}

} // namespace pawl::sim
