// What the tests with several nodes share: nodes of one cluster, each with an
// actor system of its own, in one process on loopback; and clients: actors with
// one session each, which do what a test tells them and keep what they are told.
//
// A crash ends a node's links without a word; a cut leaves both sides alive. A
// test waits for conditions, with a bound, and never for time to pass.

#pragma once

#include "pawl/pawl.hpp"

#include "pawl/core/node_order.hpp"
#include "pawl/test/actors/fixture.hpp"
#include "pawl/test/support/free_port.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace pawl::testing {

/// One ask, and what came of it. The lock may be used from any thread.
struct attempt {
  std::atomic<outcome> how{outcome::pending};
  failure why;      // valid once `how` says that it failed
  pawl::lock held;  // valid once granted
  lock_set all;     // of a lock_all

  outcome get(std::chrono::milliseconds limit = 20s) {
    eventually([this] { return how.load() != outcome::pending; }, limit);
    return how;
  }

  [[nodiscard]] bool pending() const {
    return how.load() == outcome::pending;
  }

  fencing_token token() {
    return get() == outcome::granted ? held.token() : 0;
  }
};

using attempt_ptr = std::shared_ptr<attempt>;

/// An actor with one session. Owned by its node.
class client {
public:
  using asks_one = std::function<request<pawl::lock>(const session&)>;
  using asks_all = std::function<request<lock_set>(const session&)>;

  client(caf::actor_system& system, scope where) : where_(std::move(where)) {
    actor_ = system.spawn<puppet>();
    tell_puppet(actor_, [where = where_, log = log_](puppet* self) {
      self->own.emplace(where.attach(self));
      self->own->on_lost([log](const hold_event& x) {
        std::lock_guard guard{log->lock};
        log->all.push_back(x);
      });
    });
  }

  client(const client&) = delete;

  ~client() {
    kill();
  }

  // -- asking -----------------------------------------------------------------

  attempt_ptr ask(asks_one f) {
    auto result = std::make_shared<attempt>();
    tell_puppet(actor_, [result, f = std::move(f)](puppet* self) {
      f(*self->own)
        .then(
          [result](pawl::lock held) {
            result->held = std::move(held);
            result->how = outcome::granted;
          },
          [result](const failure& why) {
            result->why = why;
            result->how = why.why;
          });
    });
    return result;
  }

  attempt_ptr ask_all(asks_all f) {
    auto result = std::make_shared<attempt>();
    tell_puppet(actor_, [result, f = std::move(f)](puppet* self) {
      f(*self->own)
        .then(
          [result](lock_set held) {
            result->all = std::move(held);
            result->how = outcome::granted;
          },
          [result](const failure& why) {
            result->why = why;
            result->how = why.why;
          });
    });
    return result;
  }

  attempt_ptr everywhere(std::string what, lock_mode mode = exclusive) {
    return ask([=](const session& s) {
      return s.lock(what, mode).on(every_node);
    });
  }

  attempt_ptr on(std::vector<std::string> nodes, std::string what,
                 lock_mode mode = exclusive) {
    return ask(
      [=](const session& s) { return s.lock(what, mode).on(nodes); });
  }

  attempt_ptr here(std::string what, lock_mode mode = exclusive) {
    return ask([=](const session& s) { return s.lock(what, mode); });
  }

  /// Asks for it without waiting.
  outcome try_here(std::string what, lock_mode mode = exclusive) {
    return ask([=](const session& s) { return s.lock(what, mode).no_wait(); })
      ->get();
  }

  // -- its life ---------------------------------------------------------------

  /// Ends the actor: what it holds is released.
  void kill() {
    if (actor_)
      compat::anon_send_exit(actor_, caf::exit_reason::kill);
    actor_ = nullptr;
  }

  // -- what it was told -------------------------------------------------------

  std::vector<hold_event> events() const {
    std::lock_guard guard{log_->lock};
    return log_->all;
  }

  /// "lost b", "node_left c": what was told, in order.
  std::vector<std::string> told() const {
    std::vector<std::string> result;
    for (const auto& x : events())
      result.push_back(
        (x.what == hold_event::kind::lost ? "lost" : "node_left")
        + (x.node.empty() ? std::string{} : " " + x.node));
    return result;
  }

  bool hears(const std::string& what) const {
    return eventually([&] {
      auto all = told();
      return std::find(all.begin(), all.end(), what) != all.end();
    });
  }

private:
  struct event_log {
    std::mutex lock;
    std::vector<hold_event> all;
  };

  scope where_;
  caf::actor actor_;
  std::shared_ptr<event_log> log_ = std::make_shared<event_log>();
};

/// A node, its actor system and its scope `tags`.
class member {
public:
  member(const node_options& options, bool opens) {
    cfg.name = options.name;
    cfg.listen = options.listen;
    for (const auto& x : options.peers)
      cfg.peers += (cfg.peers.empty() ? "" : ",") + x;
    cfg.node_timeout = options.node_timeout;
    if (auto why = cfg.read())
      throw std::runtime_error(*why);
    compat::use_sharing_scheduler(cfg);
    compat::max_threads(cfg, 2);
    system.emplace(cfg);
    here.emplace(*system, cfg);
    if (opens)
      open();
  }

  ~member() {
    end(false);
  }

  void open() {
    tags.emplace(here->open("tags"));
  }

  client& new_client() {
    clients.push_back(std::make_unique<client>(*system, *tags));
    return *clients.back();
  }

