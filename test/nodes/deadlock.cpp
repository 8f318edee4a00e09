// Deadlocks between three real processes: each holds a term on every node and
// asks for the next one's, again and again. One of each ring is told, with the
// ring; when it gives up what it holds, the others finish one after another.
//
// Every fourth time one of the ring is killed at the moment at which the last
// edge closes it. Then one of the others may have been told before, or nobody:
// but nobody stays where it is.
//
//   nodes_deadlock --member <program> [--rounds N] [--seed S]

#include "pawl/test/nodes/driver.hpp"

#include <CLI/CLI.hpp>

#include <csignal>
#include <random>

using namespace pawl::testing;

namespace {

class run : public three_nodes {
public:
  run(std::string program, unsigned seed)
    : three_nodes(std::move(program), seed), random_(seed) {
    // nop
  }

  bool ring() {
    if (!take_own() || !close_ring())
      return false;
    std::string victim;
    if (!one_is_told(victim))
      return false;
    give(victim);
    // Who waits for it is next, and so on round the ring.
    for (auto x = before(victim); x != victim; x = before(x)) {
      if (!hears_that_it_holds(x))
        return false;
      give(x);
    }
    return true;
  }

  bool ring_with_a_death() {
    if (!take_own() || !close_ring())
      return false;
    auto dies = names[random_() % names.size()];
    std::this_thread::sleep_for(
      std::chrono::microseconds{random_() % 3000});
    (*this)[dies].kill();
    // The one that waits for it, and the one that it waits for.
    auto waits = before(dies);
    auto last = before(waits);
    auto told = false;
    auto good = ends(waits, told);
    give(waits);
    good = good && ends(last, told);
    give(last);
    start(dies);
    return good && becomes_ready(dies) && all_see_all();
  }

private:
  static std::string next(const std::string& x) {
    return x == "c" ? "a" : std::string(1, static_cast<char>(x[0] + 1));
  }

  static std::string before(const std::string& x) {
    return next(next(x));
  }

  bool take_own() {
    return all_of([this](const auto& x) {
      return (*this)[x].ask("take " + x).starts_with("held ")
             || trouble(fmt::format("node {} does not get what is free", x));
    });
  }

  /// Without waiting for answers.
  bool close_ring() {
    for (const auto& x : names)
      (*this)[x].tell("take " + next(x));
    return true;
  }

  /// The first that hears how it ended: it is the one.
  bool one_is_told(std::string& victim) {
    auto end = std::chrono::steady_clock::now() + bound;
    while (std::chrono::steady_clock::now() < end)
      for (const auto& x : names)
        if (auto said = (*this)[x].heard(std::chrono::milliseconds{1})) {
          victim = x;
          return said->starts_with("failed deadlock")
                 || trouble(fmt::format("node {} of a ring hears '{}'", x,
                                        *said));
        }
    return trouble("a deadlock is not found");
  }

  /// It is granted, or told of a deadlock that was one before the death.
  bool ends(const std::string& x, bool& told) {
    auto said = (*this)[x].hear();
    if (said.starts_with("held "))
      return true;
    if (!said.starts_with("failed deadlock"))
      return trouble(fmt::format("node {} hears '{}'", x, said));
    return !std::exchange(told, true) || trouble("two are told of one ring");
  }

  bool hears_that_it_holds(const std::string& x) {
    auto said = (*this)[x].hear();
    return said.starts_with("held ")
           || trouble(fmt::format("node {} hears '{}', though another one was "
                                  "told of the deadlock",
                                  x, said));
  }

  void give(const std::string& x) {
    if (auto said = (*this)[x].ask("give"); said != "given")
      trouble(fmt::format("node {} gives, and says '{}'", x, said));
  }

  std::mt19937 random_;
};

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Closes rings of locks over three processes"};
  std::string program;
  int rounds = 40;
  unsigned seed = std::random_device{}();
  app.add_option("--member", program, "the program of a node")->required();
  app.add_option("--rounds", rounds);
  app.add_option("--seed", seed);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  say(fmt::format("{} --member {} --rounds {} --seed {}", argv[0], program,
                  rounds, seed));
  {
    run x{program, seed};
    auto good = x.start_all();
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; good && i < rounds; ++i)
      good = i % 4 == 3 ? x.ring_with_a_death() : x.ring();
    for (const auto& y : three_nodes::names)
      good = good && x[y].comes_to("residue", "residue 0 1 0 0");
    good = good && x.quit_all();
    auto took = std::chrono::steady_clock::now() - begin;
    say(fmt::format("{} rings in {} ms", rounds,
                    std::chrono::duration_cast<std::chrono::milliseconds>(took)
                      .count()));
  }
  say(faults == 0 ? "no fault" : fmt::format("{} faults", faults));
  return faults == 0 ? 0 : 1;
}
