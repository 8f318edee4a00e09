// node_worker: the actor that acts on this node in the name of one peer's
// sessions, in all scopes.
//
// One per peer, for as long as the node runs: not one per lock and not one per
// request. It has one core machine per scope and link epoch (core/worker), feeds
// it what the link brings and what its waiters come to, and carries out its
// effects: answers go to the link, what concerns the view goes to the scope's
// actor.
//
// Its inbox is a list like that of a scope: whoever finds it empty wakes the
// actor. It may be put into from any thread.

#pragma once

#include "pawl/actors/scope_state.hpp"
#include "pawl/core/message.hpp"
#include "pawl/core/worker.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace pawl {

class cluster;

/// What is put into the inbox of a node_worker.
namespace work {

struct receive {
  scope_ptr scope;
  link_epoch epoch;
  message what;
};

/// A waiter of a scope's worker. One reference comes with it.
struct settled {
  std::string scope;
  part_waiter* what;
};

/// The link is down: all of its epoch is dropped.
struct down {
  link_epoch epoch;
};

struct ready {
  std::string scope;
};

struct closed {
  std::string scope;
  /// Called when nothing of the scope will be sent any more. May be empty.
  std::function<void()> done;
};

struct stop {};

} // namespace work

using work_item = std::variant<work::receive, work::settled, work::down,
                               work::ready, work::closed, work::stop>;

/// The inbox. Outlives the actor: whoever has a handle may put.
class work_inbox {
public:
  void attach(caf::actor reader);
  void put(work_item what);
  [[nodiscard]] std::vector<work_item> take();

  /// Nothing is read any more; what comes is dropped.
  void close();

private:
  std::mutex lock_;
  std::vector<work_item> items_;
  caf::actor reader_;
  bool closed_ = false;
};

class node_worker final : public caf::event_based_actor,
                          private session_resolver {
public:
  node_worker(caf::actor_config& cfg, node_slot self, node_slot peer,
              std::shared_ptr<work_inbox> inbox,
              std::shared_ptr<cluster> links);

  caf::behavior make_behavior() override;

  void on_exit() override;

private:
  /// How the waiters of one scope's worker find back. The scope keeps it.
  class back_way final : public worker_port {
  public:
    back_way(std::shared_ptr<work_inbox> inbox, scope_state& where)
      : inbox_(std::move(inbox)), where_(where) {
      // nop
    }

    void settled(part_waiter& w) noexcept override;
    void enters(part_waiter& w) override;
    void leaves(part_waiter& w) noexcept override;

  private:
    const std::shared_ptr<work_inbox> inbox_;
    scope_state& where_;
  };

  struct entry {
    scope_ptr scope;
    link_epoch epoch = 0;
    std::unique_ptr<worker> machine;
  };

  void drain();
  void handle(work::receive& x);
  void handle(work::settled& x);
  void handle(work::down& x);
  void handle(work::ready& x);
  void handle(work::closed& x);
  void handle(work::stop& x);

  void run(entry& e, scope_effects& out);
  void end_epoch(entry& e);

  /// Sessions of peers have ledgers that the machine makes itself.
  session_ledger* find(const session_id& who) override;

  const node_slot self_;
  const node_slot peer_;
  std::shared_ptr<work_inbox> inbox_;
  std::shared_ptr<cluster> links_;
  std::unordered_map<std::string, entry> scopes_; // by name
  bool stopping_ = false;
};

} // namespace pawl
