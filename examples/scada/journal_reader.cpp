#include "journal_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <unordered_map>

namespace scada {

namespace {

class reader {
public:
  reader(const std::string& node, history& out) : node_(node), out_(out) {
    // nop
  }

  /// Takes one line in; false if it makes no sense.
  bool take(const std::string& line) {
    std::istringstream in{line};
    char kind = 0;
    if (!(in >> kind))
      return false;
    switch (kind) {
      case 'B':
        return begin(in);
      case 'L':
        return leader_began(in);
      case 'T':
        return tokens(in);
      case 'O':
        return section_opened(in);
      case 'C':
        return section_closed(in);
      case 'E':
        return leader_ended(in);
      case 'Z':
        return complete_ = seen(in);
      default:
        return false;
    }
  }

  void finish(std::optional<time_ns> killed) {
    if (!complete_ && !killed)
      out_.broken_off.push_back(node_);
    auto end = std::max(latest_, killed.value_or(latest_));
    for (auto& [who, open] : sections_) {
      open.stop = end;
      out_.sections.push_back(std::move(open));
    }
    for (auto& [who, open] : leaderships_) {
      open.stop = end;
      out_.leaderships.push_back(std::move(open));
    }
  }

private:
  using writer = std::pair<service_id, std::uint64_t>;

  bool begin(std::istringstream& in) {
    std::string name;
    return in >> name && name == node_ && seen(in);
  }

  bool leader_began(std::istringstream& in) {
    writer who;
    if (!(in >> who.first >> who.second) || !seen(in))
      return false;
    tokens_[who.first].clear();
    leadership open{who.first, who.second, node_, last_, last_};
    return leaderships_.emplace(who, std::move(open)).second;
  }

  bool leader_ended(std::istringstream& in) {
    writer who;
    if (!(in >> who.first >> who.second) || !seen(in))
      return false;
    auto open = leaderships_.extract(who);
    if (open.empty())
      return false;
    open.mapped().stop = last_;
    out_.leaderships.push_back(std::move(open.mapped()));
    return true;
  }

  bool tokens(std::istringstream& in) {
    writer who;
    std::uint64_t token = 0;
    if (!(in >> who.first >> who.second >> token))
      return false;
    for (tag_id tag = 0; in >> tag;)
      tokens_[who.first][tag] = token;
    return in.eof();
  }

  bool section_opened(std::istringstream& in) {
    section open;
    std::string mode;
    if (!(in >> open.service >> open.epoch >> mode) || !seen(in))
      return false;
    open.mode = mode == "exclusive" ? pawl::exclusive : pawl::shared;
    open.start = last_;
    auto& known = tokens_[open.service];
    tag_range range;
    while (in >> range.first >> range.count)
      for (tag_id i = 0; i < range.count; ++i)
        open.rights.push_back({range.first + i, known[range.first + i]});
    writer who{open.service, open.epoch};
    return in.eof() && sections_.emplace(who, std::move(open)).second;
  }

  bool section_closed(std::istringstream& in) {
    writer who;
    if (!(in >> who.first >> who.second) || !seen(in))
      return false;
    auto open = sections_.extract(who);
    if (open.empty())
      return false;
    open.mapped().stop = last_;
    out_.sections.push_back(std::move(open.mapped()));
    return true;
  }

  // Threads append side by side, so stamps are not in order.
  bool seen(std::istringstream& in) {
    if (!(in >> last_))
      return false;
    latest_ = std::max(latest_, last_);
    return true;
  }

  const std::string& node_;
  history& out_;
  std::map<writer, leadership> leaderships_;
  std::map<writer, section> sections_;
  std::unordered_map<service_id, std::unordered_map<tag_id, std::uint64_t>>
    tokens_;
  time_ns last_ = 0;
  time_ns latest_ = 0;
  bool complete_ = false;
};

} // namespace

std::vector<std::string> read_journal(std::istream& in, const std::string& node,
                                      std::optional<time_ns> killed,
                                      history& out) {
  std::vector<std::string> errors;
  reader lines{node, out};
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (in.eof())
      break; // no newline: cut off in the middle
    if (!lines.take(line))
      errors.push_back(fmt::format("journal of {}, line {}: cannot be read: {}",
                                   node, number, line));
  }
  lines.finish(killed);
  return errors;
}

std::vector<std::string> read_journals(const std::vector<journal_file>& files,
                                       history& out) {
  std::vector<std::string> errors;
  for (auto& file : files) {
    std::ifstream in{file.path};
    if (!in) {
      errors.push_back(fmt::format("journal of {}: cannot open {}", file.node,
                                   file.path.string()));
      continue;
    }
    auto more = read_journal(in, file.node, file.killed, out);
    errors.insert(errors.end(), more.begin(), more.end());
  }
  return errors;
}

} // namespace scada
