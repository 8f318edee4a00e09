// Turns the journals of all nodes, those of killed ones included, into one
// history.

#pragma once

#include "history.hpp"

#include <filesystem>
#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace scada {

/// One start of one node.
struct journal_file {
  std::string node;
  std::filesystem::path path;
  /// When it was killed, if it was: the moment before the signal was sent.
  std::optional<time_ns> killed;
};

/// Adds what one journal tells to `out`. What had begun and not ended when the
/// node was killed is taken to have lasted until then, or until the last thing
/// it recorded if that was later. Returns a sentence for each line that cannot
/// be read; a last line without an end is what a kill may leave and is skipped.
std::vector<std::string> read_journal(std::istream& in, const std::string& node,
                                      std::optional<time_ns> killed,
                                      history& out);

std::vector<std::string> read_journals(const std::vector<journal_file>& files,
                                       history& out);

} // namespace scada
