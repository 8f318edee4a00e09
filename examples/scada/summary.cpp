#include "summary.hpp"

#include "checker.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace scada {

namespace {

constexpr time_ns writing_patience = 5'000'000'000;

template <class... Ts>
void row(std::string_view about, fmt::format_string<Ts...> format, Ts&&... xs) {
  fmt::print("{:<11}{}\n", about, fmt::format(format, std::forward<Ts>(xs)...));
}

std::uint64_t sum(const run_result& result, const char* key) {
  std::uint64_t all = 0;
  for (auto& [node, last] : result.finals)
    all += last.value(key, std::uint64_t{0});
  if (result.killed_figures.is_object())
    all += result.killed_figures.value(key, std::uint64_t{0});
  return all;
}

double largest(const run_result& result, const char* key) {
  double most = 0;
  for (auto& [node, last] : result.finals)
    most = std::max(most, last.value(key, 0.0));
  return most;
}

/// What must be zero on every node after the services have stopped.
std::vector<std::string> left_over(const run_plan& plan,
                                   const run_result& result) {
  std::vector<std::string> sentences;
  for (auto& node : plan.nodes) {
    auto last = result.finals.find(node.name);
    if (last == result.finals.end()) {
      sentences.push_back(fmt::format("{} has said no last words", node.name));
      continue;
    }
    if (auto running = last->second.value("running", -1); running != 0)
      sentences.push_back(
        fmt::format("{}: {} services still run", node.name, running));
    for (auto scope : {"services", "tags"})
      for (auto what : {"rows", "sessions", "requests", "waits"}) {
        auto pointer = nlohmann::json::json_pointer{
          fmt::format("/{}_scope/{}", scope, what)};
        auto count = last->second.value(pointer, std::int64_t{-1});
        if (count != 0)
          sentences.push_back(fmt::format("{}: {} {} are left in scope {}",
                                          node.name, count, what, scope));
      }
  }
  return sentences;
}

void tell_gaps(const run_result& result) {
  if (result.gaps.empty())
    return;
  std::vector<double> gaps;
  for (auto& [service, gap] : result.gaps)
    gaps.push_back(gap);
  std::sort(gaps.begin(), gaps.end());
  row("failover",
      "{} services moved when {} was killed; without a leader for "
      "{:.3f} s (median), {:.3f} s (longest)",
      gaps.size(), result.killed_node, gaps[gaps.size() / 2], gaps.back());
}

} // namespace

bool judge(const run_options& options, const run_plan& plan,
           const run_result& result) {
  plant layout{plan.plant};
  history run;
  auto bad = result.troubles;
  auto add = [&bad](const std::vector<std::string>& more) {
    bad.insert(bad.end(), more.begin(), more.end());
  };
  add(read_journals(result.journals, run));
  auto judged = check(run, layout, result.ended, writing_patience);
  add(judged.sentences);
  if (judged.violations > judged.sentences.size())
    bad.push_back(fmt::format("... and {} more",
                              judged.violations - judged.sentences.size()));
  add(left_over(plan, result));

  fmt::print("\n");
  row("run", "{} nodes, {} devices, {} services, {} tags, {:.0f} s",
      plan.nodes.size(), plan.devices.size(), layout.services().size(),
      layout.tags().size(), options.duration);
  row("leaders", "{} epochs recorded in {} journals", judged.leaderships,
      result.journals.size());
  tell_gaps(result);
  row("writers",
      "{} locked sections over {} tags, {} of which had several "
      "writers",
      judged.sections, judged.tags, judged.contended_tags);
  row("writes", "{} by services, {} by operators, {} replicated",
      sum(result, "written"), sum(result, "operator_writes"),
      sum(result, "replicated"));
  row("refused", "{} of an older epoch, {} overtaken by a newer lock",
      sum(result, "stale_epoch"), sum(result, "overtaken"));
  row("locks", "{} on tags, {} of them waited, 99 of 100 for at most {:.1f} ms",
      sum(result, "locked"), sum(result, "waited"),
      largest(result, "p99_wait_us") / 1e3);
  row("failures",
      "{} locks of heavy writers, {} operator writes, {} Modbus "
      "polls",
      sum(result, "lock_failures"), sum(result, "operator_failures"),
      sum(result, "device_errors"));
  row("archive", "{} rows", sum(result, "archived"));
  fmt::print("\n");
  for (auto& sentence : bad)
    fmt::print("  {}\n", sentence);
  if (bad.empty())
    fmt::print("good: no service had two leaders, no tag two writers, every "
               "service ran to the\nend, and nothing is left locked\n");
  else
    fmt::print("NOT GOOD: {} faults\n", bad.size());
  return bad.empty();
}

} // namespace scada
