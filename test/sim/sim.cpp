// sim: runs simulated clusters from seeds, and says which ones break.
//
//   sim --seed 4711 --trace       one run again, with all that happens
//   sim --seeds 1-2000            many, with progress on a terminal
//   sim --minutes 60              as many as fit
//
// A seed says all: the profile, the size, every delay. What was found once is
// in seeds.txt and runs first. Exits with 1 if a run breaks; its seed is
// replayed with a trace, and the line that does so again is printed. With a
// fault planted it is the other way round: 0 if it was found.

#include "options.hpp"
#include "scope_cluster.hpp"

#ifdef PAWL_PLANT_FAULTS
#  include "pawl/core/planted.hpp"
#endif

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

using namespace pawl::sim;

namespace {

using clock_type = std::chrono::steady_clock;

struct settings {
  std::optional<std::uint64_t> seed;
  std::string seeds;
  double minutes = 0;
  std::string profile_name;
  std::string found;
  std::string plant;
  bool trace = false;
  bool list = false;
};

struct totals {
  std::uint64_t runs = 0;
  std::map<std::string, std::size_t> counts;
  clock_type::time_point begin = clock_type::now();

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(clock_type::now() - begin).count();
  }
};

/// What is wrong; empty if nothing is.
std::string run(cluster_options options, std::ostream* trace, totals& sum) {
  options.trace = trace;
  scope_cluster cluster{options};
  std::string wrong;
  try {
    cluster.run();
  } catch (const std::exception& x) {
    wrong = x.what();
  }
  ++sum.runs;
  for (const auto& [what, count] : cluster.counts())
    sum.counts[what] += count;
  return wrong;
}

/// An invariant of core that is broken ends the program: what to type is said
/// all the same.
char dying_words[200];
bool faults_are_planted = false;

extern "C" void say_dying_words(int signal) {
  static_cast<void>(!write(STDOUT_FILENO, dying_words,
                           std::char_traits<char>::length(dying_words)));
  if (faults_are_planted)
    _exit(0); // found
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string replay_line(const settings& from, std::uint64_t seed) {
  auto result = fmt::format("sim --seed {}", seed);
  if (!from.profile_name.empty())
    result += " --profile " + from.profile_name;
  if (!from.plant.empty())
    result += " --plant " + from.plant;
  return result;
}

/// False: it broke, and has been replayed.
bool run_one(const settings& from, const profile* forced, std::uint64_t seed,
             totals& sum) {
  auto options = options_of(seed, forced);
  auto last = fmt::format_to_n(dying_words, sizeof dying_words - 1,
                               "{}: an invariant of core is broken\n",
                               replay_line(from, seed));
  *last.out = '\0';
  auto wrong = run(options, from.trace ? &std::cout : nullptr, sum);
  if (wrong.empty())
    return true;
  if (!from.trace && from.plant.empty()) {
    totals again;
    run(options, &std::cout, again);
  }
  std::cout << std::flush;
  fmt::print("{}: {}\n", replay_line(from, seed), wrong);
  return false;
}

void show_progress(const totals& sum, std::uint64_t seed) {
  static const bool on_terminal = isatty(STDERR_FILENO) != 0;
  static auto last = clock_type::now();
  auto now = clock_type::now();
  if (!on_terminal || now - last < std::chrono::milliseconds{200})
    return;
  last = now;
  fmt::print(stderr, "\rseed {}, {} runs, {:.0f} s ", seed, sum.runs,
             sum.seconds());
}

void sum_up(const totals& sum) {
  auto locks = sum.counts.count("granted") != 0 ? sum.counts.at("granted") : 0;
  fmt::print("{} runs, {} locks granted, {:.1f} s: {:.0f} runs and {:.0f} "
             "locks a second\n",
             sum.runs, locks, sum.seconds(),
             static_cast<double>(sum.runs) / sum.seconds(),
             static_cast<double>(locks) / sum.seconds());
  for (const auto& [what, count] : sum.counts)
    fmt::print("  {:>12} {}\n", count, what);
}

/// What is not a range of seeds; empty if it is one.
std::string check_range(const std::string& text) {
  auto number = [](std::string_view x) {
    return !x.empty() && x.size() < 20
           && x.find_first_not_of("0123456789") == std::string_view::npos;
  };
  std::string_view all{text};
  auto dash = all.find('-');
  auto good = number(all.substr(0, dash))
              && (dash == std::string_view::npos
                  || number(all.substr(dash + 1)));
  return good ? "" : "'" + text + "' is no range of seeds: A, or A-B";
}

/// "A-B", or "A".
std::pair<std::uint64_t, std::uint64_t> parse_range(const std::string& text) {
  auto dash = text.find('-');
  auto first = std::stoull(text.substr(0, dash));
  return {first, dash == std::string::npos
                   ? first
                   : std::stoull(text.substr(dash + 1))};
}

/// The lines of seeds.txt: a seed, a profile or "-", and a story.
bool run_found(const settings& from, totals& sum) {
  std::ifstream file{from.found};
  if (!file) {
    fmt::print("cannot read {}\n", from.found);
    return false;
  }
  auto good = true;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::uint64_t seed = 0;
    auto one = from;
    if (line.starts_with('#') || !(words >> seed >> one.profile_name))
      continue;
    if (one.profile_name == "-")
      one.profile_name.clear();
    const auto* forced = find_profile(one.profile_name);
    if (forced == nullptr && !one.profile_name.empty()) {
      fmt::print("{}: there is no profile {}\n", from.found, one.profile_name);
      good = false;
      continue;
    }
    good &= run_one(one, forced, seed, sum);
  }
  return good;
}

