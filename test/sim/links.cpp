// Time, turns and links: what is simulated of threads, net and the clock.

#include "open_scope.hpp"

#include "pawl/core/planted.hpp"

#include <algorithm>
#include <utility>

namespace pawl::sim {

// -- time ---------------------------------------------------------------------

void scope_cluster::at_node(const process& p, time_point when,
                            std::function<void()> what) {
  at(when, [this, i = p.index, life = p.life, what = std::move(what)] {
    run_on(i, life, what);
  });
}

/// Now, or when the node thaws.
void scope_cluster::run_on(std::size_t node, std::uint64_t life,
                           const std::function<void()>& what) {
  if (!lives(node, life))
    return;
  if (nodes_[node]->frozen) {
    nodes_[node]->due.push_back(what);
    return;
  }
  touched_ = node;
  what();
}

void scope_cluster::later_on(const process& p, std::uint64_t delay,
                             std::function<void()> what) {
  if (p.slow_until > events_.now())
    delay *= 8;
  at_node(p, events_.now() + time_point{delay}, std::move(what));
}

void scope_cluster::later_in(const open_scope& s, std::uint64_t delay,
                             std::function<void()> what) {
  later_on(s.on, delay,
           [this, i = s.on.index, life = s.life, what = std::move(what)] {
             if (auto* now = scope_at(i); now != nullptr && now->life == life)
               what();
           });
}

void scope_cluster::turn(const open_scope& s, std::size_t actor,
                         std::function<void()> what,
                         std::function<void()> if_closed) {
  auto& last = nodes_[s.on.index]->turns[actor];
  last = std::max(last, events_.now() + time_point{below(4)});
  at_node(s.on, last,
          [this, i = s.on.index, life = s.life, what = std::move(what),
           if_closed = std::move(if_closed)] {
            if (auto* now = scope_at(i); now != nullptr && now->life == life)
              what();
            else if (if_closed)
              if_closed();
          });
}

void scope_cluster::step() {
  touched_ = options_.nodes;
  quiet_ = false;
  events_.step();
  if (quiet_)
    return;
  observe_waits();
  if (touched_ < options_.nodes)
    watch_rows(touched_);
}

// -- links come ---------------------------------------------------------------

void scope_cluster::connect_later(std::size_t i, std::size_t j) {
  later(1 + below(200), [this, i, j] { connect(i, j); });
}

/// A handshake has succeeded. Both ends get the link as the first thing in its
/// channel.
void scope_cluster::connect(std::size_t i, std::size_t j) {
  auto* a = nodes_[i].get();
  auto* b = nodes_[j].get();
  if (a == nullptr || b == nullptr || deaf(i, j) || deaf(j, i) || a->frozen
      || b->frozen)
    return;
  if (a->epochs[j] != 0 && a->epochs[j] == b->epochs[i])
    return;
  // A hello of a new incarnation: the old one is dead.
  drop_link(*a, j);
  drop_link(*b, i);
  auto epoch = ++epochs_;
  a->epochs[j] = epoch;
  b->epochs[i] = epoch;
  for (auto [x, y] : {std::pair{i, j}, std::pair{j, i}})
    channel(
      y, x, epoch,
      [this, x = x, y = y, epoch, floor = nodes_[y]->floor.at(token_time())] {
        link_is_up(*nodes_[x], y, epoch, floor);
      });
}

void scope_cluster::link_is_up(process& p, std::size_t peer, link_epoch epoch,
                               fencing_token floor) {
  say("{} has a link to {}, epoch {}", p.index, peer, epoch);
  p.floor.raise(floor, token_time());
  p.endings.erase(peer);
  if (p.here)
    meet(*p.here, peer);
}

/// The scope is told of a link that there is.
void scope_cluster::meet(open_scope& s, std::size_t peer) {
  s.locks.table().raise_floor(s.on.floor.at(token_time()));
  turn(s, s.own_turn(),
       [&s, peer, epoch = s.on.epochs[peer]] { s.link_up(peer, epoch); });
}

// -- links go -----------------------------------------------------------------

/// One end has left it. The other is told, or hears nothing any more.
void scope_cluster::drop_link(process& p, std::size_t peer) {
  auto epoch = std::exchange(p.epochs[peer], 0);
  if (epoch == 0)
    return;
  say("{} drops its link to {}", p.index, peer);
  p.endings.erase(peer);
  if (auto* s = p.here.get()) {
    turn(*s, peer, [s, peer, epoch] { s->worker_down(peer, epoch); });
    turn(*s, s->own_turn(), [s, peer, epoch] { s->link_down(peer, epoch); });
  }
  notice_later(peer, p.index, epoch, notice);
}

/// An end of a link that is gone finds out.
void scope_cluster::notice_later(std::size_t at, std::size_t peer,
                                 link_epoch epoch, std::uint64_t delay) {
  if (epoch == 0 || nodes_[at] == nullptr || nodes_[at]->epochs[peer] != epoch)
    return;
  at_node(*nodes_[at], events_.now() + time_point{1 + below(delay)},
          [this, at, peer, epoch] {
            if (nodes_[at]->epochs[peer] == epoch)
              drop_link(*nodes_[at], peer);
          });
}

// -- messages -----------------------------------------------------------------

/// Runs `f` at node `to` after all that went there from `from` before.
void scope_cluster::channel(std::size_t from, std::size_t to, link_epoch epoch,
                            std::function<void()> f, bool overtakes) {
  auto& last = arrivals_[{from, to}];
  // Now and then a link is slow, and others overtake it.
  auto delay = 1 + below(below(16) == 0 ? slow_delay : link_delay);
  if (nodes_[from]->slow_until > events_.now())
    delay *= 8;
  auto when = std::max(last, events_.now() + time_point{delay});
  if (overtakes)
    when = events_.now() + time_point{1};
  else
    last = when;
  at(when, [this, from, to, epoch, f = std::move(f)] {
    auto* p = nodes_[to].get();
    if (p == nullptr || deaf(from, to))
      return;
    run_on(to, p->life, [this, from, to, epoch, f] {
      if (nodes_[to]->epochs[from] == epoch)
        f();
      else if (auto* sender = nodes_[from].get(); sender != nullptr)
        notice_later(from, to, epoch, link_delay); // refused
    });
  });
}

void scope_cluster::post(process& from, std::size_t to, message what) {
  auto epoch = from.epochs[to];
  if (epoch == 0 || nodes_[to] == nullptr)
    return;
  tally("messages");
  auto overtakes = PAWL_PLANTED(abandon_overtakes)
                   && std::holds_alternative<abandon_message>(what);
  channel(
    from.index, to, epoch,
    [this, i = from.index, to, epoch, time = from.clock.now(),
     what = std::move(what)] {
      nodes_[to]->clock.raise(time);
      arrive(i, to, epoch, what);
    },
    overtakes);
}

void scope_cluster::arrive(std::size_t from, std::size_t to, link_epoch epoch,
                           const message& what) {
  auto& p = *nodes_[to];
  quiet_ = true; // those whom it is for take their turns
  if (options_.trace != nullptr)
    say("{} -> {}: {}", from, to, text(what));
  if (p.endings.count(from) != 0) {
    if (!std::holds_alternative<scope_closed_ack_message>(what)) {
      answer_for_nobody(p, from, what);
      return;
    }
    p.endings.erase(from);
    if (p.here)
      meet(*p.here, from);
  } else if (!p.here) {
    answer_for_nobody(p, from, what);
  } else {
    dispatch(p, from, epoch, what);
  }
}

void scope_cluster::dispatch(process& p, std::size_t from, link_epoch epoch,
                             const message& what) {
  auto* s = p.here.get();
  if (for_coordinator(what))
    turn(
      *s, s->own_turn(),
      [s, from, epoch, what] { s->receive(from, epoch, what); },
      [this, to = p.index, from, epoch, what] {
        // As scope_state::dispose.
        if (nodes_[to]->epochs[from] == epoch)
          answer_for_nobody(*nodes_[to], from, what);
      });
  if (for_worker(what))
    turn(*s, from,
         [s, from, epoch, what] { s->receive_as_worker(from, epoch, what); });
}

/// As net does for a scope that is not open.
void scope_cluster::answer_for_nobody(process& p, std::size_t to,
                                      const message& what) {
  if (const auto* ask = std::get_if<request_message>(&what))
    post(p, to, refused_message{ask->id, ask->attempt, outcome::scope_closed});
  else if (const auto* question = std::get_if<walk_question_message>(&what))
    post(p, to, nothing_known(*question));
  else if (std::holds_alternative<scope_opened_message>(what))
    post(p, to, hand_over_message{false, {}, 0});
  else if (std::holds_alternative<scope_closed_message>(what))
    post(p, to, scope_closed_ack_message{});
}

/// Heartbeats: what each end of a link knows of tokens.
void scope_cluster::beat() {
  for (const auto& p : nodes_)
    for (const auto& q : nodes_)
      if (p && q && p != q && !p->frozen && !q->frozen
          && !deaf(q->index, p->index) && p->epochs[q->index] != 0
          && p->epochs[q->index] == q->epochs[p->index])
        p->floor.raise(q->floor.at(token_time()), token_time());
  if (!draining_)
    later(node_timeout.count() / 4, [this] { beat(); });
}

} // namespace pawl::sim
