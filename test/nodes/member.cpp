// One node in a process of its own, for tests that kill, freeze and restart it.
// It is told what to do by lines on stdin, and answers each with one on stdout:
//
//   work           its clients raise counters under exclusive locks   -> working
//   idle           they stop, and hold nothing                        -> idle
//   hold <term>    takes a lock on every node, and keeps it           -> held <token>
//   still          what still_held() says about that                  -> still yes|no
//   drop           releases it                                        -> dropped <word>
//   lock <term>    takes and releases one                             -> locked <token>
//   take <term>    takes a lock on every node beside others           -> held <token>
//   give           releases those that were taken                     -> given
//   told           how many deadlocks this node has told              -> told <n>
//   view           the nodes that every_node asks                     -> view a b c
//   count          operations so far                                  -> count <n>
//   residue        what is left in the scope                          -> residue <n> ...
//
// A lock that cannot be had within the bound is answered by `failed <why>`. The
// end of stdin ends it.

#include "pawl/pawl.hpp"
#include "pawl/test/nodes/history.hpp"

#include <CLI/CLI.hpp>

#include <caf/actor_system.hpp>
#include <fmt/format.h>

#include <iostream>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

using namespace pawl;
using namespace std::chrono_literals;

namespace {

constexpr auto bound = 15s;

class work_log {
public:
  explicit work_log(const std::string& path)
    : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                 0600)) {
    // nop
  }

  ~work_log() {
    ::close(fd_);
  }

  /// One write per line: what is killed afterwards has said it.
  void line(const std::string& x) {
    (void) !::write(fd_, x.data(), x.size());
  }

private:
  int fd_;
};

class workers {
public:
  workers(scope where, work_log& log, testing::guarded_counters& counters,
          unsigned seed)
    : where_(std::move(where)), log_(log), counters_(counters), seed_(seed) {
    // nop
  }

  ~workers() {
    idle();
  }

  void work(int threads) {
    enough_ = false;
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back([this, i] { run(seed_ * 31 + i); });
    threads_.emplace_back([this] { witness(); });
  }

  void idle() {
    enough_ = true;
    for (auto& x : threads_)
      x.join();
    threads_.clear();
  }

  std::uint64_t done() const {
    return done_;
  }

private:
  void run(unsigned seed) {
    std::mt19937 random{seed};
    auto s = where_.attach();
    while (!enough_) {
      auto i = static_cast<int>(random() % testing::guarded_terms);
      auto held
        = s.lock(i, exclusive).on(every_node).within(bound).wait();
      if (!held) {
        log_.line(fmt::format("failed {} {}\n", i, to_string(held.error())));
        continue;
      }
      auto since = testing::monotonic_ns();
      auto known = held->still_held();
      log_.line(fmt::format("begin {} {} {} {}\n", i, held->token(), since,
                            known ? 1 : 0));
      auto& counter = counters_.of[i];
      auto value = counter.load();
      if (random() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds{random() % 2000});
      auto at = testing::monotonic_ns();
      auto mine = held->still_held();
      if (mine) {
        counter.store(value + 1);
        ++counters_.by_node[where_.node()[0] - 'a'][i];
      }
      log_.line(fmt::format("end {} {} {} {}\n", i, held->token(), at,
                            mine ? 1 : 0));
      held->release();
      ++done_;
    }
  }

  /// Holds a lock of its own, and writes down when the node cannot know whether
  /// it holds anything.
  void witness() {
    auto s = where_.attach();
    std::optional<lock> mine;
    auto sure_at = testing::monotonic_ns();
    auto sure = true;
    while (!enough_) {
      if (!mine || mine->mode() == lock_mode::none) {
        auto held = s.lock("witness-" + where_.node(), exclusive)
                      .on(every_node)
                      .within(bound)
                      .wait();
        if (held)
          mine = std::move(*held);
        continue;
      }
      auto now = testing::monotonic_ns();
      auto yes = mine->still_held();
      if (yes && !sure)
        log_.line(fmt::format("unsure {} {}\n", sure_at, now));
      if (yes)
        sure_at = now;
      sure = yes;
      std::this_thread::sleep_for(1ms);
    }
  }

