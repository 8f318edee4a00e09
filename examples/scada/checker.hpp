// Judges a run by what all its nodes recorded. A pure function: no file, no
// clock.
//
//   R1  no service had two leaders at once, and a later leader has a larger
//       epoch token;
//   R2  whatever a service wrote, it wrote while it led;
//   R3  no tag had two writers at once: sections of different writers over one
//       tag do not overlap, be they shared or exclusive. (Heavy services own
//       their tags, so even shared sections of two of them must not.)
//   R4  the tokens of a tag's exclusive locks grow, and a shared lock's token
//       is not behind that of an earlier exclusive one;
//   R5  every service ran to the end: somebody led it then, and one that writes
//       by itself had written shortly before;
//   R6  every node either ended in good order or was killed on purpose.

#pragma once

#include "history.hpp"
#include "plant.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace scada {

struct report {
  std::size_t leaderships = 0;
  std::size_t sections = 0;
  std::size_t tags = 0;           // written by anybody
  std::size_t contended_tags = 0; // written by more than one service
  std::size_t violations = 0;
  std::vector<std::string> sentences; // of the first `max_sentences` violations

  static constexpr std::size_t max_sentences = 20;
};

/// `ended` is the moment before the nodes were told to stop; `patience` is how
/// long a writing service may be silent before it.
report check(const history& run, const plant& layout, time_ns ended,
             time_ns patience);

} // namespace scada
