// Three real processes, whose clients raise counters under locks on every node,
// while one after another is killed, frozen for longer than the time-out, and
// started again under its name; with networks of their own, links are cut, too,
// one way or both. Then the histories are checked:
//
//   - of a term no two hold at once and know it, and their tokens grow strictly;
//   - whoever was frozen for too long knows that it holds nothing any more;
//   - every lock is free within the bound, every node answers, nothing is left;
//   - each counter is what was counted, by what clients say and by what each
//     node has counted for itself beside it.
//
//   nodes_failover --member <program> [--seconds N] [--seed S] [--networks]

#include "pawl/test/nodes/driver.hpp"
#include "pawl/test/nodes/history.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace pawl::testing;

namespace {

// -- the histories ------------------------------------------------------------

struct operation {
  std::string node;
  std::uint64_t token = 0;
  std::int64_t begin = 0;
  /// It knew at once that it held. If not, it has just slept, and may have been
  /// granted by itself alone: then it holds, if it does, from held_at on.
  bool known = false;
  /// The last moment at which it knew that it held; 0: it never knew, because
  /// it was killed or still_held() said no.
  std::int64_t held_at = 0;
  bool ended = false;

  [[nodiscard]] std::int64_t from() const {
    return known ? begin : held_at;
  }

  [[nodiscard]] std::int64_t until() const {
    return std::max(from(), held_at);
  }
};

class checker {
public:
  /// A node had no link to any other: both sides were right to hold what they
  /// held, and tokens alone tell who was later.
  void was_alone(const std::string& node, std::int64_t from,
                 std::int64_t until) {
    alone_[node].emplace_back(from, until);
  }

  void read(const std::string& node, const std::string& path) {
    std::ifstream file{path};
    std::map<std::pair<int, std::uint64_t>, operation> open;
    for (std::string line; std::getline(file, line);) {
      std::istringstream words{line};
      std::string what;
      int term = 0;
      std::uint64_t token = 0;
      std::int64_t at = 0;
      int held = 0;
      words >> what;
      if (what == "unsure") {
        std::int64_t from = 0;
        std::int64_t until = 0;
        words >> from >> until;
        unsure_[node].emplace_back(from, until + hand_over_takes);
        continue;
      }
      words >> term;
      if (what == "failed") {
        fault(fmt::format("node {}: {}", node, line));
        continue;
      }
      words >> token >> at;
      auto& x = open[{term, token}];
      if (what == "begin") {
        x.node = node;
        x.token = token;
        x.begin = at;
        words >> held;
        x.known = held != 0;
      } else if (what == "end" && words >> held) {
        x.ended = true;
        x.held_at = held != 0 ? at : 0;
        lost_ += held == 0 ? 1 : 0;
      }
    }
    for (auto& [key, x] : open)
      if (x.begin != 0)
        of_[key.first].push_back(x);
  }

