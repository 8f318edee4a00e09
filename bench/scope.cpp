// What does a scope with many live terms cost, in time and in memory?
//
// For 10^3 to 10^6 live terms (10^7 by --live), each held by one session:
//
//   bytes_per_lock   resident memory that the held locks took, handles and all,
//                    by terms of 24 characters
//   take_ns          to lock each of them, once: the table grows meanwhile
//   pair_ns          lock and release of another term, at random out of as many
//   give_ns          to release them all, one by one
//   left_bytes       resident memory above that before, after all was released
//                    and the scope had time to tidy up (--settle)
//
// Then, on an empty scope: opening a scope until it grants; attaching an
// actor's first session; and the death of an actor that holds 100,000 locks:
// how long until the last of them is free, and how long the dying actor's first
// and last term kept others waiting who had asked before.
//
// The check: all were granted and released, the rows are what is held, nothing
// is left.

#include "bench/measure.hpp"
#include "test/support/memory.hpp"

#include <pawl/actors/scope.hpp>
#include <pawl/actors/type_ids.hpp>

#include <future>
#include <optional>
#include <random>
#include <thread>

// clang-format off
CAF_BEGIN_TYPE_ID_BLOCK(bench_scope, caf::first_custom_type_id)

  CAF_ADD_ATOM(bench_scope, bench, take_atom, "take")
  CAF_ADD_ATOM(bench_scope, bench, die_atom, "die")

CAF_END_TYPE_ID_BLOCK(bench_scope)
// clang-format on

