// planted: faults that can be put into the machines on purpose, to see that the
// simulator finds them (test/sim). In every other build PAWL_PLANTED is the
// constant false, and nothing of this is there.
//
// Each is one that somebody could have written; what it breaks, and after how
// many seeds it is found, is said in test/README.md.

#pragma once

#ifdef PAWL_PLANT_FAULTS

#  include <algorithm>
#  include <array>
#  include <cstddef>
#  include <string_view>

namespace pawl::planted {

enum class fault : std::size_t {
  /// A request is let in to a free row although others wait.
  grants_past_the_queue,
  /// Who leaves a queue wakes nobody.
  leaves_without_a_look,
  /// A request that ends takes back what it asked for on its lead alone.
  abandons_on_the_lead_only,
  releases_on_the_lead_only,
  /// A late answer to an older attempt is taken for one to this.
  believes_old_attempts,
  /// A node says that it has raised a token, and has not.
  raises_no_token,
  /// What came over a link stays when it is gone.
  ignores_incarnations,
  /// A node is ready without what its peers hold everywhere.
  is_ready_without_hand_over,
  /// Holds that meet after a cut stay as they are.
  settles_no_conflict,
  /// A wait that is entered begins no search.
  begins_no_walk,
  /// A cycle that was found is told without asking the homes.
  skips_the_confirmation,
  sentences_the_oldest,
  /// An abandon is faster than the request that went before it.
  abandon_overtakes,
  none,
};

constexpr std::array<std::string_view, static_cast<std::size_t>(fault::none)>
  names{
    "grants_past_the_queue",     "leaves_without_a_look",
    "abandons_on_the_lead_only", "releases_on_the_lead_only",
    "believes_old_attempts",     "raises_no_token",
    "ignores_incarnations",      "is_ready_without_hand_over",
    "settles_no_conflict",       "begins_no_walk",
    "skips_the_confirmation",    "sentences_the_oldest",
    "abandon_overtakes",
  };

/// The one that is in.
inline fault chosen = fault::none;

/// False if there is none of that name.
inline bool choose(std::string_view name) {
  auto i = std::find(names.begin(), names.end(), name);
  chosen = static_cast<fault>(i - names.begin());
  return i != names.end();
}

} // namespace pawl::planted

#  define PAWL_PLANTED(name) \
    (::pawl::planted::chosen == ::pawl::planted::fault::name)

#else

#  define PAWL_PLANTED(name) false

#endif
