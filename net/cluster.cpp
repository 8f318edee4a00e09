#include "pawl/net/cluster.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/net/link.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace pawl {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds patience{5};

/// Drawn from the system each time: rare, and nobody is to guess an epoch.
std::uint64_t draw() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

/// What both ends must number alike for a frame to arrive at all.
std::uint64_t type_fingerprint() {
  return std::uint64_t{caf::id_block::pawl_compat::begin};
}

// -- the door -----------------------------------------------------------------

struct close_door : compat::deliverable {};

class door : public caf::event_based_actor {
public:
  door(caf::actor_config& cfg, cluster_plan plan, incarnation who,
       std::vector<caf::actor> links)
    : caf::event_based_actor(cfg), plan_(std::move(plan)), who_(who),
      links_(std::move(links)) {
    // nop
  }

  const char* name() const override {
    return "pawl.door";
  }

  void on_exit() override {
    links_.clear();
  }

  caf::behavior make_behavior() override {
    return {
      [this](const compat::byte_vector& frame) { received(frame.bytes); },
      [this](const compat::local_ptr& x) {
        if (dynamic_cast<close_door*>(x.ptr.get()) != nullptr)
          quit();
      },
    };
  }

private:
  void received(const wire::bytes& bytes) {
    auto x = wire::decode(bytes);
    if (auto* error = std::get_if<wire::malformed>(&x)) {
      refuse(fmt::format("{} bytes: {}", bytes.size(), to_string(*error)));
      return;
    }
    auto& frame = std::get<wire::frame>(x);
    if (auto* hello = std::get_if<wire::hello>(&frame))
      received(std::move(*hello));
    else
      refuse(fmt::format("a {}, where only hello is expected",
                         wire::name_of(frame)));
  }

  void received(wire::hello x) {
    if (current_sender() == nullptr) {
      refuse("a hello that cannot be answered");
      return;
    }
    const auto& names = plan_.names;
    auto i = std::find(names.begin(), names.end(), x.self.name);
    if (i == names.end()) {
      reject(x, wire::reject_kind::mismatch,
             fmt::format("node '{}' is not among the nodes {} of node '{}'",
                         x.self.name, fmt::join(names, ", "), plan_.name()));
      return;
    }
    auto slot = static_cast<std::size_t>(i - names.begin());
    if (slot == to_index(plan_.self)) {
      if (x.self.who == who_)
        reject(x, wire::reject_kind::mismatch,
               fmt::format("node '{}' looks for a node '{}' at its own address",
                           x.self.name, x.self.called));
      else
        reject(x, wire::reject_kind::name_in_use,
               fmt::format("the name '{}' is in use: the node at {} runs under "
                           "it, so the one at {} is refused",
                           x.self.name, to_string(plan_.listen),
                           x.self.address));
      return;
    }
    auto hello = std::make_shared<greeting>();
    hello->what = std::move(x);
    hello->from = current_sender();
    compat::anon_send(links_[slot], compat::local_ptr{std::move(hello)});
  }

  void reject(const wire::hello& x, wire::reject_kind kind, std::string why) {
    refuse(fmt::format("a hello from {}: {}", x.self.address, why));
    why.resize(std::min(why.size(), wire::max_sentence));
    wire::reject answer{wire::protocol_version, plan_.name(), x.nonce, kind,
                        std::move(why)};
    compat::send(this, caf::actor_cast<caf::actor>(current_sender()),
                 compat::byte_vector{wire::encode(wire::frame{answer})});
  }

  void refuse(const std::string& what) {
    log_.line(
      log_level::warning,
      fmt::format("node '{}' refused at its door {}", plan_.name(), what),
      clock::now());
  }

  cluster_plan plan_;
  incarnation who_;
  std::vector<caf::actor> links_;
  log_limiter log_;
};

/// Counts actors that have ended. Shared with their termination functors.
struct countdown {
  std::mutex guard;
  std::condition_variable changed;
  std::size_t left = 0;

  void one_less() noexcept {
    std::lock_guard lock{guard};
    --left;
    changed.notify_all();
  }

  bool wait() {
    std::unique_lock lock{guard};
    return changed.wait_for(lock, patience, [this] { return left == 0; });
  }
};

} // namespace

// -- start and stop -----------------------------------------------------------

struct cluster::parts {
  parts(caf::actor_system& sys_arg, cluster_plan plan_arg)
    : sys(sys_arg), plan(std::move(plan_arg)) {
    // nop
  }

  caf::actor_system& sys;
  cluster_plan plan;
  incarnation who;
  std::uint16_t port = 0;
  std::shared_ptr<cluster_board> board;
  stop_flag stop = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::shared_ptr<outbox>> boxes;
  std::vector<stop_flag> cuts;
  std::vector<caf::actor> links;
  caf::actor at_the_door;
  std::shared_ptr<countdown> running = std::make_shared<countdown>();
  bool stopped = false;

  void watch(const caf::actor& x) {
    {
      std::lock_guard lock{running->guard};
      ++running->left;
    }
    compat::on_terminate(
      x, [all = running](const caf::error&) noexcept { all->one_less(); });
  }
};

