#include "pawl/net/node.hpp"

#include "pawl/actors/peer_port.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/actors/steady_now.hpp"
#include "pawl/core/effect_executor.hpp"
#include "pawl/net/cluster.hpp"
#include "pawl/net/node_worker.hpp"
#include "pawl/net/wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <random>
#include <unordered_map>
#include <utility>

namespace pawl {

namespace {

std::uint64_t wall_clock_ns() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
    std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// Serials of this start: 20 random bits above 44 bits of counter.
std::uint64_t random_serial_base() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) & 0xfffff) << 44;
}

} // namespace

/// What links and scopes share. Lives as long as either needs it.
///
/// A scope that is closed and opened again meets a peer only when nothing of the
/// old one can come or go any more: the peer has acknowledged its scope_closed
/// (links keep their order), and the peer's worker here has ended it. Until then
/// the new one knows only that there is a link (so it does not take the peer for
/// dead), and the peer is answered as if the scope were not open. A link that
/// goes down ends this, too.
class node::state final : public cluster_listener,
                          public peer_port,
                          public std::enable_shared_from_this<node::state> {
public:
  state(caf::actor_system& system, scope_options options)
    : system_(system), options_(options) {
    // nop
  }

  // -- life -------------------------------------------------------------------

  void start(const node_options& x) {
    place_.started_unix_ns = wall_clock_ns();
    place_.serial_base = random_serial_base();
    if (x.name.empty() && x.peers.empty()) {
      place_.names = {"local"};
      return;
    }
    auto plan = make_plan(x);
    if (auto* why = std::get_if<std::string>(&plan))
      throw node_error(*why);
    auto& good = std::get<cluster_plan>(plan);
    place_.names = good.names;
    place_.self = good.self;
    options_.node_timeout = good.node_timeout;
    inboxes_.resize(good.names.size());
    peers_.resize(good.names.size());
    for (auto& inbox : inboxes_)
      inbox = std::make_shared<work_inbox>();
    auto started = cluster::start(system_, good, shared_from_this());
    if (auto* why = std::get_if<std::string>(&started))
      throw node_error(*why);
    std::shared_ptr<cluster> links
      = std::move(std::get<std::unique_ptr<cluster>>(started));
    links->raise_floor(fencing::floor_at(place_.started_unix_ns));
    {
      std::lock_guard guard{lock_};
      links_ = links;
    }
    for (std::size_t i = 0; i < inboxes_.size(); ++i) {
      auto peer = static_cast<node_slot>(i);
      if (peer == place_.self)
        continue;
      inboxes_[i]->attach(system_.spawn<node_worker, caf::hidden>(
        place_.self, peer, inboxes_[i], links));
    }
  }

  void stop(bool quietly) {
    std::vector<scope_ptr> scopes;
    std::shared_ptr<cluster> links;
    {
      std::lock_guard guard{lock_};
      if (stopped_)
        return;
      stopped_ = true;
      for (auto& [name, x] : known_)
        scopes.push_back(x);
      known_.clear();
      links = links_;
    }
    if (quietly && links)
      links->stop_quietly();
    for (auto& x : scopes)
      x->stop(outcome::shutting_down);
    for (auto& inbox : inboxes_)
      inbox->put(work::stop{});
    if (links)
      links->stop();
    std::lock_guard guard{lock_};
    links_ = nullptr;
  }

  void cut(const std::string& peer, bool yes) {
    auto i = std::find(place_.names.begin(), place_.names.end(), peer);
    if (auto links = this->links(); links && i != place_.names.end())
      links->cut(static_cast<node_slot>(i - place_.names.begin()), yes);
  }

  scope open(const std::string& name) {
    if (name.size() > wire::max_scope_name)
      throw node_error(fmt::format("the name of a scope has {} bytes, and may "
                                   "have {}",
                                   name.size(), wire::max_scope_name));
    scope_ptr fresh;
    {
      std::lock_guard guard{lock_};
      if (stopped_)
        throw node_error("the node has been stopped: it opens no scope");
      auto& place = known_[name];
      if (place)
        return scope{place};
      auto port = links_ ? shared_from_this() : nullptr;
      place = std::make_shared<scope_state>(system_, name, options_, place_,
                                            clock_, std::move(port));
      fresh = place;
    }
    if (auto links = this->links())
      fresh->locks.table().raise_floor(links->floor());
    fresh->start();
    return scope{std::move(fresh)};
  }

  // -- cluster_listener -------------------------------------------------------

  void link_up(node_slot peer, link_epoch epoch, incarnation,
               fencing_token floor) override {
    std::lock_guard guard{lock_};
    forget_endings(peer);
    auto& now = peers_[to_index(peer)] = {epoch, steady_now_ns(), false};
    for (auto& [name, x] : announced_) {
      auto& table = x->locks.table();
      table.raise_floor(std::max(floor, x->highest_token()));
      x->put(post::link_up{peer, epoch, now.since});
    }
  }

  void link_down(node_slot peer, link_epoch epoch,
                 const std::string&) override {
    std::lock_guard guard{lock_};
    if (auto& x = peers_[to_index(peer)]; x.epoch == epoch) {
      x.epoch = 0;
      forget_endings(peer);
    }
    inboxes_[to_index(peer)]->put(work::down{epoch});
    for (auto& [name, x] : announced_)
      x->put(post::link_down{peer, epoch});
  }

  void peer_rejected(node_slot peer, wire::reject_kind kind,
                     const std::string&) override {
    std::lock_guard guard{lock_};
    auto in_use = kind == wire::reject_kind::name_in_use;
    peers_[to_index(peer)].name_in_use = in_use;
    for (auto& [name, x] : announced_)
      if (in_use)
        x->put(post::peer_is_up{peer});
      else
        x->put(post::rejected{peer});
  }

  void receive(node_slot peer, link_epoch epoch, const std::string& scope,
               message what) override {
    scope_ptr target;
    {
      std::lock_guard guard{lock_};
      if (auto end = endings_.find({scope, peer}); end != endings_.end()) {
        if (std::holds_alternative<scope_closed_ack_message>(what)) {
          end->second.acknowledged = true;
          meet_if_ended(end);
          return;
        }
      } else if (auto i = announced_.find(scope); i != announced_.end()) {
        target = i->second;
      }
      if (!target) {
        // In one step with looking: a scope that is announced meanwhile would
        // say that it is open before this says that it is not.
        answer_for_nobody(peer, epoch, scope, what);
        return;
      }
    }
    auto both = for_coordinator(what) && for_worker(what);
    if (both)
      target->put(post::from_peer{peer, epoch, what});
    else if (for_coordinator(what))
      target->put(post::from_peer{peer, epoch, std::move(what)});
    if (both || for_worker(what))
      inboxes_[to_index(peer)]->put(
        work::receive{std::move(target), epoch, std::move(what)});
  }

  void batch_received(node_slot) override {
    if (auto x = links())
      clock_->raise(x->next_lamport());
  }

  // -- peer_port --------------------------------------------------------------

  void send(node_slot to, link_epoch epoch, const std::string& scope,
            message what) override {
    std::unique_lock guard{lock_};
    auto x = links_;
    if (!x)
      return;
    if (!std::holds_alternative<scope_closed_message>(what)) {
      guard.unlock();
    } else if (peers_[to_index(to)].epoch == epoch) {
      // In one step with saying so: from now on the peer is answered for
      // nobody, which it must not hear before.
      endings_[{scope, to}] = ending{};
    }
    x->send(to, epoch, scope, std::move(what));
  }

  bool heard(node_slot who) const override {
    auto x = links();
    return x != nullptr && (who == place_.self || x->heard(who));
  }

  bool awake(
    const std::vector<exchange_time>& exchanged) const override {
    auto x = links();
    return x != nullptr && x->awake(exchanged);
  }

  void scope_ready(const std::string& scope) override {
    for (auto& inbox : inboxes_)
      inbox->put(work::ready{scope});
  }

  void scope_closed(const std::string& scope) override {
    {
      std::lock_guard guard{lock_};
      announced_.erase(scope);
      known_.erase(scope);
    }
    for (std::size_t i = 0; i < inboxes_.size(); ++i) {
      auto peer = static_cast<node_slot>(i);
      if (peer == place_.self)
        continue;
      inboxes_[i]->put(work::closed{
        scope, [weak = weak_from_this(), scope, peer] {
          if (auto self = weak.lock())
            self->worker_ended(scope, peer);
        }});
    }
  }

  void announce_links(const std::string& scope) override {
    std::lock_guard guard{lock_};
    auto i = known_.find(scope);
    if (i == known_.end())
      return;
    announced_.insert(*i);
    // One step with entering the list: what comes in later is told as it comes.
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      auto peer = static_cast<node_slot>(p);
      const auto& x = peers_[p];
      if (x.name_in_use || endings_.contains({scope, peer}))
        i->second->put(post::peer_is_up{peer});
      else if (x.epoch != 0)
        i->second->put(post::link_up{peer, x.epoch, x.since});
    }
  }

  // -- queries ----------------------------------------------------------------

  const std::string& name() const noexcept {
    return place_.names[to_index(place_.self)];
  }

  const std::string& name_of(node_slot x) const noexcept {
    return place_.names[to_index(x)];
  }

  std::vector<std::string> linked() const {
    std::vector<std::string> result;
    std::lock_guard guard{lock_};
    for (std::size_t i = 0; i < peers_.size(); ++i)
      if (peers_[i].epoch != 0)
        result.push_back(place_.names[i]);
    return result;
  }

  std::shared_ptr<cluster> links() const {
    std::lock_guard guard{lock_};
    return links_;
  }

