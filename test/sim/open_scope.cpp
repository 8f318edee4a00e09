#include "open_scope.hpp"

#include <utility>

namespace pawl::sim {

scope_cluster::open_scope::open_scope(scope_cluster& c, process& p,
                                      std::uint64_t life)
  : cluster(c), on(p), life(life),
    locks({.slot = slot(p.index), .floor = p.floor.at(c.token_time())}, *this),
    home({"scope", c.names_, slot(p.index), node_timeout, 7}, locks.table(),
         p.clock),
    own({slot(p.index), slot(p.index), 0, node_timeout}, locks, *this, p.clock,
        *this),
    search({slot(p.index), c.options_.nodes, c.options_.probe_limit}, *this),
    executor(slot(p.index), home, own, *this), links(c.options_.nodes) {
  // nop
}

// -- events -------------------------------------------------------------------

void scope_cluster::open_scope::run(scope_effects& out) {
  executor.run(std::exchange(out, {}));
  // As the scope's actor does: not within the executor.
  while (!starting.empty()) {
    for (const auto& x : std::exchange(starting, {}))
      begin_walk(x);
  }
  check_invariants();
}

/// A worker of a peer answers its peer itself; the rest is for the scope's
/// actor.
void scope_cluster::open_scope::run_of_worker(std::size_t peer,
                                              scope_effects& out) {
  scope_effects rest;
  for (auto& x : std::exchange(out, {}))
    if (auto* y = std::get_if<effect::send>(&x);
        y != nullptr && y->to == slot(peer)) {
      if (on.epochs[peer] == workers[peer].epoch)
        cluster.post(on, peer, std::move(y->what));
    } else {
      rest.push_back(std::move(x));
    }
  if (!rest.empty())
    cluster.turn(*this, own_turn(),
                 [this, rest = std::move(rest)]() mutable { run(rest); });
  if (auto& w = workers[peer].machine)
    w->check_invariants();
}

void scope_cluster::open_scope::receive(std::size_t from, link_epoch epoch,
                                        const message& what) {
  if (links[from] != epoch)
    return;
  // Searches change nothing before their verdict.
  cluster.quiet_ = std::holds_alternative<walk_question_message>(what)
                   || std::holds_alternative<walk_answer_message>(what);
  feed([&](scope_effects& out) {
    home.receive(slot(from), what, out);
    search.receive(slot(from), what, out);
    if (std::holds_alternative<scope_closed_message>(what))
      search.peer_gone(slot(from), out);
  });
}

void scope_cluster::open_scope::receive_as_worker(std::size_t from,
                                                  link_epoch epoch,
                                                  const message& what) {
  auto& w = workers[from];
  if (w.epoch > epoch)
    return; // dropped already
  scope_effects out;
  if (!w.machine || w.epoch != epoch) {
    if (w.machine)
      w.machine->close_epoch(out);
    run_of_worker(from, out);
    w.epoch = epoch;
    w.machine = std::make_unique<worker>(
      worker_options{slot(on.index), slot(from), epoch, node_timeout}, locks,
      *this, on.clock, *this);
    if (is_ready)
      w.machine->set_ready(out);
  }
  w.machine->receive(what, out);
  run_of_worker(from, out);
}

void scope_cluster::open_scope::link_up(std::size_t peer, link_epoch epoch) {
  links[peer] = epoch;
  feed([&](scope_effects& out) {
    home.link_up(slot(peer), epoch, out);
    search.peer_back(slot(peer), out);
  });
}

void scope_cluster::open_scope::link_down(std::size_t peer, link_epoch epoch) {
  feed([&](scope_effects& out) { home.link_down(slot(peer), epoch, out); });
  if (links[peer] != epoch)
    return;
  links[peer] = 0;
  feed([&](scope_effects& out) { search.peer_gone(slot(peer), out); });
}

void scope_cluster::open_scope::worker_down(std::size_t peer,
                                            link_epoch epoch) {
  auto& w = workers[peer];
  if (!w.machine || w.epoch != epoch)
    return;
  scope_effects out;
  w.machine->close_epoch(out);
  run_of_worker(peer, out);
  w.machine.reset();
}

void scope_cluster::open_scope::begin_walk(const effect::walk& x) {
  feed([&](scope_effects& out) { search.start(x.what, x.all_waits, out); });
}

void scope_cluster::open_scope::check_invariants() const {
  home.check_invariants();
  search.check_invariants();
  own.check_invariants();
}

// -- lock_port ----------------------------------------------------------------

manager_ref scope_cluster::open_scope::take_manager() {
  managers.push_back(nullptr);
  return static_cast<manager_ref>(managers.size());
}

void scope_cluster::open_scope::start(manager_ref who, wait_queue& q) {
  managers[who - 1] = &q;
  look(who);
}

void scope_cluster::open_scope::look(manager_ref who) {
  cluster.later_in(*this, cluster.below(5), [this, who] { manage(who); });
}

void scope_cluster::open_scope::left_waiting(const session_id& who) {
  cluster.later_in(*this, cluster.below(8), [this, who] {
    cluster.observe_waits();
    cluster.say("{}: a walk from {} that was left waiting", on.index,
                to_string(who));
    begin_walk({{who, {}, 0, slot(on.index)}, true, false});
  });
}

void scope_cluster::open_scope::manage(manager_ref who) {
  auto*& q = managers[who - 1];
  if (q == nullptr)
    return;
  auto result = locks.manage(*q, 2);
  if (result.idle)
    q = nullptr;
  else if (result.more)
    look(who);
}

// -- worker_port --------------------------------------------------------------

void scope_cluster::open_scope::settled(part_waiter& w) noexcept {
  auto peer = std::size_t{to_index(w.owner.request.home)};
  auto mine = peer == on.index;
  std::shared_ptr<part_waiter> keep{&w, [](part_waiter* x) { x->unref(); }};
  cluster.turn(*this, mine ? own_turn() : peer, [this, mine, peer, keep] {
    auto* machine = mine ? &own : workers[peer].machine.get();
    if (machine == nullptr)
      return;
    scope_effects out;
    keep->ref(); // passes on
    machine->settled(*keep, out);
    if (mine)
      run(out);
    else
      run_of_worker(peer, out);
  });
}

void scope_cluster::open_scope::enters(part_waiter& w) {
  parts[w.request] = &w;
}

void scope_cluster::open_scope::leaves(part_waiter& w) noexcept {
  if (auto i = parts.find(w.request); i != parts.end() && i->second == &w)
    parts.erase(i);
}

// -- session_resolver ---------------------------------------------------------

session_ledger* scope_cluster::open_scope::find(const session_id& who) {
  auto i = sessions.find(who.serial);
  if (i == sessions.end())
    return nullptr;
  i->second->ref();
  return i->second;
}

// -- walk_port ----------------------------------------------------------------

waiter* scope_cluster::open_scope::find_waiter(const wait_name& x) {
  if (x.request.home == slot(on.index))
    if (auto i = cluster.asks_.find(x.request.serial);
        i != cluster.asks_.end() && i->second.waits != nullptr)
      return i->second.waits;
  auto w = parts.find(x.request);
  return w != parts.end() && w->second->attempt == x.attempt ? w->second
                                                             : nullptr;
}

void scope_cluster::open_scope::waits_of(const session_id& who,
                                         std::vector<wait_name>& out) {
  home.waits_of(who, out);
  // Whose client has ended it is on its way out.
  std::erase_if(out, [&](const wait_name& x) {
    return !cluster.is_pending(x.request, x.attempt);
  });
  for (auto* a : cluster.live_asks())
    if (a->who == who.serial && a->waits != nullptr)
      out.push_back({who, a->spec.id, 0, slot(on.index)});
}

bool scope_cluster::open_scope::blockers_of(const wait_question& x,
                                            std::size_t limit,
                                            blocked_wait& out) {
  auto* w = find_waiter(x.wait);
  if (w == nullptr)
    return false;
  out = {x.wait, w->what(), w->mode(), {}};
  return locks.table().blockers(*w, x.except, limit, out.by);
}

bool scope_cluster::open_scope::reachable(node_slot peer) {
  return links[to_index(peer)] != 0;
}

std::uint64_t scope_cluster::open_scope::own_ends() {
  return locks.own_ends();
}

bool scope_cluster::open_scope::waits_here(const wait_name& x) {
  std::vector<blocker> none;
  auto* w = find_waiter(x);
  return w != nullptr && locks.table().blockers(*w, {}, 0, none);
}

walk_standing scope_cluster::open_scope::standing_of(const walk_claim& x) {
  const auto* request = home.find(x.wait.request);
  // On that node it may have been granted because of another request of its
  // session, past whoever was in its way.
  auto asks = request == nullptr || request->asks(x.wait.node);
  return {asks && cluster.is_pending(x.wait.request, x.wait.attempt),
          cluster.how_in_the_way(*this, x),
          {cluster.age_of(*this, x.wait.session), x.wait.session}};
}

bool scope_cluster::open_scope::sentence(const walk_verdict_message& x,
                                         scope_effects& out) {
  return cluster.sentence(*this, x, out);
}

void scope_cluster::open_scope::walked(std::size_t) {
  cluster.tally("walks");
}

// -- scope_port ---------------------------------------------------------------

void scope_cluster::open_scope::to_peer(node_slot to, message what) {
  auto peer = to_index(to);
  if (links[peer] != 0 && links[peer] == on.epochs[peer])
    cluster.post(on, peer, std::move(what));
}

void scope_cluster::open_scope::aged(const request_id& id,
                                     std::uint64_t lamport) {
  cluster.told_aged(*this, id, lamport);
}

bool scope_cluster::open_scope::whole(const request_id& id,
                                      std::vector<fencing_token> tokens,
                                      std::vector<node_slot> nodes) {
  return cluster.told_whole(*this, id, tokens, nodes);
}

void scope_cluster::open_scope::ended(const request_id& id, outcome why,
                                      node_slot) {
  cluster.told_ended(*this, id, why);
}

void scope_cluster::open_scope::hold_lost(const request_id& id,
                                          std::uint16_t which, loss why,
                                          node_slot) {
  cluster.told_lost(id, which, why);
}

void scope_cluster::open_scope::node_left(const request_id&, node_slot) {
  cluster.tally("node left");
}

void scope_cluster::open_scope::view_changed(std::vector<node_slot>) {
  // nop
}

void scope_cluster::open_scope::ready() {
  cluster.tally("ready");
  is_ready = true;
  for (auto& [peer, w] : workers)
    cluster.turn(*this, peer, [this, peer = peer] {
      if (auto& x = workers[peer].machine) {
        scope_effects out;
        x->set_ready(out);
        run_of_worker(peer, out);
      }
    });
}

void scope_cluster::open_scope::mismatch(node_slot) {
  cluster.check(false, "all have the same settings");
}

void scope_cluster::open_scope::walk(const effect::walk& x) {
  cluster.observe_waits();
  cluster.say("{}: a walk {}from {}", on.index, x.patient ? "in a while " : "",
              text(x.what));
  if (x.patient)
    cluster.later_in(*this, cluster.options_.patience,
                     [this, x] { begin_walk(x); });
  else
    starting.push_back(x);
}

} // namespace pawl::sim