std::variant<std::unique_ptr<cluster>, std::string> cluster::start(
  caf::actor_system& sys, const cluster_plan& plan,
  std::shared_ptr<cluster_listener> listener) {
  ensure(listener != nullptr, "a cluster has a listener");
  if (!sys.has_middleman())
    return "the actor system has no network module: see pawl::config";
  auto x = std::make_unique<parts>(sys, plan);
  auto nodes = plan.names.size();
  x->who = {draw(), draw()};
  x->board
    = std::make_shared<cluster_board>(nodes, plan.self, plan.node_timeout);
  x->boxes.resize(nodes);
  x->cuts.resize(nodes);
  x->links.resize(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    if (i == to_index(plan.self))
      continue;
    link_parts y;
    y.machine.names = plan.names;
    y.machine.self = plan.self;
    y.machine.peer = static_cast<node_slot>(i);
    y.machine.who = x->who;
    y.machine.address = to_string(plan.listen);
    y.machine.peer_address = to_string(plan.addresses[i]);
    y.machine.fingerprint = type_fingerprint();
    y.machine.node_timeout = plan.node_timeout;
    y.machine.heartbeat = plan.heartbeat;
    y.machine.window = plan.window;
    y.machine.random = draw;
    y.address = plan.addresses[i];
    y.listener = listener;
    y.board = x->board;
    y.box = x->boxes[i] = std::make_shared<outbox>();
    y.stop = x->stop;
    y.cut = x->cuts[i] = std::make_shared<std::atomic<bool>>(false);
    x->links[i] = sys.spawn<link>(std::move(y));
    x->watch(x->links[i]);
  }
  x->at_the_door = sys.spawn<door>(plan, x->who, x->links);
  x->watch(x->at_the_door);
  // From here on the destructor cleans up.
  std::unique_ptr<cluster> result{new cluster{std::move(x)}};
  auto& made = *result->parts_;
  auto port = sys.middleman().publish(made.at_the_door, plan.listen.port,
                                      plan.listen.host.c_str(), true);
  if (!port) {
    auto why = compat::render(sys, port.error());
    result->stop(true);
    return fmt::format("pawl.listen = '{}': cannot listen there (is the port "
                       "in use, the address of this machine?): {}",
                       to_string(plan.listen), why);
  }
  made.port = *port;
  for (auto& l : made.links)
    if (l)
      compat::anon_send(l, compat::local_ptr{std::make_shared<start_link>()});
  return result;
}

cluster::cluster(std::unique_ptr<parts> x) : parts_(std::move(x)) {
  // nop
}

cluster::~cluster() {
  stop();
}

void cluster::stop() {
  stop(false);
}

void cluster::stop_quietly() {
  stop(true);
}

void cluster::cut(node_slot peer, bool yes) {
  parts_->cuts[to_index(peer)]->store(yes);
}

void cluster::stop(bool quietly) {
  auto& x = *parts_;
  if (std::exchange(x.stopped, true))
    return;
  x.stop->store(true);
  if (x.port != 0)
    (void) x.sys.middleman().unpublish(x.at_the_door, x.port);
  for (auto& l : x.links)
    if (l)
      compat::anon_send(
        l, compat::local_ptr{std::make_shared<stop_link>(quietly)});
  compat::anon_send(x.at_the_door,
                    compat::local_ptr{std::make_shared<close_door>()});
  if (!x.running->wait())
    log_line(log_level::error,
             fmt::format("node '{}': not all links have ended within {} s",
                         x.plan.name(), patience.count()));
  std::fill(x.links.begin(), x.links.end(), caf::actor{});
  x.at_the_door = nullptr;
}

// -- sending ------------------------------------------------------------------

void cluster::send(node_slot to, link_epoch epoch, std::string scope,
                   message what) {
  auto& x = *parts_;
  ensure(to_index(to) < x.boxes.size() && to != x.plan.self,
         "a message goes to another node");
  if (x.boxes[to_index(to)]->append({epoch, std::move(scope), std::move(what)}))
    compat::anon_send(x.links[to_index(to)], drain_atom_v);
}

// -- queries ------------------------------------------------------------------

link_epoch cluster::epoch(node_slot peer) const noexcept {
  return parts_->board->epoch(peer);
}

cluster::time_point cluster::last_heard(node_slot peer) const noexcept {
  return parts_->board->last_heard(peer);
}

bool cluster::heard(node_slot peer) const noexcept {
  return parts_->board->heard(peer);
}

bool cluster::awake(
  const std::vector<exchange_time>& exchanged) const noexcept {
  return parts_->board->awake([&](node_slot peer) {
    auto at = to_index(peer) < exchanged.size()
                ? exchanged[to_index(peer)].load(std::memory_order_relaxed)
                : std::int64_t{0};
    return time_point{std::chrono::nanoseconds{at}};
  });
}

fencing_token cluster::floor() const noexcept {
  return parts_->board->floor();
}

void cluster::raise_floor(fencing_token x) noexcept {
  parts_->board->raise_floor(x);
}

std::uint64_t cluster::next_lamport() noexcept {
  return parts_->board->next_lamport();
}

const cluster_plan& cluster::plan() const noexcept {
  return parts_->plan;
}

incarnation cluster::who() const noexcept {
  return parts_->who;
}

std::uint16_t cluster::port() const noexcept {
  return parts_->port;
}

} // namespace pawl
