// Lock as leadership, over nodes: exactly one leader at any instant, the next in
// line takes over, and a service is stopped before its lock is given up.

#include "pawl/test/net/cluster_fixture.hpp"

namespace pawl::testing {
namespace {

using clock = std::chrono::steady_clock;

/// When services led, on which node, under which token.
class history {
public:
  struct interval {
    std::string service;
    std::string node;
    int life; // of the node
    fencing_token token;
    clock::time_point begin;
    std::optional<clock::time_point> end;
  };

  void begins(std::string service, std::string node, int life,
              fencing_token token) {
    std::lock_guard guard{lock_};
    all_.push_back({std::move(service), std::move(node), life, token,
                    clock::now(), std::nullopt});
  }

  void ends(fencing_token token, const std::string& service) {
    std::lock_guard guard{lock_};
    for (auto& x : all_)
      if (x.token == token && x.service == service && !x.end)
        x.end = clock::now();
  }

  /// A process that is killed runs nothing from here on.
  void crashes(const std::string& node) {
    std::lock_guard guard{lock_};
    for (auto& x : all_)
      if (x.node == node && !x.end)
        x.end = clock::now();
  }

  std::vector<interval> of(const std::string& service) const {
    std::lock_guard guard{lock_};
    std::vector<interval> result;
    for (const auto& x : all_)
      if (x.service == service)
        result.push_back(x);
    return result;
  }

  /// Who leads now, by name; none: "".
  std::string leader(const std::string& service) const {
    std::string result;
    for (const auto& x : of(service))
      if (!x.end)
        result += x.node;
    return result;
  }

  /// One sentence for the first fault; empty if there is none.
  std::string fault(const std::string& service) const {
    auto all = of(service);
    for (std::size_t i = 1; i < all.size(); ++i) {
      const auto& before = all[i - 1];
      if (!before.end || *before.end > all[i].begin)
        return fmt::format("{} leads {} before {} has stopped", all[i].node,
                           service, before.node);
      if (all[i].token <= before.token)
        return fmt::format("the token of {} does not grow from {} to {}",
                           service, before.node, all[i].node);
    }
    return {};
  }

private:
  mutable std::mutex lock_;
  std::vector<interval> all_; // in the order of their beginnings
};

class leaders : public cluster_test {
protected:
  ~leaders() override {
    for (auto& [where, x] : leads_)
      x.stop();
    for (auto& [where, x] : leads_)
      EXPECT_TRUE(x.wait_stopped(20s)) << where.first << " " << where.second;
    end_all();
  }

  static leadership_options quick() {
    leadership_options result;
    result.settle = 5ms;
    result.back_off = 10ms;
    result.back_off_most = 50ms;
    result.stop_within = 2s;
    return result;
  }

  service_factory factory(const std::string& service, const std::string& node,
                          std::chrono::milliseconds takes_to_stop = 0ms) {
    auto life = lives_[node];
    return [=, log = log_](caf::actor_system& sys, fencing_token epoch) {
      log->begins(service, node, life, epoch);
      auto result = sys.spawn([=](caf::event_based_actor* self) {
        auto stop = [=](const caf::exit_msg& x) {
          std::this_thread::sleep_for(takes_to_stop);
          log->ends(epoch, service);
          self->quit(x.reason);
        };
#if PAWL_CAF_1
        return caf::behavior{stop, [](look_atom) {}};
#else
        self->set_exit_handler(stop);
        return caf::behavior{[](look_atom) {}};
#endif
      });
      // Of one that is killed; others may hear of its end before this does.
      compat::on_terminate(result, [=](const caf::error&) noexcept {
        log->ends(epoch, service);
      });
      return result;
    };
  }

  leadership& lead_on(const std::string& node, const std::string& service,
                      std::chrono::milliseconds takes_to_stop = 0ms) {
    leads_.insert_or_assign(
      {node, service}, lead(tags(node), service,
                            factory(service, node, takes_to_stop), quick()));
    return leads_.at({node, service});
  }

  void crash_leader(const std::string& node) {
    log_->crashes(node);
    std::erase_if(leads_, [&](const auto& x) { return x.first.first == node; });
    ++lives_[node];
    crash(node);
  }

  /// Waits until one leads, on a node other than `not_here`.
  std::string leader_of(const std::string& service,
                        const std::string& not_here = "") {
    std::string result;
    eventually([&] {
      result = log_->leader(service);
      return result.size() == 1 && result != not_here;
    });
    return result;
  }

