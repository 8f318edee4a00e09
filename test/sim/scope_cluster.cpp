// A run, from its first act to the last check.

#include "open_scope.hpp"

#include <algorithm>
#include <exception>

namespace pawl::sim {

scope_cluster::scope_cluster(const cluster_options& options)
  : options_(options), random_(options.seed),
    rows_(!options.faults() && !options.late_openers), touched_(options.nodes) {
  nodes_.resize(options.nodes);
  for (std::size_t i = 0; i < options.nodes; ++i)
    names_.push_back(fmt::format("n{}", i));
  for (std::size_t i = 0; i < options.nodes; ++i)
    start_node(i, 0);
  beat();
}

scope_cluster::~scope_cluster() {
  try {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      stop_node(i);
  } catch (const std::exception&) {
    // after a violation nothing is in order any more
  }
}

void scope_cluster::run() {
  for (std::size_t i = 0; i < options_.actions; ++i) {
    act();
    if (touched_ < options_.nodes)
      watch_rows(touched_);
    auto pause = events_.now() + time_point{below(60)};
    while (!events_.empty() && events_.next() <= pause)
      step();
    events_.wait_until(pause);
  }
  drain();
}

std::size_t scope_cluster::count(const std::string& what) const {
  auto i = counts_.find(what);
  return i != counts_.end() ? i->second : 0;
}

// -- the end ------------------------------------------------------------------

/// All faults end, all clients give up what they hold, time passes. If then
/// anything is left, somebody has forgotten it.
void scope_cluster::drain() {
  end_faults();
  // What a cut has left in two hands is settled.
  for (auto until = events_.now() + time_point{6000};
       !events_.empty() && events_.next() <= until;)
    step();
  for (auto serial : live_)
    if (const auto& a = asks_.at(serial); a.at == stage::held)
      check_alone(a, nodes_of(a));
  draining_ = true;
  for (int round = 0; round < 100'000; ++round) {
    // Those that follow a script give nothing up before they have all.
    if (!options_.deadlocks && (round % 64 == 0 || events_.empty()))
      for (auto* a : live_asks())
        give_up(*a);
    if (events_.empty())
      break;
    step();
  }
  check(events_.empty(), "it comes to rest");
  check_nothing_is_left();
}

void scope_cluster::end_faults() {
  while (!deaf_.empty()) {
    auto [i, j] = *deaf_.begin();
    heal(i, j);
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i] == nullptr)
      start_node(i, 0);
    else
      thaw(*nodes_[i]);
}

void scope_cluster::check_nothing_is_left() {
  if (options_.deadlocks) {
    observe_waits();
    auto stuck = waits_.stuck();
    check(stuck.empty(), "stuck: " + stuck);
  }
  for (const auto& [serial, a] : asks_)
    check(a.at == stage::done && (a.told || scope_of(a) == nullptr),
          fmt::format("{} has ended and was told so", to_string(a.spec.id)));
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    auto* s = scope_at(i);
    check(s != nullptr && s->is_ready, "all have joined");
    check(s->home.members().view().size() == nodes_.size(), "all see all");
    check(s->home.requests() == 0, "no request is left");
    check(s->own.requests() == 0, "no part of its own is left");
    for (auto& [peer, w] : s->workers)
      check(w.machine == nullptr
              || (w.machine->requests() == 0 && w.machine->sessions() == 0),
            fmt::format("no part of {} is left on {}", peer, i));
    check(s->locks.table().rows() == 0, "no row is left");
    check(s->locks.table().waiters() == 0, "nobody waits");
    check(s->search.running() == 0, "no walk is left");
    check(s->parts.empty(), "nobody is on the board");
    s->locks.table().check_invariants();
  }
}

} // namespace pawl::sim