  void check() {
    std::uint64_t all = 0;
    for (auto& [term, ops] : of_) {
      std::set<std::uint64_t> tokens;
      auto done = done_on(ops);
      for (const auto& x : ops) {
        if (!tokens.insert(x.token).second)
          fault(fmt::format("term {}: token {} was issued twice", term,
                            x.token));
      }
      // Who wakes is alone at first, and is granted what others hold, but
      // knows that it cannot know.
      std::erase_if(ops, [this](const operation& x) {
        return (x.held_at == 0 && (x.ended || !x.known))
               || within(alone_, x.node, x.begin, x.until());
      });
      std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
        return a.from() < b.from();
      });
      const operation* who = nullptr;
      const operation* highest = nullptr;
      for (const auto& x : ops) {
        if (who != nullptr && x.from() < who->until())
          fault(fmt::format("term {}: node {} held it with token {} at {}, and "
                            "node {} still held it with token {} at {}",
                            term, x.node, x.token, x.from(), who->node,
                            who->token, who->until()));
        if (who == nullptr || x.until() > who->until())
          who = &x;
        if (!x.known || within(unsure_, x.node, x.begin, x.begin))
          continue; // granted on nodes that the others had left
        if (highest != nullptr && x.token < highest->token)
          fault(fmt::format("term {}: node {} was granted token {} at {}, after "
                            "node {} had been granted token {}",
                            term, x.node, x.token, x.begin, highest->node,
                            highest->token));
        else
          highest = &x;
      }
      all += done;
    }
    say(fmt::format("{} operations on {} terms, {} of them lost their lock on "
                    "the way",
                    all, of_.size(), lost_));
    if (all == 0)
      fault("nothing was done at all");
  }

  /// Who is killed may have counted and not said so. Holds only as long as
  /// nobody was frozen: between its look and its write it may undo others'.
  void check(const guarded_counters& counters, int kills) {
    std::uint64_t all = 0;
    for (const auto& [term, ops] : of_) {
      auto counted = counters.of[term].load();
      auto done = done_on(ops);
      if (counted < done || counted > done + static_cast<std::uint64_t>(kills))
        fault(fmt::format("term {}: {} were counted, {} have done so", term,
                          counted, done));
      auto plain = counters.by_all(term);
      if (counted < plain
          || counted > plain + static_cast<std::uint64_t>(kills))
        fault(fmt::format("term {}: {} were counted, {} by each node for itself",
                          term, counted, plain));
      all += done;
    }
    say(fmt::format("{} operations have counted right through {} kills", all,
                    kills));
    if (all == 0)
      fault("nothing was counted");
  }

private:
  static std::uint64_t done_on(const std::vector<operation>& ops) {
    return static_cast<std::uint64_t>(
      std::count_if(ops.begin(), ops.end(),
                    [](const auto& x) { return x.held_at != 0; }));
  }

  /// How long a grant may take to its client: one that was made while its node
  /// was alone may be heard of when it is not any more.
  static constexpr std::int64_t hand_over_takes = 500'000'000;

  /// By node, from when until when.
  using spans = std::map<std::string,
                         std::vector<std::pair<std::int64_t, std::int64_t>>>;

  [[nodiscard]] static bool within(const spans& some, const std::string& node,
                                   std::int64_t from, std::int64_t until) {
    auto i = some.find(node);
    return i != some.end()
           && std::any_of(i->second.begin(), i->second.end(),
                          [&](const auto& y) {
                            return until >= y.first && from <= y.second;
                          });
  }

  spans unsure_;
  spans alone_;
  std::map<int, std::vector<operation>> of_;
  std::uint64_t lost_ = 0;
};

// -- the run ------------------------------------------------------------------

class run : public three_nodes {
public:
  run(std::string program, unsigned seed, private_network* network)
    : three_nodes(std::move(program), seed, network), random_(seed) {
    // nop
  }

  bool begin() {
    return start_all() && work();
  }

  bool work() {
    return all_of([this](const auto& x) {
      return (*this)[x].ask("work") == "working";
    });
  }

  /// One of them dies and comes back. The others go on.
  bool kill_one() {
    auto dies = any();
    auto& other = (*this)[another(dies)];
    ++kills_;
    say(fmt::format("node {} is killed", dies));
    (*this)[dies].kill();
    if (!goes_on(other))
      return false;
    start(dies);
    if (!becomes_ready(dies) || (*this)[dies].ask("work") != "working")
      return false;
    return all_see_all();
  }

