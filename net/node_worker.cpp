#include "pawl/net/node_worker.hpp"

#include "pawl/actors/type_ids.hpp"
#include "pawl/net/cluster.hpp"

#include <utility>

namespace pawl {

// -- the inbox ----------------------------------------------------------------

void work_inbox::attach(caf::actor reader) {
  auto wake = false;
  {
    std::lock_guard guard{lock_};
    reader_ = reader;
    wake = !items_.empty();
  }
  if (wake)
    compat::anon_send(reader, drain_atom_v);
}

void work_inbox::put(work_item what) {
  caf::actor reader;
  {
    std::lock_guard guard{lock_};
    if (closed_) {
      if (auto* x = std::get_if<work::settled>(&what))
        x->what->unref();
      return;
    }
    if (items_.empty())
      reader = reader_;
    items_.push_back(std::move(what));
  }
  compat::anon_send(reader, drain_atom_v);
}

std::vector<work_item> work_inbox::take() {
  std::lock_guard guard{lock_};
  return std::exchange(items_, {});
}

void work_inbox::close() {
  std::vector<work_item> rest;
  {
    std::lock_guard guard{lock_};
    closed_ = true;
    rest.swap(items_);
    reader_ = nullptr;
  }
  for (auto& x : rest)
    if (auto* w = std::get_if<work::settled>(&x))
      w->what->unref();
}

// -- the actor ----------------------------------------------------------------

node_worker::node_worker(caf::actor_config& cfg, node_slot self, node_slot peer,
                         std::shared_ptr<work_inbox> inbox,
                         std::shared_ptr<cluster> links)
  : caf::event_based_actor(cfg),
    self_(self),
    peer_(peer),
    inbox_(std::move(inbox)),
    links_(std::move(links)) {
  // nop
}

caf::behavior node_worker::make_behavior() {
  return {
    [this](drain_atom) { drain(); },
  };
}

void node_worker::on_exit() {
  for (auto& [name, e] : scopes_)
    end_epoch(e);
  scopes_.clear();
  inbox_->close();
  links_.reset();
}

void node_worker::drain() {
  for (auto& x : inbox_->take())
    std::visit([this](auto& y) { handle(y); }, x);
  if (stopping_)
    quit();
}

void node_worker::handle(work::receive& x) {
  if (is_shut(x.scope->gate()))
    return; // its scope_closed tells the peer, or has done so
  auto& e = scopes_[x.scope->name()];
  if (e.scope != x.scope || e.epoch != x.epoch) {
    // The first message of this epoch: nothing of an older one remains.
    end_epoch(e);
    e.scope = x.scope;
    e.epoch = x.epoch;
    worker_options options;
    options.self = self_;
    options.peer = peer_;
    options.epoch = x.epoch;
    options.node_timeout = x.scope->options().node_timeout;
    auto& back = e.scope->way_back(peer_, [&] {
      return std::make_unique<back_way>(inbox_, *e.scope);
    });
    e.machine = std::make_unique<worker>(options, e.scope->locks, back,
                                         *e.scope->clock,
                                         static_cast<session_resolver&>(*this));
    scope_effects out;
    // Who becomes ready afterwards says so by a message.
    if (e.scope->gate() == outcome::pending)
      e.machine->set_ready(out);
    run(e, out);
  }
  scope_effects out;
  e.machine->receive(x.what, out);
  run(e, out);
}

void node_worker::handle(work::settled& x) {
  auto i = scopes_.find(x.scope);
  if (i == scopes_.end() || !i->second.machine) {
    x.what->unref();
    return;
  }
  scope_effects out;
  i->second.machine->settled(*x.what, out);
  run(i->second, out);
}

void node_worker::handle(work::down& x) {
  for (auto& [name, e] : scopes_)
    if (e.epoch == x.epoch)
      end_epoch(e);
}

void node_worker::handle(work::ready& x) {
  auto i = scopes_.find(x.scope);
  if (i == scopes_.end() || !i->second.machine)
    return;
  scope_effects out;
  i->second.machine->set_ready(out);
  run(i->second, out);
}

void node_worker::handle(work::closed& x) {
  // No refusals: scope_closed has told the peer, and a refusal that came behind
  // a scope that is open again would be taken for the new one's.
  if (auto i = scopes_.find(x.scope); i != scopes_.end()) {
    end_epoch(i->second);
    scopes_.erase(i);
  }
  if (x.done)
    x.done();
}

void node_worker::handle(work::stop&) {
  stopping_ = true;
}

void node_worker::run(entry& e, scope_effects& out) {
  scope_effects for_scope;
  for (auto& x : out) {
    auto* y = std::get_if<effect::send>(&x);
    if (y != nullptr && y->to == peer_)
      links_->send(peer_, e.epoch, e.scope->name(), std::move(y->what));
    else
      for_scope.push_back(std::move(x));
  }
  if (!for_scope.empty())
    e.scope->put(post::effects{std::move(for_scope)});
}

void node_worker::end_epoch(entry& e) {
  if (e.machine) {
    scope_effects out;
    e.machine->close_epoch(out);
    run(e, out);
    e.machine.reset();
  }
  e.scope.reset();
  e.epoch = 0;
}

session_ledger* node_worker::find(const session_id&) {
  return nullptr;
}

void node_worker::back_way::settled(part_waiter& w) noexcept {
  inbox_->put(work::settled{where_.name(), &w});
}

void node_worker::back_way::enters(part_waiter& w) {
  where_.board.add(w);
}

void node_worker::back_way::leaves(part_waiter& w) noexcept {
  where_.board.remove(w);
}

} // namespace pawl
