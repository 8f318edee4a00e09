// How long from the request that closes a cycle to the verdict? And what does a
// wait cost that closes none?
//
// Ring: n sessions, each of which holds a term; all but one wait for the next
// one's, and then the last one asks. Timed from that request to the end of the
// victim's, in its actor. On one node, and with the terms and sessions alternating
// between two nodes, which are two actor systems of this process, linked over
// loopback. The victim gives up, the others get on, and so on.
//
// Wait: a session holds the term, another asks, the first releases: from the
// request to the grant, when the second holds nothing else, and when it does, so
// that a search for a cycle is paid. Both take turns.
//
// The check: exactly one victim a ring, all others are granted, and no verdict
// where there is no ring.

#include "bench/measure.hpp"
#include "test/support/free_port.hpp"

#include <pawl/actors/scope_state.hpp>
#include <pawl/pawl.hpp>

#include <deque>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

namespace bench {
namespace {

using namespace std::chrono_literals;
using pawl::exclusive;

// -- actors that do what they are told ----------------------------------------

class agent;

struct errand final : pawl::compat::deliverable {
  std::function<void(agent&)> what;
};

class agent final : public caf::event_based_actor {
public:
  agent(caf::actor_config& cfg, pawl::scope where)
    : caf::event_based_actor(cfg), where_(std::move(where)) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {[this](const pawl::compat::local_ptr& x) {
      static_cast<errand&>(*x.ptr).what(*this);
    }};
  }

  struct member {
    std::optional<pawl::session> own;
    pawl::lock first;
    pawl::lock second;
  };

  pawl::scope where_;
  std::deque<member> members;
};

void tell(const caf::actor& who, std::function<void(agent&)> what) {
  auto x = std::make_shared<errand>();
  x->what = std::move(what);
  pawl::compat::anon_send(who, pawl::compat::local_ptr{std::move(x)});
}

template <class Condition>
bool wait_until(Condition condition) {
  auto end = steady::now() + 30s;
  while (!condition()) {
    if (steady::now() > end)
      return false;
    std::this_thread::sleep_for(50us);
  }
  return true;
}

// -- rings --------------------------------------------------------------------

/// One session's second request, seen from outside.
struct outcome_of_one {
  std::atomic<pawl::outcome> how{pawl::outcome::pending};
  std::atomic<std::int64_t> at{0};
};

class rings {
public:
  rings(std::vector<pawl::scope> nodes, std::size_t size)
    : nodes_(std::move(nodes)), ends_(size) {
    for (auto& x : nodes_)
      agents_.push_back(x.state()->system().spawn<agent>(x));
  }

  ~rings() {
    for (const auto& x : agents_)
      pawl::compat::anon_send_exit(x, caf::exit_reason::user_shutdown);
  }

  /// One ring; false if it did not end as it should.
  bool round(histogram& times) {
    const auto size = ends_.size();
    ++generation_;
    std::atomic<std::size_t> held{0};
    for (auto& x : ends_) {
      x.how = pawl::outcome::pending;
      x.at = 0;
    }
    for (std::size_t i = 0; i < size; ++i)
      tell(agents_[place(i)], [&, i](agent& self) {
        auto& m = self.members.emplace_back();
        m.own.emplace(self.where_.attach(&self));
        m.own->lock(term(i), exclusive)
          .on(nodes_[place(i)].node())
          .then([&](pawl::lock x) {
            m.first = std::move(x);
            ++held;
          });
      });
    if (!wait_until([&] { return held == size; }))
      return false;
    for (std::size_t i = 0; i + 1 < size; ++i)
      ask(i);
    if (!wait_until([&] {
          for (std::size_t i = 0; i + 1 < size; ++i)
            if (nodes_[place(i + 1)].waiters(term(i + 1)).empty())
              return false;
          return true;
        }))
      return false;
    asked_at_ = 0;
    ask(size - 1);
    std::size_t victims = 0;
    auto all_over = wait_until([&] {
      std::size_t over = 0;
      for (auto& x : ends_)
        over += x.how != pawl::outcome::pending ? 1 : 0;
      return over == size;
    });
    for (auto& x : ends_) {
      if (x.how != pawl::outcome::deadlock)
        continue;
      ++victims;
      times.record(x.at - asked_at_);
    }
    std::atomic<std::size_t> empty{0};
    for (const auto& x : agents_)
      tell(x, [&](agent& self) {
        self.members.clear();
        ++empty;
      });
    return wait_until([&] { return empty == agents_.size(); }) && all_over
           && victims == 1;
  }

private:
  [[nodiscard]] std::size_t place(std::size_t i) const {
    return i % ends_.size() % agents_.size();
  }

  [[nodiscard]] std::string term(std::size_t i) const {
    return fmt::format("ring/{}/{}", generation_, i % ends_.size());
  }

  /// Session i asks for what the next one holds; told the verdict or granted, it
  /// gives up all that it has.
  void ask(std::size_t i) {
    tell(agents_[place(i)], [this, i](agent& self) {
      auto& m = self.members[i / agents_.size()];
      auto* end = &ends_[i];
      if (i + 1 == ends_.size())
        asked_at_ = now_ns();
      m.own->lock(term(i + 1), exclusive)
        .on(nodes_[place(i + 1)].node())
        .then(
          [&m, end](pawl::lock x) {
            x.release();
            m.first.release();
            end->how = pawl::outcome::granted;
          },
          [&m, end](const pawl::failure& why) {
            end->at = now_ns();
            m.first.release();
            end->how = why.why;
          });
    });
  }