  /// One of them sleeps through the time-out, with a lock in its hands.
  bool freeze_one() {
    auto sleeps = any();
    auto& x = (*this)[sleeps];
    auto& other = (*this)[another(sleeps)];
    ++freezes_;
    auto term = fmt::format("kept-{}", freezes_);
    if (!x.ask("hold " + term).starts_with("held "))
      return trouble("cannot hold a lock");
    if (x.ask("still") != "still yes")
      return trouble("does not hold what it has just got");
    say(fmt::format("node {} is frozen", sleeps));
    x.signal(SIGSTOP);
    // Somebody else gets it, which takes the time-out.
    if (!other.ask("hold " + term).starts_with("held "))
      return trouble("is not given up when it is frozen");
    // The first thing it does is to answer this, and a hundred more.
    constexpr int questions = 100;
    for (int i = 0; i < questions; ++i)
      x.tell("still");
    x.signal(SIGCONT);
    for (int i = 0; i < questions; ++i)
      if (!knows_better(x, i))
        return false;
    // Nor is there a moment later on, until it is told that it has lost.
    for (int i = 0; x.ask("view") != "view a b c" || i < questions; ++i) {
      x.tell("still");
      if (!knows_better(x, questions + i))
        return false;
      if (i == 100'000)
        return trouble("a node does not come back from its sleep");
    }
    if (other.ask("still") != "still yes")
      return trouble("a lock was lost to a node that woke");
    if (auto how = other.ask("drop"); how != "dropped released")
      return trouble("a lock was lost to a node that woke: " + how);
    if (auto how = x.ask("drop"); !how.starts_with("dropped "))
      return trouble("cannot drop a lock: " + how);
    return all_see_all() && goes_on(x) && goes_on(other);
  }

  /// Two of them do not hear each other, or one does not hear the other. Both
  /// hear the third, which lets nobody in where somebody is.
  bool cut_one_link() {
    auto a = any();
    auto b = another(a);
    auto c = third(a, b);
    auto one_way = random_() % 2 == 0;
    ++cuts_;
    say(fmt::format("what node {} sends to node {} is lost{}", a, b,
                    one_way ? "" : ", and the other way round"));
    network_->cut_way(a, b);
    if (!one_way)
      network_->cut_way(b, a);
    auto good = (*this)[a].comes_to("view", view({a, c}))
                && (*this)[b].comes_to("view", view({b, c})) && all_go_on();
    network_->mend_way(a, b);
    if (!one_way)
      network_->mend_way(b, a);
    return good && all_see_all() && all_go_on();
  }

  /// One of them hears nobody, or is heard by nobody, or both.
  bool isolate_one() {
    auto x = any();
    auto ways = random_() % 3;
    auto out = ways != 1;
    auto in = ways != 2;
    ++isolations_;
    say(fmt::format("node {} {}{}{}", x, in ? "hears nobody" : "",
                    in && out ? " and " : "", out ? "is heard by nobody" : ""));
    auto from = monotonic_ns();
    for (const auto& y : names)
      if (y != x) {
        if (out)
          network_->cut_way(x, y);
        if (in)
          network_->cut_way(y, x);
      }
    auto good = (*this)[x].comes_to("view", view({x}));
    std::vector<std::string> others;
    std::copy_if(names.begin(), names.end(), std::back_inserter(others),
                 [&](const auto& y) { return y != x; });
    for (const auto& y : others)
      good = good && (*this)[y].comes_to("view", view(others));
    good = good && all_go_on();
    for (const auto& y : others) {
      if (out)
        network_->mend_way(x, y);
      if (in)
        network_->mend_way(y, x);
    }
    good = good && all_see_all() && all_go_on();
    alone_.push_back({x, from, monotonic_ns()});
    return good;
  }

  bool end() {
    if (!idle())
      return false;
    for (const auto& x : names)
      for (int i = 0; i < guarded_terms; ++i)
        if (!(*this)[x]
               .ask(fmt::format("lock {}", i))
               .starts_with("locked "))
          return trouble("a lock is not free in the end");
    for (const auto& x : names)
      // Its own session for the locks that it keeps.
      if (!(*this)[x].comes_to("residue", "residue 0 1 0 0"))
        return false;
    return quit_all();
  }

  /// Compares the counters with what the clients say they did, while nobody
  /// works and before anybody has been frozen.
  bool counted_right() {
    if (!idle())
      return false;
    checker x;
    read(x);
    auto* counted = guarded_counters::map(counters());
    x.check(*counted, kills_);
    return work();
  }

  void check() {
    checker x;
    read(x);
    for (const auto& y : alone_)
      x.was_alone(y.node, y.from, y.until);
    x.check();
    say(fmt::format("{} kills, {} freezes, {} cut links, {} isolations", kills_,
                    freezes_, cuts_, isolations_));
  }

  /// Each kind once, whatever the seed and the machine.
  bool each_fault() {
    return kill_one() && counted_right()
           && (network_ == nullptr || (cut_one_link() && counted_right()))
           && freeze_one() && (network_ == nullptr || isolate_one());
  }

  bool some_fault() {
    switch (random_() % (network_ == nullptr ? 2 : 4)) {
      case 0:
        return kill_one();
      case 1:
        return freeze_one();
      case 2:
        return cut_one_link();
      default:
        return isolate_one();
    }
  }

private:
  bool idle() {
    for (const auto& x : names)
      if ((*this)[x].ask("idle") != "idle")
        return trouble("does not become idle");
    return true;
  }

  void read(checker& x) const {
    for (const auto& name : names)
      x.read(name, history(name));
  }

  /// Whether a node that woke answers that it holds nothing any more.
  bool knows_better(member& x, int time) {
    auto says = x.hear();
    if (says == "still no")
      return true;
    if (says.empty())
      return false; // told already
    return trouble(fmt::format("a node wakes and answers '{}' to its question "
                               "number {}, while another one holds the lock",
                               says, time));
  }

  /// Whether operations are done again, within the bound.
  bool goes_on(member& x) {
    auto before = x.ask("count");
    auto end = std::chrono::steady_clock::now() + bound;
    while (std::chrono::steady_clock::now() < end) {
      auto now = x.ask("count");
      if (now.empty())
        return false;
      if (now != before)
        return true;
      std::this_thread::sleep_for(5ms);
    }
    return trouble("nobody gets a lock any more");
  }

  bool all_go_on() {
    return all_of([this](const auto& x) {
      return goes_on((*this)[x]);
    });
  }

  static std::string view(std::vector<std::string> nodes) {
    std::sort(nodes.begin(), nodes.end());
    std::string result = "view";
    for (const auto& x : nodes)
      result += " " + x;
    return result;
  }

  std::string third(const std::string& a, const std::string& b) const {
    return *std::find_if(names.begin(), names.end(), [&](const auto& x) {
      return x != a && x != b;
    });
  }

  std::string any() {
    return names[random_() % names.size()];
  }

  std::string another(const std::string& than) {
    auto result = any();
    while (result == than)
      result = any();
    return result;
  }

  std::mt19937 random_;
  int kills_ = 0;
  int freezes_ = 0;
  int cuts_ = 0;
  int isolations_ = 0;

  struct alone {
    std::string node;
    std::int64_t from;
    std::int64_t until;
  };
  std::vector<alone> alone_;
};

constexpr int skipped = 77;

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"Kills and freezes nodes, and checks what they did"};
  std::string program;
  int seconds = 25;
  unsigned seed = std::random_device{}();
  bool networks = false;
  app.add_option("--member", program, "the program of a node")->required();
  app.add_option("--seconds", seconds);
  app.add_option("--seed", seed);
  app.add_flag("--networks", networks,
               "each node has a network of its own, whose links are cut");
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  say(fmt::format("{} --member {} --seconds {} --seed {}{}", argv[0], program,
                  seconds, seed, networks ? " --networks" : ""));
  std::optional<private_network> network;
  try {
    if (networks)
      network.emplace(three_nodes::names);
  } catch (const std::runtime_error& why) {
    say(fmt::format("skipped: network namespaces take root and iproute2, and a "
                    "container may not permit them: {}",
                    why.what()));
    return skipped;
  }
  {
    run x{program, seed, network ? &*network : nullptr};
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds{seconds};
    auto good = x.begin();
    good = good && x.each_fault();
    while (good && std::chrono::steady_clock::now() < end)
      good = x.some_fault();
    good = good && x.end();
    x.check();
  }
  say(faults == 0 ? "no fault" : fmt::format("{} faults", faults));
  return faults == 0 ? 0 : 1;
}