bool run_all(const settings& from, totals& sum) {
  const auto* forced = find_profile(from.profile_name);
  if (from.seed)
    return run_one(from, forced, *from.seed, sum);
  auto good = from.found.empty() || run_found(from, sum);
  if (from.seeds.empty() && from.minutes == 0)
    return good;
  auto [first, last] = parse_range(from.seeds.empty() ? "1" : from.seeds);
  for (auto seed = first;; ++seed) {
    if (from.minutes > 0 ? sum.seconds() > 60 * from.minutes : seed > last)
      return good;
    show_progress(sum, seed);
    if (!run_one(from, forced, seed, sum)) {
      if (!from.plant.empty() || from.minutes == 0)
        return false;
      good = false; // goes on: a long run finds more than one
    }
  }
}

void add_options(CLI::App& app, settings& x) {
  app.add_option("--seed", x.seed, "one run");
  app.add_option("--seeds", x.seeds, "A-B: many runs; with --minutes, from A")
    ->check(CLI::Validator{check_range, ""});
  app.add_option("--minutes", x.minutes, "as many runs as fit");
  app.add_option("--profile", x.profile_name, "instead of that of the seed");
  app.add_option("--found", x.found, "a file of seeds that run first");
  app.add_flag("--trace", x.trace, "tell all that happens");
  app.add_flag("--list", x.list, "the profiles");
#ifdef PAWL_PLANT_FAULTS
  app.add_option("--plant", x.plant, "the fault that is put in");
#endif
}

bool plant([[maybe_unused]] const settings& x) {
#ifdef PAWL_PLANT_FAULTS
  if (!x.plant.empty() && !pawl::planted::choose(x.plant)) {
    fmt::print("there is no such fault\n");
    return false;
  }
#endif
  return true;
}

} // namespace

int main(int argc, char** argv) {
  settings x;
  CLI::App app{"Simulated clusters, from seeds"};
  add_options(app, x);
  CLI11_PARSE(app, argc, argv);
  if (x.list) {
    for (const auto& p : profiles())
      fmt::print("{:<18} {}\n", p.name, p.story);
    return 0;
  }
  if (!x.profile_name.empty() && find_profile(x.profile_name) == nullptr) {
    fmt::print("there is no profile {}\n", x.profile_name);
    return 2;
  }
  if (!plant(x))
    return 2;
  faults_are_planted = !x.plant.empty();
  std::signal(SIGABRT, say_dying_words);
  std::signal(SIGSEGV, say_dying_words);
  totals sum;
  auto good = run_all(x, sum);
  if (!x.seed)
    sum_up(sum);
  return good != faults_are_planted ? 0 : 1;
}
