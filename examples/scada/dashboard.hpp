// What a run looks like while it goes on: a table that is drawn anew every
// second in a terminal, and one line per second elsewhere. Events stand above
// the table and stay.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace scada {

/// Counters of a node since its start; the table shows their growth.
struct node_counts {
  std::uint64_t written = 0;
  std::uint64_t locked = 0;
  std::uint64_t waited = 0;
  std::uint64_t operator_writes = 0;
  std::uint64_t refused = 0;
};

struct node_view {
  std::string name;
  std::string state = "starting"; // up, killed, ...
  std::set<std::string> services;
  node_counts now;
  node_counts before; // a second ago
  double p99_microseconds = 0;
};

class dashboard {
public:
  dashboard();

  /// One line that stays.
  void event(double at, std::string_view what);

  void draw(double at, const std::vector<node_view>& nodes);

  /// No more tables; what has been drawn last stays.
  void finish();

private:
  void draw_table(double at, const std::vector<node_view>& nodes);
  void draw_line(double at, const std::vector<node_view>& nodes);
  void erase_table();

  const bool terminal_;
  std::string table_; // as it stands on the screen
};

} // namespace scada
