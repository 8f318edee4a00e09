#include "pawl/net/config.hpp"

#include "pawl/actors/type_ids.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace pawl {

namespace {

using std::chrono::milliseconds;

/// A BASP tick that falls into a connect breaks it: not shorter than this.
constexpr milliseconds shortest_tick{100};

std::uint32_t clamped(std::size_t x) {
  constexpr auto most = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min<std::size_t>(x, most));
}

} // namespace

config::config() {
  compat::init_meta<caf::id_block::pawl_actors>();
  compat::load_middleman(*this);
  compat::add_types<caf::id_block::pawl_actors>(*this);
  opt_group{custom_options_, "pawl"}
    .add(name, "name", "name of this node, stable over restarts")
    .add(listen, "listen", "where this node listens, host:port")
    .add(peers, "peers", "the other nodes, name=host:port,name=host:port,...")
    .add(node_timeout, "node-timeout",
         "a node that is silent for so long is down; the same on all nodes")
    .add(heartbeat_interval, "heartbeat-interval",
         "how often nodes say that they are there; 0: node-timeout / 8")
    .add(window, "window",
         "batches under way to a peer without acknowledgement")
    .add(max_waiters, "max-waiters",
         "requests of a scope that may wait at once")
    .add(probe_limit, "probe-limit",
         "locks and sessions that a search for a deadlock may visit")
    .add(deadlock_grace, "deadlock-grace",
         "how long hand-overs between nodes may resolve by themselves");
  pass_on();
}

std::optional<std::string> config::read(int argc, char** argv) {
  if (auto why = compat::parse(*this, argc, argv))
    return why;
  return read();
}

std::optional<std::string> config::read() {
  pass_on();
  if (max_waiters == 0)
    return "pawl.max-waiters = '0': nobody could ever wait";
  if (probe_limit == 0)
    return "pawl.probe-limit = '0': no deadlock would ever be found";
  // Without a name there is no node, only scopes of one node.
  if (name.empty() && peers.empty())
    return std::nullopt;
  auto plan = make_plan(node());
  if (auto* why = std::get_if<std::string>(&plan))
    return *why;
  return std::nullopt;
}

node_options config::node() const {
  node_options result;
  result.name = name;
  result.listen = listen;
  result.peers = split_list(peers);
  result.node_timeout = std::chrono::duration_cast<milliseconds>(node_timeout);
  result.heartbeat
    = std::chrono::duration_cast<milliseconds>(heartbeat_interval);
  result.window = clamped(window);
  return result;
}

scope_options config::scope() const {
  scope_options result;
  result.max_waiters = clamped(max_waiters);
  result.probe_limit = clamped(probe_limit);
  result.deadlock_grace
    = std::chrono::duration_cast<milliseconds>(deadlock_grace);
  result.node_timeout = std::chrono::duration_cast<milliseconds>(node_timeout);
  return result;
}

/// A connection that is silent for longer than links tolerate is closed by CAF,
/// so that the next dial makes a new one instead of getting the dead one back.
void config::pass_on() {
  auto tick = std::max<caf::timespan>(shortest_tick, node_timeout / 8);
  compat::set_heartbeat(*this, tick, node_timeout + 2 * tick);
}

} // namespace pawl