  std::vector<pawl::scope> nodes_;
  std::vector<caf::actor> agents_;
  std::vector<outcome_of_one> ends_;
  std::atomic<std::int64_t> asked_at_{0};
  std::uint64_t generation_ = 0;
};

bool run_rings(report& out, const std::vector<pawl::scope>& nodes,
               std::size_t size, std::size_t times) {
  rings all{nodes, size};
  histogram durations;
  auto good = true;
  for (std::size_t i = 0; i < times && good; ++i)
    good = all.round(durations);
  auto figures = durations.figures();
  out.row("ring", {{"size", size}, {"nodes", nodes.size()}, {"times", times}},
          std::move(figures), good && durations.count() == times);
  return good;
}

// -- waits --------------------------------------------------------------------

void run_waits(report& out, const pawl::scope& where, std::size_t times) {
  struct subject {
    std::string name;
    bool holds;
    histogram times;
  };
  subject both[]{{"wait, holding nothing", false, {}},
                 {"wait, holding a lock", true, {}}};
  auto who = where.state()->system().spawn<agent>(where);
  auto before = where.statistics();
  auto good = true;
  for (std::size_t i = 0; i < times && good; ++i)
    for (auto& x : both) {
      std::atomic<bool> granted{false};
      // A new one each time: of the one before a manager may not have let go.
      auto what = fmt::format("t{}{}", i, x.holds ? " beside another" : "");
      tell(who, [&](agent& self) {
        self.members.clear();
        auto& owner = self.members.emplace_back();
        auto& waiter = self.members.emplace_back();
        owner.own.emplace(self.where_.attach(&self));
        waiter.own.emplace(self.where_.attach(&self));
        if (x.holds)
          waiter.own->lock("mine", exclusive).then([&](pawl::lock held) {
            waiter.first = std::move(held);
          });
        owner.own->lock(what, exclusive).then([&](pawl::lock held) {
          owner.first = std::move(held);
        });
        auto asked = now_ns();
        waiter.own->lock(what, exclusive).then([&, asked](pawl::lock held) {
          x.times.record(now_ns() - asked);
          waiter.second = std::move(held);
          granted = true;
        });
        owner.first.release();
      });
      good = good && wait_until([&] { return granted.load(); });
    }
  auto after = where.statistics();
  good = good
         && after.ended(pawl::outcome::deadlock)
              == before.ended(pawl::outcome::deadlock);
  for (auto& x : both)
    out.row(x.name, {{"times", times}}, x.times.figures(), good);
  std::atomic<bool> empty{false};
  tell(who, [&](agent& self) {
    self.members.clear();
    empty = true;
  });
  if (!wait_until([&] { return empty.load(); }))
    throw std::runtime_error("an actor does not answer");
  pawl::compat::anon_send_exit(who, caf::exit_reason::user_shutdown);
}

/// A node in this process.
class one_node {
public:
  one_node(const std::string& name, const std::string& listen,
           const std::string& peers) {
    cfg_.name = name;
    cfg_.listen = listen;
    cfg_.peers = peers;
    if (auto why = cfg_.read())
      throw std::runtime_error(*why);
    system_.emplace(cfg_);
    node_.emplace(*system_, cfg_);
    scope_.emplace(node_->open("rings"));
  }

  ~one_node() {
    scope_.reset();
    node_->stop();
  }

  pawl::scope scope() const {
    return *scope_;
  }

private:
  pawl::config cfg_;
  std::optional<caf::actor_system> system_;
  std::optional<pawl::node> node_;
  std::optional<pawl::scope> scope_;
};

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"From the request that closes a cycle to the verdict"};
  std::vector<std::size_t> sizes{2, 8, 64};
  std::size_t times = 300;
  auto tiny = false;
  bench::report out{"deadlock"};
  app.add_option("--sizes", sizes, "sessions of a ring")->delimiter(',');
  app.add_option("--times", times, "rings of each kind");
  app.add_flag("--tiny", tiny, "only that it works");
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  if (tiny) {
    sizes = {2, 8};
    times = 5;
  }
  try {
    auto at = [] {
      return fmt::format("127.0.0.1:{}", pawl::testing::free_port());
    };
    auto at_a = at();
    auto at_b = at();
    auto peers = fmt::format("a={},b={}", at_a, at_b);
    bench::one_node a{"a", at_a, peers};
    bench::one_node b{"b", at_b, peers};
    if (!bench::wait_until([&] {
          return a.scope().ready_nodes().size() == 2
                 && b.scope().ready_nodes().size() == 2;
        }))
      throw std::runtime_error("the two nodes have not found each other");
    for (auto size : sizes) {
      bench::run_rings(out, {a.scope()}, size, times);
      bench::run_rings(out, {a.scope(), b.scope()}, size, times);
    }
    bench::run_waits(out, a.scope(), 10 * times);
  } catch (const std::exception& x) {
    fmt::print(stderr, "bench_deadlock: {}\n", x.what());
    return 1;
  }
  return out.status();
}