  /// Ends the node: with a goodbye, or as a crash would.
  void end(bool crashes) {
    if (!here)
      return;
    if (crashes)
      here->vanish();
    else
      here->stop();
    clients.clear();
    tags.reset();
    here.reset();
    system.reset();
  }

  pawl::config cfg;
  std::optional<caf::actor_system> system;
  std::optional<pawl::node> here;
  std::optional<scope> tags;
  std::vector<std::unique_ptr<client>> clients;
};

class cluster_test : public ::testing::Test {
protected:
  ~cluster_test() override {
    end_all();
  }

  // -- nodes ------------------------------------------------------------------

  /// Names the nodes of the cluster; starts none.
  void configure(std::vector<std::string> names,
                 std::chrono::milliseconds node_timeout = 2s) {
    std::vector<std::string> all;
    for (const auto& x : names)
      all.push_back(fmt::format("{}=127.0.0.1:{}", x, free_port()));
    for (std::size_t i = 0; i < names.size(); ++i) {
      node_options options;
      options.name = names[i];
      options.listen = all[i].substr(all[i].find('=') + 1);
      options.peers = all;
      options.node_timeout = node_timeout;
      options_[names[i]] = std::move(options);
    }
  }

  member& start(const std::string& name, bool opens = true) {
    auto& place = members_[name];
    place = std::make_unique<member>(options_.at(name), opens);
    return *place;
  }

  /// Starts all and waits until each has all in its view.
  void start_all() {
    for (const auto& [name, options] : options_)
      start(name);
    ASSERT_TRUE(all_joined());
  }

  void configure_and_start(std::vector<std::string> names,
                           std::chrono::milliseconds node_timeout = 2s) {
    configure(std::move(names), node_timeout);
    start_all();
  }

  void crash(const std::string& name) {
    members_.at(name)->end(true);
    members_.erase(name);
  }

  void stop(const std::string& name) {
    members_.erase(name);
  }

  void cut(const std::string& a, const std::string& b, bool yes = true) {
    (*this)[a].here->cut(b, yes);
    (*this)[b].here->cut(a, yes);
  }

  void mend(const std::string& a, const std::string& b) {
    cut(a, b, false);
  }

  member& operator[](const std::string& name) {
    return *members_.at(name);
  }

  scope& tags(const std::string& name) {
    return *(*this)[name].tags;
  }

  client& new_client(const std::string& name) {
    return (*this)[name].new_client();
  }

  // -- what is going on -------------------------------------------------------

  /// Whether `node` grants, and `every_node` asks exactly these there.
  bool sees(const std::string& node, std::vector<std::string> nodes) {
    std::sort(nodes.begin(), nodes.end());
    return eventually([&] {
      auto view = tags(node).ready_nodes();
      std::sort(view.begin(), view.end());
      return tags(node).ready() && view == nodes;
    });
  }

  bool all_joined() {
    std::vector<std::string> names;
    for (const auto& [name, x] : members_)
      names.push_back(name);
    return std::all_of(names.begin(), names.end(),
                       [&](const auto& x) { return sees(x, names); });
  }

  std::size_t holders(const std::string& node, const std::string& what) {
    return tags(node).holders(what).size();
  }

  std::size_t waiters(const std::string& node, const std::string& what) {
    return tags(node).waiters(what).size();
  }

  /// Waits until somebody waits for it on one of the nodes.
  bool somebody_waits(const std::string& what, std::size_t count = 1) {
    return eventually([&] {
      std::size_t n = 0;
      for (const auto& [name, x] : members_)
        n += x->tags->waiters(what).size();
      return n >= count;
    });
  }

  /// The nodes in the order in which a request for several of them asks.
  std::vector<std::string> order() {
    std::vector<std::string> names;
    std::vector<node_slot> slots;
    for (const auto& [name, options] : options_) {
      slots.push_back(static_cast<node_slot>(names.size()));
      names.push_back(name);
    }
    node_order{"tags", names}.sort(slots);
    std::vector<std::string> result;
    for (auto x : slots)
      result.push_back(names[to_index(x)]);
    return result;
  }

  /// Whether a term is free on all nodes in the end.
  bool becomes_free(const std::string& what) {
    return eventually([&] {
      return std::all_of(members_.begin(), members_.end(), [&](auto& x) {
        return x.second->tags->holders(what).empty()
               && x.second->tags->waiters(what).empty();
      });
    });
  }

  /// Whether nothing is left on any node once all clients have ended.
  void end_all() {
    for (auto& [name, x] : members_)
      x->clients.clear();
    for (auto& [name, x] : members_) {
      if (!x->tags)
        continue;
      auto what_is_left = [&] {
        auto left = x->tags->residue();
        // The queues of a closed scope have no manager any more that would
        // take them down; the table does, when it goes.
        if (!x->tags->ready())
          left.rows = 0;
        return left;
      };
      auto clean = eventually([&] { return what_is_left() == residue{}; });
      auto left = what_is_left();
      EXPECT_TRUE(clean) << name << ": rows " << left.rows << " sessions "
                         << left.sessions << " requests " << left.requests
                         << " waits " << left.waits;
      x->tags->state()->locks.table().check_invariants();
    }
    members_.clear();
  }

  std::map<std::string, node_options> options_;
  std::map<std::string, std::unique_ptr<member>> members_;
};

} // namespace pawl::testing