  scope where_;
  work_log& log_;
  testing::guarded_counters& counters_;
  unsigned seed_;
  std::vector<std::thread> threads_;
  std::atomic<bool> enough_{false};
  std::atomic<std::uint64_t> done_{0};
};

void answer(const std::string& x) {
  std::cout << x << std::endl;
}

std::optional<lock> take(const session& s, const std::string& what) {
  auto held = s.lock(what, exclusive).on(every_node).within(bound).wait();
  if (held)
    return std::move(*held);
  answer("failed " + to_string(held.error()));
  return std::nullopt;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app{"A node that does what it is told"};
  pawl::config cfg;
  std::string history;
  std::string counters;
  int node_timeout = 1000;
  int threads = 2;
  unsigned seed = 1;
  app.add_option("--name", cfg.name)
    ->required()
    ->check(CLI::IsMember({"a", "b", "c"}));
  app.add_option("--listen", cfg.listen)->required();
  app.add_option("--peers", cfg.peers)->required();
  app.add_option("--history", history)->required();
  app.add_option("--counters", counters)->required();
  app.add_option("--node-timeout", node_timeout, "in ms");
  app.add_option("--threads", threads);
  app.add_option("--seed", seed);
  CLI11_PARSE(app, argc, argv);
  cfg.node_timeout = std::chrono::milliseconds{node_timeout};
  if (auto why = cfg.read()) {
    answer("failed " + *why);
    return 1;
  }
  auto* resource = testing::guarded_counters::map(counters);
  if (resource == nullptr) {
    answer("failed the counters cannot be mapped");
    return 1;
  }
  caf::actor_system sys{cfg};
  work_log log{history};
  std::optional<pawl::node> here;
  try {
    here.emplace(sys, cfg);
  } catch (const node_error& why) {
    answer(std::string{"failed "} + why.what());
    return 1;
  }
  auto tags = here->open("tags");
  if (!tags.wait_ready(bound)) {
    answer("failed the scope does not become ready");
    return 1;
  }
  answer("ready");
  {
    workers crew{tags, log, *resource, seed};
    auto own = tags.attach();
    std::optional<lock> kept;
    std::vector<lock> taken;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words{line};
      std::string what;
      std::string arg;
      words >> what >> arg;
      if (what == "work") {
        crew.work(threads);
        answer("working");
      } else if (what == "idle") {
        crew.idle();
        answer("idle");
      } else if (what == "hold") {
        kept = take(own, arg);
        if (kept)
          answer(fmt::format("held {}", kept->token()));
      } else if (what == "still") {
        answer(kept && kept->still_held() ? "still yes" : "still no");
      } else if (what == "drop") {
        auto how = kept ? kept->release() : release_result::already_released;
        kept.reset();
        answer(fmt::format("dropped {}", to_string(how)));
      } else if (what == "lock") {
        auto s = tags.attach();
        if (auto held = take(s, arg))
          answer(fmt::format("locked {}", held->token()));
      } else if (what == "take") {
        if (auto held = take(own, arg)) {
          answer(fmt::format("held {}", held->token()));
          taken.push_back(std::move(*held));
        }
      } else if (what == "give") {
        taken.clear();
        answer("given");
      } else if (what == "told") {
        answer(fmt::format("told {}", tags.deadlocks().size()));
      } else if (what == "view") {
        std::string all = "view";
        for (const auto& x : tags.ready_nodes())
          all += " " + x;
        answer(all);
      } else if (what == "count") {
        answer(fmt::format("count {}", crew.done()));
      } else if (what == "residue") {
        auto x = tags.residue();
        answer(fmt::format("residue {} {} {} {}", x.rows, x.sessions,
                           x.requests, x.waits));
      } else {
        answer("failed nobody knows what '" + line + "' means");
      }
    }
  }
  here->stop();
  return 0;
}