  std::shared_ptr<history> log_ = std::make_shared<history>();
  std::map<std::string, int> lives_;
  std::map<std::pair<std::string, std::string>, leadership> leads_;
};

const std::vector<std::string> names{"a", "b", "c"};

// Only scopes are made anew: nodes are slow to start.
TEST_F(leaders, of_nodes_that_start_at_the_same_instant_are_one_per_service) {
  configure({"a", "b", "c"}, 1s);
  for (const auto& x : names)
    start(x, false);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> threads;
    std::mutex lock;
    for (const auto& x : names)
      threads.emplace_back([&, x] {
        auto here = (*this)[x].here->open("tags");
        for (std::string service : {"s", "t", "u"}) {
          auto name = fmt::format("{}-{}", service, round);
          auto leads = lead(here, name, factory(name, x), quick());
          std::lock_guard guard{lock};
          leads_.insert_or_assign({x, name}, leads);
        }
        std::lock_guard guard{lock};
        (*this)[x].tags.emplace(std::move(here));
      });
    for (auto& x : threads)
      x.join();
    for (std::string service : {"s", "t", "u"}) {
      auto name = fmt::format("{}-{}", service, round);
      EXPECT_EQ(leader_of(name).size(), 1u) << name;
    }
    ASSERT_TRUE(all_joined());
    for (std::string service : {"s", "t", "u"}) {
      auto name = fmt::format("{}-{}", service, round);
      // The others wait, and hold nothing.
      EXPECT_TRUE(somebody_waits(name, 2));
      EXPECT_EQ(log_->of(name).size(), 1u) << name;
    }
    // Handles go first, so that scopes stop services that nobody has.
    leads_.clear();
    for (const auto& x : names)
      tags(x).close();
    for (std::string service : {"s", "t", "u"}) {
      auto name = fmt::format("{}-{}", service, round);
      EXPECT_EQ(log_->leader(name), "") << name;
      EXPECT_EQ(log_->fault(name), "") << name;
    }
  }
}

// Case 4, 22, 23.
TEST_F(leaders, are_one_at_any_instant_while_nodes_die_and_come_back) {
  configure_and_start(names, 1s);
  const std::vector<std::string> services{"s", "t", "u", "v"};
  for (const auto& x : names)
    for (const auto& s : services)
      lead_on(x, s);
  for (int round = 0; round < 9; ++round) {
    for (const auto& s : services)
      ASSERT_EQ(leader_of(s).size(), 1u) << s << round;
    // The one that leads most of interest, then another at once.
    auto dies = log_->leader(services[round % services.size()]);
    crash_leader(dies);
    if (round % 3 == 2) {
      auto other = leader_of("s", dies);
      crash_leader(other);
      start(other);
      for (const auto& s : services)
        lead_on(other, s);
    }
    for (const auto& s : services)
      ASSERT_EQ(leader_of(s).size(), 1u) << s << round;
    start(dies);
    for (const auto& s : services)
      lead_on(dies, s);
    ASSERT_TRUE(all_joined());
  }
  for (const auto& s : services)
    EXPECT_EQ(log_->fault(s), "");
}

// Cases 6, 25.
TEST_F(leaders, that_resign_stop_their_service_and_hand_over_without_a_time_out) {
  // Nobody could take over by a time-out: it is far longer than the bound.
  configure_and_start({"a", "b"}, 30s);
  auto& a = lead_on("a", "s", 50ms);
  ASSERT_EQ(leader_of("s"), "a");
  EXPECT_TRUE(a.leading());
  auto epoch = a.epoch();
  auto& b = lead_on("b", "s", 50ms);
  ASSERT_TRUE(somebody_waits("s"));
  for (int i = 0; i < 6; ++i) {
    auto& now = i % 2 == 0 ? a : b;
    auto& next = i % 2 == 0 ? b : a;
    auto begin = clock::now();
    now.resign();
    ASSERT_EQ(leader_of("s", i % 2 == 0 ? "a" : "b"), i % 2 == 0 ? "b" : "a");
    EXPECT_LT(clock::now() - begin, 5s);
    EXPECT_TRUE(eventually([&] { return next.leading(); }));
    EXPECT_GT(next.epoch(), epoch);
    epoch = next.epoch();
    ASSERT_TRUE(somebody_waits("s"));
  }
  EXPECT_EQ(log_->fault("s"), "");
}

TEST_F(leaders, that_are_stopped_give_up_after_their_service_has_ended) {
  configure_and_start({"a", "b"});
  auto& a = lead_on("a", "s", 100ms);
  ASSERT_EQ(leader_of("s"), "a");
  lead_on("b", "s");
  ASSERT_TRUE(somebody_waits("s"));
  a.stop();
  EXPECT_TRUE(a.wait_stopped(10s));
  EXPECT_FALSE(a.leading());
  EXPECT_EQ(a.epoch(), 0u);
  EXPECT_EQ(leader_of("s", "a"), "b");
  EXPECT_EQ(log_->fault("s"), "");
  a.stop(); // harmless
}

TEST_F(leaders, of_a_node_that_stops_end_their_services_first) {
  configure_and_start(names);
  for (std::string s : {"s", "t", "u"}) {
    lead_on("a", s, 50ms);
    ASSERT_EQ(leader_of(s), "a");
  }
  for (std::string x : {"b", "c"})
    for (std::string s : {"s", "t", "u"})
      lead_on(x, s);
  ASSERT_TRUE(somebody_waits("u", 2));
  (*this)["a"].here->stop();
  for (std::string s : {"s", "t", "u"}) {
    auto all = log_->of(s);
    ASSERT_FALSE(all.empty());
    EXPECT_TRUE(all[0].end) << "it runs on after stop() has returned";
    EXPECT_EQ(leader_of(s, "a").size(), 1u);
    EXPECT_EQ(log_->fault(s), "");
  }
}

TEST_F(leaders, whose_factory_throws_leave_it_to_others_and_try_again) {
  configure_and_start({"a", "b"});
  std::atomic<int> thrown{0};
  std::atomic<bool> broken{true};
  auto good = factory("s", "a");
  leads_.insert_or_assign(
    {"a", "s"},
    lead(
      tags("a"), "s",
      [&, good](caf::actor_system& sys, fencing_token epoch) {
        if (broken) {
          ++thrown;
          throw std::runtime_error("not today");
        }
        return good(sys, epoch);
      },
      quick()));
  ASSERT_TRUE(eventually([&] { return thrown >= 2; }));
  EXPECT_EQ(leads_.at({"a", "s"}).epoch(), 0u);
  auto& b = lead_on("b", "s");
  ASSERT_EQ(leader_of("s"), "b");
  broken = false;
  b.stop();
  EXPECT_EQ(leader_of("s", "b"), "a");
  EXPECT_EQ(log_->fault("s"), "");
}

TEST_F(leaders, whose_service_dies_are_followed_by_another) {
  configure_and_start({"a", "b"});
  std::mutex lock;
  std::vector<caf::actor> made;
  for (std::string x : {"a", "b"}) {
    auto inner = factory("s", x);
    leads_.insert_or_assign(
      {x, "s"}, lead(
                  tags(x), "s",
                  [&, inner](caf::actor_system& sys, fencing_token epoch) {
                    auto result = inner(sys, epoch);
                    std::lock_guard guard{lock};
                    made.push_back(result);
                    return result;
                  },
                  quick()));
  }
  for (std::size_t i = 1; i <= 6; ++i) {
    ASSERT_TRUE(eventually([&] {
      std::lock_guard guard{lock};
      return made.size() >= i;
    }));
    std::lock_guard guard{lock};
    compat::anon_send_exit(made.back(), caf::exit_reason::kill);
  }
  EXPECT_EQ(leader_of("s").size(), 1u);
  // Who is killed cannot say when; but each round has a larger token.
  auto all = log_->of("s");
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_GT(all[i].token, all[i - 1].token);
  std::lock_guard guard{lock};
  made.clear();
}

// Case 22: after a cut each side had a leader; one of them goes on.
TEST_F(leaders, of_both_sides_of_a_cut_are_one_after_the_heal) {
  configure_and_start({"a", "b"}, 500ms);
  lead_on("a", "s");
  ASSERT_EQ(leader_of("s"), "a");
  lead_on("b", "s");
  ASSERT_TRUE(somebody_waits("s"));
  cut("a", "b");
  ASSERT_TRUE(eventually([&] { return log_->leader("s").size() == 2; }));
  mend("a", "b");
  ASSERT_TRUE(all_joined());
  // The one with the smaller token has lost, stops its service, and waits.
  EXPECT_EQ(leader_of("s"), "b");
  EXPECT_TRUE(somebody_waits("s"));
  leads_.at({"b", "s"}).resign();
  EXPECT_EQ(leader_of("s", "b"), "a");
}

} // namespace
} // namespace pawl::testing
