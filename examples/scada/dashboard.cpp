#include "dashboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <sys/ioctl.h>
#include <unistd.h>

namespace scada {

namespace {

/// The growth of a counter within the last second.
std::uint64_t growth(const node_view& node,
                     std::uint64_t node_counts::*counter) {
  auto now = node.now.*counter;
  auto before = node.before.*counter;
  return now > before ? now - before : 0;
}

std::size_t screen_width() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return 80;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

constexpr std::string_view indent = "      ";

/// What a node does, in lines that fit the screen.
std::string services_of(const node_view& node, std::size_t width) {
  if (node.state != "up")
    return fmt::format("{}{}\n", indent, node.state);
  if (node.services.empty())
    return fmt::format("{}stands by\n", indent);
  std::string lines;
  auto line = fmt::format("{}{} services:", indent, node.services.size());
  for (auto& service : node.services) {
    if (line.size() + 1 + service.size() > width) {
      lines += line + "\n";
      line = indent;
    }
    line += " " + service;
  }
  return lines + line + "\n";
}

// A wrapped line would spoil the count of lines to go up.
std::string cut(std::string line, std::size_t width) {
  if (line.size() > width)
    line.resize(width);
  return line + "\n";
}

} // namespace

dashboard::dashboard() : terminal_(isatty(STDOUT_FILENO) != 0) {
  // nop
}

void dashboard::event(double at, std::string_view what) {
  erase_table();
  print(fmt::format("{:6.2f} s  {}\n", at, what));
  print(table_);
}

void dashboard::draw(double at, const std::vector<node_view>& nodes) {
  if (terminal_)
    draw_table(at, nodes);
  else
    draw_line(at, nodes);
}

void dashboard::finish() {
  table_.clear();
}

// -- private ------------------------------------------------------------------

void dashboard::draw_table(double at, const std::vector<node_view>& nodes) {
  auto width = screen_width();
  auto table
    = "\n"
      + cut(fmt::format("{:<6}{:>10}{:>10}{:>9}{:>12}{:>10}{:>9}",
                        fmt::format("{:.0f} s", at), "writes/s", "locks/s",
                        "waits/s", "p99 lock", "operator", "refused"),
            width);
  for (auto& node : nodes) {
    table += cut(fmt::format("{:<6}{:>10}{:>10}{:>9}{:>9.0f} us{:>10}{:>9}",
                             node.name, growth(node, &node_counts::written),
                             growth(node, &node_counts::locked),
                             growth(node, &node_counts::waited),
                             node.p99_microseconds, node.now.operator_writes,
                             node.now.refused),
                 width);
    table += services_of(node, width);
  }
  erase_table();
  print(table);
  table_ = std::move(table);
}

void dashboard::draw_line(double at, const std::vector<node_view>& nodes) {
  node_counts sum;
  double p99 = 0;
  auto line = fmt::format("{:6.2f} s ", at);
  for (auto& node : nodes) {
    if (node.state == "up")
      line += fmt::format(" {} {} services,", node.name, node.services.size());
    else
      line += fmt::format(" {} {},", node.name, node.state);
    sum.written += growth(node, &node_counts::written);
    sum.locked += growth(node, &node_counts::locked);
    sum.waited += growth(node, &node_counts::waited);
    sum.operator_writes += growth(node, &node_counts::operator_writes);
    p99 = std::max(p99, node.p99_microseconds);
  }
  print(fmt::format("{} {} writes/s, {} locks/s, {} waits/s, p99 of a lock "
                    "{:.0f} us, {} operator writes/s\n",
                    line, sum.written, sum.locked, sum.waited, p99,
                    sum.operator_writes));
}

void dashboard::erase_table() {
  if (table_.empty())
    return;
  auto lines = std::count(table_.begin(), table_.end(), '\n');
  print(fmt::format("\x1b[{}A\x1b[J", lines));
}

} // namespace scada