namespace bench {
namespace {

using namespace std::chrono_literals;
namespace compat = pawl::compat;
using pawl::testing::memory;
using pawl::testing::trim_memory;

struct config : caf::actor_system_config {
  config() {
    compat::add_types<caf::id_block::pawl_actors, caf::id_block::bench_scope>(
      *this);
  }
};

/// 24 characters, written without a look at the heap.
class term_text {
public:
  std::string_view operator()(char kind, std::size_t i) {
    fmt::format_to(text_, "{}/2026/tags/{:011}", kind, i);
    return {text_, size};
  }

private:
  static constexpr std::size_t size = 24;
  char text_[size + 1] = {};
};

double per(std::int64_t ns, std::size_t n) {
  return static_cast<double>(ns) / static_cast<double>(n);
}

void live_terms(caf::actor_system& system, std::size_t live, std::size_t pairs,
                double settle, report& out) {
  auto tags = pawl::open_local_scope(system, "live");
  auto good = tags.wait_ready(10s);
  term_text text;
  json figures;
  trim_memory();
  auto base = memory();
  {
    auto session = tags.attach();
    std::vector<pawl::lock> held;
    held.reserve(live);
    auto since = now_ns();
    for (std::size_t i = 0; i < live; ++i) {
      auto x = session.lock(text('a', i), pawl::exclusive).wait();
      good = good && x.has_value();
      if (x)
        held.push_back(std::move(*x));
    }
    figures["take_ns"] = per(now_ns() - since, live);
    good = good && tags.residue().rows == live;
    trim_memory();
    figures["bytes_per_lock"]
      = (static_cast<double>(memory()) - static_cast<double>(base))
        / static_cast<double>(live);
    std::minstd_rand random{4711};
    since = now_ns();
    for (std::size_t i = 0; i < pairs; ++i) {
      auto x = session.lock(text('b', random() % live), pawl::exclusive).wait();
      good = good && x && x->release() == pawl::release_result::released;
    }
    figures["pair_ns"] = per(now_ns() - since, pairs);
    since = now_ns();
    for (auto& x : held)
      good = x.release() == pawl::release_result::released && good;
    figures["give_ns"] = per(now_ns() - since, live);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(settle));
  trim_memory();
  figures["left_bytes"]
    = static_cast<double>(memory()) - static_cast<double>(base);
  good = good && tags.residue() == pawl::residue{};
  tags.close();
  out.row("live terms", {{"live", live}}, std::move(figures), good);
}

// -- opening, attaching, dying ------------------------------------------------

void opening(caf::actor_system& system, std::size_t times, report& out) {
  histogram opened;
  histogram closed;
  auto good = true;
  for (std::size_t i = 0; i < times; ++i) {
    auto since = now_ns();
    auto x = pawl::open_local_scope(system, "opened");
    good = x.wait_ready(10s) && good;
    opened.record(now_ns() - since);
    since = now_ns();
    x.close();
    closed.record(now_ns() - since);
  }
  out.row("opening", {{"times", times}},
          {{"open", opened.figures()}, {"close", closed.figures()}}, good);
}

/// Takes its first session, and then locks and keeps all that it is told to.
class keeper : public caf::event_based_actor {
public:
  keeper(caf::actor_config& cfg, pawl::scope tags, std::size_t locks,
         std::promise<std::int64_t>& done)
    : event_based_actor(cfg), tags_(std::move(tags)), locks_(locks),
      done_(done) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {
      [this](take_atom) {
        auto since = now_ns();
        session_.emplace(tags_.attach(this));
        auto attached = now_ns() - since;
        term_text text;
        held_.reserve(locks_);
        for (std::size_t i = 0; i < locks_; ++i)
          session_->lock(text('d', i), pawl::exclusive)
            .then([this](pawl::lock x) { held_.push_back(std::move(x)); });
        done_.set_value(held_.size() == locks_ ? attached : -1);
      },
      [this](die_atom) {
        // Nothing is given back: whoever cleans up finds it all. The handles go
        // with the actor's object, which is later.
        quit(caf::exit_reason::kill);
      },
    };
  }

private:
  pawl::scope tags_;
  const std::size_t locks_;
  std::promise<std::int64_t>& done_;
  std::optional<pawl::session> session_;
  std::vector<pawl::lock> held_;
};

void attaching(caf::actor_system& system, std::size_t times, report& out) {
  auto tags = pawl::open_local_scope(system, "attached");
  auto good = tags.wait_ready(10s);
  histogram attached;
  for (std::size_t i = 0; i < times; ++i) {
    std::promise<std::int64_t> done;
    auto told = done.get_future();
    auto x = system.spawn<keeper>(tags, std::size_t{0}, std::ref(done));
    compat::anon_send(x, take_atom_v);
    auto ns = told.get();
    good = good && ns >= 0;
    attached.record(ns);
    compat::anon_send(x, die_atom_v);
  }
  tags.close();
  out.row("attaching", {{"times", times}}, attached.figures(), good);
}

void dying(caf::actor_system& system, std::size_t locks, report& out) {
  auto tags = pawl::open_local_scope(system, "dying");
  auto good = tags.wait_ready(10s);
  std::promise<std::int64_t> done;
  auto told = done.get_future();
  auto x = system.spawn<keeper>(tags, locks, std::ref(done));
  compat::anon_send(x, take_atom_v);
  good = told.get() >= 0 && tags.residue().rows == locks && good;
  // Two wait already: for its first term and for its last.
  std::int64_t since = 0;
  auto wait_for = [&](std::size_t i) {
    auto session = tags.attach();
    term_text text;
    auto held = session.lock(text('d', i), pawl::exclusive).within(60s).wait();
    return held ? now_ns() : -1;
  };
  auto first = std::async(std::launch::async, wait_for, std::size_t{0});
  auto last = std::async(std::launch::async, wait_for, locks - 1);
  while (tags.residue().waits != 2)
    std::this_thread::sleep_for(1ms);
  since = now_ns();
  compat::anon_send(x, die_atom_v);
  x = nullptr;
  auto first_at = first.get();
  auto last_at = last.get();
  while (tags.residue().rows != 0 && seconds_since(since) < 60)
    std::this_thread::sleep_for(1ms);
  auto all = now_ns() - since;
  good = good && first_at > 0 && last_at > 0 && tags.residue().rows == 0;
  tags.close();
  out.row("dying", {{"locks", locks}},
          {{"first_waiter_ms", static_cast<double>(first_at - since) * 1e-6},
           {"last_waiter_ms", static_cast<double>(last_at - since) * 1e-6},
           {"all_free_ms", static_cast<double>(all) * 1e-6}},
          good);
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"A scope with many live terms: time, memory, life and death"};
  std::vector<std::size_t> live{1'000, 10'000, 100'000, 1'000'000};
  std::size_t pairs = 1'000'000;
  std::size_t times = 1'000;
  std::size_t locks = 100'000;
  double settle = 3;
  auto tiny = false;
  bench::report out{"scope"};
  app.add_option("--live", live, "how many terms are held")->delimiter(',');
  app.add_option("--pairs", pairs, "lock and release, beside those held");
  app.add_option("--times", times, "to open a scope, to attach an actor");
  app.add_option("--locks", locks, "of the actor that dies");
  app.add_option("--settle", settle, "seconds after the last release");
  app.add_flag("--tiny", tiny, "only that it works");
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  if (tiny) {
    live = {1'000};
    pairs = 1'000;
    times = 5;
    locks = 1'000;
    settle = 0;
  }
  pawl::compat::init_meta<caf::id_block::pawl_actors,
                          caf::id_block::bench_scope>();
  bench::config cfg;
  caf::actor_system system{cfg};
  for (auto x : live)
    bench::live_terms(system, x, pairs, settle, out);
  bench::opening(system, times, out);
  bench::attaching(system, times, out);
  bench::dying(system, locks, out);
  return out.status();
}
