#include "supervisor.hpp"

#include "child.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <poll.h>
#include <utility>

namespace scada {

namespace {

constexpr time_ns second = 1'000'000'000;
constexpr time_ns start_patience = 20 * second;
constexpr time_ns stop_patience = 15 * second;

std::string last_line_of(const std::filesystem::path& file) {
  std::ifstream in{file};
  std::string line, last;
  while (std::getline(in, line))
    if (!line.empty())
      last = line;
  return last;
}

} // namespace

supervisor::supervisor(const run_options& options, const run_plan& plan,
                       const std::filesystem::path& data)
  : options_(options), plan_(plan), data_(data), layout_(plan.plant) {
  // nop
}

run_result supervisor::run() {
  start_all();
  run_until_the_end();
  stop_all();
  result_.interrupted = stop_requested();
  return std::move(result_);
}

// -- the course of a run ------------------------------------------------------

void supervisor::start_all() {
  event(fmt::format("starting {} devices and {} nodes, {} services, {} tags",
                    plan_.devices.size(), plan_.nodes.size(),
                    layout_.services().size(), layout_.tags().size()));
  for (auto& device : plan_.devices)
    devices_.emplace_back(device.command, log_of(device.name));
  for (auto& node : plan_.nodes) {
    nodes_.emplace_back().plan = &node;
    views_.emplace_back().name = node.name;
  }
  figures_.resize(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    start_node(i);
}

void supervisor::run_until_the_end() {
  auto duration = static_cast<time_ns>(options_.duration * 1e9);
  while (!over() && !all_led()) {
    listen(now_ns() + second / 20);
    if (now_ns() > start_ + start_patience)
      trouble("not every service has found a leader");
  }
  if (!over())
    event("every service is led");
  auto next = nodes_.size() > 1 ? &supervisor::kill_one : nullptr;
  auto due = start_ + duration / 3;
  auto end = start_ + duration;
  while (!over() && (next != nullptr || now_ns() < end)) {
    listen(now_ns() + second / 20);
    if (next == nullptr || now_ns() < due || over())
      continue;
    (this->*next)();
    due = now_ns() + duration / 5;
    if (next == &supervisor::kill_one) {
      next = &supervisor::restart_killed;
    } else {
      next = nullptr;
      end = std::max(end, due);
    }
  }
  if (!over() && killed_at_ != 0 && !orphans_.empty())
    trouble(fmt::format("{} of the killed node's services found no new leader",
                        orphans_.size()));
}

// The one that leads most, so that there is most to see.
void supervisor::kill_one() {
  auto most
    = std::max_element(views_.begin(), views_.end(), [](auto& a, auto& b) {
        return a.services.size() < b.services.size();
      });
  killed_ = static_cast<std::size_t>(most - views_.begin());
  result_.killed_node = most->name;
  nodes_[killed_].stopping = true;
  killed_at_ = nodes_[killed_].process->kill();
  for (auto& journal : result_.journals)
    if (journal.node == most->name)
      journal.killed = killed_at_;
  // Take in what it had said before.
  for (auto& line : nodes_[killed_].process->read_lines())
    take(killed_, line);
  for (auto& service : most->services)
    orphans_.emplace(service, most->name);
  event(fmt::format("killed {} with SIGKILL; it led {}", most->name,
                    fmt::join(most->services, " ")));
  result_.killed_figures = figures_[killed_];
  most->services.clear();
  most->state = "killed";
}

void supervisor::restart_killed() {
  event(fmt::format("starting {} again", views_[killed_].name));
  restarted_at_ = now_ns();
  start_node(killed_);
}

void supervisor::stop_all() {
  if (!stop_requested() && result_.troubles.empty())
    event("stopping all services");
  result_.ended = now_ns();
  for (auto& node : nodes_) {
    node.stopping = true;
    if (node.process)
      node.process->signal(SIGTERM);
  }
  auto end = now_ns() + stop_patience;
  auto running
    = [](auto& node) { return node.process && node.process->running(); };
  while (now_ns() < end && std::any_of(nodes_.begin(), nodes_.end(), running))
    listen(now_ns() + second / 50);
  listen(now_ns());
  screen_.finish();
  for (auto& node : nodes_) {
    if (node.process && !node.process->succeeded())
      trouble(fmt::format("{} {}: {}", node.plan->name, node.process->ending(),
                          last_line_of(log_of(node.plan->name))));
    node.process.reset();
  }
  for (auto& device : devices_)
    device.signal(SIGTERM);
  for (auto& device : devices_)
    device.wait(second);
  devices_.clear();
}

// -- what nodes say -----------------------------------------------------------

void supervisor::listen(time_ns until) {
  do {
    std::vector<pollfd> outputs;
    for (auto& node : nodes_)
      outputs.push_back(
        {node.process ? node.process->output() : -1, POLLIN, 0});
    auto patience = std::max<time_ns>(until - now_ns(), 0) / 1'000'000;
    poll(outputs.data(), outputs.size(), static_cast<int>(patience));
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (outputs[i].revents != 0)
        for (auto& line : nodes_[i].process->read_lines())
          take(i, line);
  } while (now_ns() < until && !stop_requested());
  look_for_ended_processes();
  if (now_ns() >= next_draw_) {
    screen_.draw(seconds(now_ns() - start_), views_);
    next_draw_ = now_ns() + second;
  }
}

void supervisor::take(std::size_t index, const std::string& line) {
  auto& view = views_[index];
  auto said = nlohmann::json::parse(line, nullptr, false);
  if (!said.is_object())
    return trouble(fmt::format("{} said: {}", view.name, line));
  auto kind = said.value("kind", "");
  if (kind == "lead") {
    service_began(index, said);
  } else if (kind == "left") {
    view.services.erase(said.value("service", ""));
  } else if (kind == "figures" || kind == "final") {
    view.before = std::exchange(
      view.now,
      {said.value("written", 0ul), said.value("locked", 0ul),
       said.value("waited", 0ul), said.value("operator_writes", 0ul),
       said.value("stale_epoch", 0ul) + said.value("overtaken", 0ul)});
    view.state = "up";
    view.p99_microseconds = said.value("p99_lock_us", 0.0);
    figures_[index] = said;
    if (kind == "final")
      result_.finals[view.name] = std::move(said);
  }
}

void supervisor::service_began(std::size_t index, const nlohmann::json& said) {
  auto& view = views_[index];
  view.state = "up";
  auto service = said.value("service", "");
  view.services.insert(service);
  auto orphan = orphans_.find(service);
  if (orphan == orphans_.end())
    return;
  auto gap = seconds(said.value("time", time_ns{0}) - killed_at_);
  event(fmt::format("  {:<10} {} -> {}, {:.3f} s without a leader", service,
                    orphan->second, view.name, gap));
  result_.gaps.emplace(service, gap);
  orphans_.erase(orphan);
  if (orphans_.empty())
    event("every service is led again");
}

void supervisor::look_for_ended_processes() {
  for (auto& node : nodes_)
    if (node.process && !node.stopping && !node.process->running()) {
      node.stopping = true;
      trouble(fmt::format("{} {}: {}", node.plan->name, node.process->ending(),
                          last_line_of(log_of(node.plan->name))));
    }
  for (std::size_t i = 0; i < devices_.size(); ++i)
    if (!devices_[i].running() && !over()) {
      auto& name = plan_.devices[i].name;
      trouble(fmt::format("{} {}: {}", name, devices_[i].ending(),
                          last_line_of(log_of(name))));
    }
}

// -- helpers ------------------------------------------------------------------

void supervisor::start_node(std::size_t index) {
  auto& node = nodes_[index];
  auto journal
    = data_ / fmt::format("{}.journal.{}", node.plan->name, ++node.starts);
  auto command = node.plan->command;
  command.insert(command.end(), {"--journal", journal.string()});
  result_.journals.push_back({node.plan->name, journal, std::nullopt});
  node.process
    = std::make_unique<child_process>(command, log_of(node.plan->name));
  node.stopping = false;
  views_[index] = node_view{};
  views_[index].name = node.plan->name;
}

void supervisor::event(std::string_view what) {
  screen_.event(seconds(now_ns() - start_), what);
}

void supervisor::trouble(std::string what) {
  // What happens after a Ctrl-C is no trouble.
  if (stop_requested())
    return;
  event(what);
  result_.troubles.push_back(std::move(what));
}

bool supervisor::all_led() const {
  std::size_t led = 0;
  for (auto& view : views_)
    led += view.services.size();
  return led >= layout_.services().size();
}

bool supervisor::over() const {
  return stop_requested() || !result_.troubles.empty();
}

std::filesystem::path supervisor::log_of(const std::string& name) const {
  return data_ / (name + ".log");
}

} // namespace scada
