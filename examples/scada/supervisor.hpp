// One run: starts devices and nodes at the same moment, kills one node,
// restarts it, stops all, and judges what the nodes recorded.
//
//   starting -> running            every service is led
//   running  -> one node killed    after a third of the duration
//   killed   -> restarted          a fifth of the duration later
//   ...      -> stopping           at the end, or on the first trouble
//
// One thread: reads the nodes' lines, draws, and looks at the clock. Whatever
// way it is left, all processes are dead afterwards.

#pragma once

#include "child_process.hpp"
#include "dashboard.hpp"
#include "journal_reader.hpp"
#include "plant.hpp"
#include "run_plan.hpp"

#include <nlohmann/json.hpp>

#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace scada {

/// What a run has left for its summary.
struct run_result {
  bool interrupted = false;
  std::vector<std::string> troubles;
  time_ns ended = 0; // the moment before the nodes were told to stop
  std::vector<journal_file> journals;
  std::map<std::string, nlohmann::json> finals; // the last words of each node
  nlohmann::json killed_figures;                // the last before the kill
  std::string killed_node;
  std::map<std::string, double> gaps; // seconds without a leader, per service
};

class supervisor {
public:
  supervisor(const run_options& options, const run_plan& plan,
             const std::filesystem::path& data);

  run_result run();

private:
  struct node {
    const process_plan* plan;
    std::unique_ptr<child_process> process;
    unsigned starts = 0;
    bool stopping = false;
  };

  // -- the course of a run ----------------------------------------------------

  void start_all();
  void run_until_the_end();
  void kill_one();
  void restart_killed();
  void stop_all();

  // -- what nodes say ---------------------------------------------------------

  void listen(time_ns until);
  void take(std::size_t index, const std::string& line);
  void service_began(std::size_t index, const nlohmann::json& said);
  void look_for_ended_processes();

  // -- helpers ----------------------------------------------------------------

  void start_node(std::size_t index);
  void event(std::string_view what);
  void trouble(std::string what);
  [[nodiscard]] bool all_led() const;
  [[nodiscard]] bool over() const;
  [[nodiscard]] std::filesystem::path log_of(const std::string& name) const;

  const run_options& options_;
  const run_plan& plan_;
  const std::filesystem::path data_;
  const plant layout_;
  const time_ns start_ = now_ns();
  dashboard screen_;
  std::deque<child_process> devices_;
  std::vector<node> nodes_;
  std::vector<node_view> views_;
  std::vector<nlohmann::json> figures_; // the last of each node
  time_ns next_draw_ = 0;

  std::size_t killed_ = 0;                     // index of the killed node
  time_ns killed_at_ = 0;                      // 0: nobody
  time_ns restarted_at_ = 0;                   // 0: not yet
  std::map<std::string, std::string> orphans_; // service -> node it was on
  run_result result_;
};

} // namespace scada
