#include "options.hpp"

#include <algorithm>
#include <iterator>

namespace pawl::sim {

namespace {

const profile all_profiles[]{
  {"local",
   "one node at a time: the row, its manager, sessions",
   {.actions = 200,
    .crossing = true,
    .only_direct = true,
    .direct_share = 60}},
  {"every-node",
   "sessions that hold nothing else: everybody is granted",
   {.actions = 200}},
  {"hot",
   "the same, mostly for one term",
   {.actions = 200, .terms_asked = workload::hot}},
  {"crossing",
   "lists of nodes, upgrades, several requests per session",
   {.actions = 200, .crossing = true}},
  {"late",
   "nodes that open the scope late",
   {.actions = 200, .late_openers = true, .crossing = true}},
  {"kills",
   "nodes that die and come back",
   {.actions = 200, .kills = true, .late_openers = true}},
  {"clocks",
   "the same, one at a time, with wall clocks that step meanwhile, and cuts",
   {.actions = 200,
    .cuts = true,
    .kills = true,
    .clock_steps = true,
    .crossing = true,
    .direct_share = 50}},
  {"cuts",
   "links that break, some in one direction only",
   {.actions = 200, .cuts = true, .one_way = true}},
  {"freezes",
   "nodes that stop for a while, and slow ones",
   {.actions = 200, .freezes = true, .slow_nodes = true}},
  {"reopens",
   "scopes that are closed and opened again",
   {.actions = 200, .reopens = true, .crossing = true}},
  {"storm",
   "all of it at once",
   {.actions = 200,
    .cuts = true,
    .one_way = true,
    .kills = true,
    .freezes = true,
    .slow_nodes = true,
    .reopens = true,
    .late_openers = true,
    .crossing = true}},
  {"deadlocks",
   "cycles, on one node and across nodes",
   {.terms = 5, .actions = 80, .deadlocks = true}},
  {"impatient",
   "the same, without any grace",
   {.terms = 3, .actions = 80, .deadlocks = true, .patience = 0}},
  {"sorted",
   "terms in order: no verdict at all",
   {.terms = 5,
    .actions = 80,
    .terms_asked = workload::sorted,
    .direct = false,
    .deadlocks = true}},
  {"deadlocks-kills",
   "cycles, while nodes die",
   {.actions = 100, .kills = true, .late_openers = true, .deadlocks = true}},
  {"deadlocks-cuts",
   "cycles, while links break",
   {.actions = 100, .cuts = true, .one_way = true, .deadlocks = true}},
  {"deadlocks-freezes",
   "cycles, while nodes stop and are slow",
   {.actions = 100, .freezes = true, .slow_nodes = true, .deadlocks = true}},
  {"deadlocks-reopens",
   "cycles, while scopes are closed and opened",
   {.actions = 100, .reopens = true, .deadlocks = true}},
  {"limit",
   "searches that are too large",
   {.terms = 3, .actions = 80, .deadlocks = true, .probe_limit = 3}},
};

} // namespace

std::span<const profile> profiles() noexcept {
  return all_profiles;
}

const profile* find_profile(std::string_view name) noexcept {
  auto i = std::find_if(std::begin(all_profiles), std::end(all_profiles),
                        [=](const profile& x) { return x.name == name; });
  return i != std::end(all_profiles) ? &*i : nullptr;
}

cluster_options options_of(std::uint64_t seed, const profile* forced) noexcept {
  constexpr auto count = std::size(all_profiles);
  auto result
    = (forced != nullptr ? *forced : all_profiles[seed % count]).options;
  result.seed = seed;
  // Small clusters more often: what goes wrong does so there, and faster.
  constexpr std::size_t sizes[]{2, 3, 2, 4, 3, 5, 2, 3, 4, 6, 3, 7};
  result.nodes = sizes[seed / count % std::size(sizes)];
  return result;
}

} // namespace pawl::sim