private:
  struct peer_link {
    link_epoch epoch = 0; // 0: no link
    std::int64_t since = 0;
    /// The peer has refused this node because another one has its name.
    bool name_in_use = false;
  };

  /// The end of a scope that was open to a peer, in the present link epoch.
  struct ending {
    bool acknowledged = false;
    bool worker_ended = false;
  };

  using ending_map = std::map<std::pair<std::string, node_slot>, ending>;

  void worker_ended(const std::string& scope, node_slot peer) {
    std::lock_guard guard{lock_};
    auto i = endings_.find({scope, peer});
    if (i == endings_.end())
      return;
    i->second.worker_ended = true;
    meet_if_ended(i);
  }

  /// Under the lock.
  void meet_if_ended(ending_map::iterator i) {
    if (!i->second.acknowledged || !i->second.worker_ended)
      return;
    auto [scope, peer] = i->first;
    endings_.erase(i);
    auto x = announced_.find(scope);
    if (x != announced_.end())
      x->second->put(post::link_up{peer, peers_[to_index(peer)].epoch,
                                   peers_[to_index(peer)].since});
  }

  /// Under the lock.
  void forget_endings(node_slot peer) {
    std::erase_if(endings_,
                  [=](const auto& x) { return x.first.second == peer; });
  }

  /// A scope that is not open here: who asks is told so. Under the lock.
  void answer_for_nobody(node_slot peer, link_epoch epoch,
                         const std::string& scope, const message& what) {
    const auto& x = links_;
    if (!x)
      return;
    if (auto* ask = std::get_if<request_message>(&what)) {
      x->send(peer, epoch, scope,
              refused_message{ask->id, ask->attempt, outcome::scope_closed});
    } else if (auto* question = std::get_if<walk_question_message>(&what)) {
      x->send(peer, epoch, scope, nothing_known(*question));
    } else if (std::holds_alternative<scope_opened_message>(what)) {
      hand_over_message no;
      no.open = false;
      x->send(peer, epoch, scope, std::move(no));
    } else if (std::holds_alternative<scope_closed_message>(what)) {
      x->send(peer, epoch, scope, scope_closed_ack_message{});
    }
  }

  caf::actor_system& system_;
  scope_options options_;
  scope_place place_;
  const std::shared_ptr<lamport_clock> clock_
    = std::make_shared<lamport_clock>();
  std::vector<std::shared_ptr<work_inbox>> inboxes_; // by slot
  mutable std::mutex lock_;
  std::shared_ptr<cluster> links_;
  std::vector<peer_link> peers_; // by slot
  std::unordered_map<std::string, scope_ptr> known_;
  std::unordered_map<std::string, scope_ptr> announced_; // told of links
  ending_map endings_;
  bool stopped_ = false;
};

// -- node ---------------------------------------------------------------------

node::node(caf::actor_system& system, const config& options)
  : node(system, options.node(), options.scope()) {
  // nop
}

node::node(caf::actor_system& system, const node_options& options,
           scope_options scopes)
  : state_(std::make_shared<state>(system, scopes)) {
  state_->start(options);
}

node::~node() {
  stop();
}

scope node::open(const std::string& name) {
  return state_->open(name);
}

void node::stop() {
  state_->stop(false);
}

void node::vanish() {
  state_->stop(true);
}

void node::cut(const std::string& peer, bool yes) {
  state_->cut(peer, yes);
}

const std::string& node::name() const noexcept {
  return state_->name();
}

std::uint16_t node::port() const noexcept {
  auto x = state_->links();
  return x ? x->port() : 0;
}

std::vector<std::string> node::linked() const {
  return state_->linked();
}

} // namespace pawl
