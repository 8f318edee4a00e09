// What may happen in a run of the simulator, and the mixes that have a name.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <stdexcept>
#include <string_view>

namespace pawl::sim {

/// Which terms clients ask for.
enum class workload : std::uint8_t {
  random,
  /// Mostly the same one.
  hot,
  /// A session asks in ascending order, for every node: no cycle can close, and
  /// a verdict is a fault.
  sorted,
};

struct cluster_options {
  std::uint64_t seed = 1;
  std::size_t nodes = 3;
  std::size_t terms = 4;
  std::size_t actions = 300;
  workload terms_asked = workload::random;
  /// Links close and open again between live nodes: until that is settled two
  /// sides may hold the same term. `one_way`: some are deaf in one direction.
  bool cuts = false;
  bool one_way = false;
  bool kills = false;
  /// Wall clocks step while a node is down, back or ahead.
  bool clock_steps = false;
  /// Nodes stop for a while, some for longer than the time-out.
  bool freezes = false;
  /// What a node sends and does takes longer for a while.
  bool slow_nodes = false;
  /// The scope is closed on a node, and opened again.
  bool reopens = false;
  /// Some nodes open the scope late.
  bool late_openers = false;
  /// Requests for lists of nodes, upgrades, several requests per session: what
  /// may run into a true deadlock, and ends by its deadline then.
  bool crossing = false;
  /// Requests for the client's own node alone, too; or nothing else.
  bool direct = true;
  bool only_direct = false;
  /// Of a hundred acts.
  std::uint64_t direct_share = 16;
  /// Clients take locks one after another, sometimes two at once, and give none
  /// up before they have all: true deadlocks are common, and nothing but a
  /// verdict ends them. `patience` is the grace before walks through partial
  /// grants.
  bool deadlocks = false;
  std::uint64_t patience = 100;
  std::size_t probe_limit = 10'000;
  /// Where to tell what happens, line by line.
  std::ostream* trace = nullptr;

  /// Two sides may hold the same term for a while.
  [[nodiscard]] bool splits() const noexcept {
    return cuts || freezes;
  }

  /// Something may be lost without its client's doing.
  [[nodiscard]] bool faults() const noexcept {
    return splits() || kills || reopens;
  }
};

struct profile {
  std::string_view name;
  std::string_view story;
  cluster_options options;
};

/// All of them, in the order in which seeds go through them.
[[nodiscard]] std::span<const profile> profiles() noexcept;

/// Null if there is none of that name.
[[nodiscard]] const profile* find_profile(std::string_view name) noexcept;

/// The profile and the size of a run follow from its seed: 2 to 7 nodes. If
/// `forced` is given, only the size does.
[[nodiscard]] cluster_options options_of(std::uint64_t seed,
                                         const profile* forced) noexcept;

/// The checker's complaint.
struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace pawl::sim
