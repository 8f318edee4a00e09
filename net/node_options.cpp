#include "pawl/net/node_options.hpp"

#include "pawl/net/wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace pawl {

namespace {

using namespace std::chrono_literals;

std::string_view trimmed(std::string_view x) {
  auto first = x.find_first_not_of(" \t");
  if (first == std::string_view::npos)
    return {};
  return x.substr(first, x.find_last_not_of(" \t") - first + 1);
}

/// host:port, or [host]:port for a host with colons.
std::optional<endpoint> parse_endpoint(std::string_view x) {
  auto colon = x.rfind(':');
  if (colon == std::string_view::npos)
    return std::nullopt;
  auto host = x.substr(0, colon);
  auto digits = x.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return std::nullopt;
  endpoint result;
  auto* end = digits.data() + digits.size();
  auto [stop, error] = std::from_chars(digits.data(), end, result.port);
  auto blank = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
  if (error != std::errc{} || stop != end || host.empty() || host.size() > 255
      || std::any_of(host.begin(), host.end(), blank))
    return std::nullopt;
  result.host = host;
  return result;
}

std::optional<std::string> fault_of_name(std::string_view x) {
  if (x.empty())
    return "a node needs a name";
  if (x.size() > wire::max_node_name)
    return fmt::format("a name has at most {} bytes", wire::max_node_name);
  auto bad = [](char c) {
    auto b = static_cast<unsigned char>(c);
    return b <= 0x20 || b == 0x7f || c == '=' || c == ',' || c == '\'';
  };
  if (std::any_of(x.begin(), x.end(), bad))
    return "a name has no blanks, commas, quotes or equal signs";
  return std::nullopt;
}

std::string fault(std::string_view option, std::string_view value,
                  std::string_view why) {
  return fmt::format("pawl.{} = '{}': {}", option, value, why);
}

} // namespace

std::string to_string(const endpoint& x) {
  if (x.host.find(':') != std::string::npos)
    return fmt::format("[{}]:{}", x.host, x.port);
  return fmt::format("{}:{}", x.host, x.port);
}

std::variant<cluster_plan, std::string> make_plan(const node_options& x) {
  if (auto why = fault_of_name(x.name))
    return fault("name", x.name, *why);
  cluster_plan result;
  auto listen = parse_endpoint(x.listen);
  if (!listen)
    return fault("listen", x.listen, "expected host:port");
  result.listen = *listen;

  std::map<std::string, endpoint> peers;
  for (const auto& entry : x.peers) {
    auto equal = entry.find('=');
    if (equal == std::string::npos)
      return fault("peers", entry, "expected name=host:port");
    std::string name{trimmed(std::string_view{entry}.substr(0, equal))};
    auto where
      = parse_endpoint(trimmed(std::string_view{entry}.substr(equal + 1)));
    if (auto why = fault_of_name(name))
      return fault("peers", entry, *why);
    if (!where || where->port == 0)
      return fault("peers", entry, "expected name=host:port");
    if (!peers.emplace(name, *where).second)
      return fault("peers", entry, "the name is in the list twice");
  }
  peers.erase(x.name);
  for (const auto& [name, where] : peers) {
    for (const auto& [other, there] : peers)
      if (name < other && to_string(where) == to_string(there))
        return fault(
          "peers", to_string(where),
          fmt::format("'{}' and '{}' cannot both be there", name, other));
    if (to_string(where) == to_string(result.listen))
      return fault("peers", fmt::format("{}={}", name, to_string(where)),
                   "this node listens there itself");
  }
  peers.emplace(x.name, endpoint{});
  if (peers.size() > max_nodes)
    return fault("peers", fmt::format("{} nodes", peers.size()),
                 fmt::format("a cluster has at most {}", max_nodes));
  for (auto& [name, where] : peers) {
    if (name == x.name)
      result.self = static_cast<node_slot>(result.names.size());
    result.names.push_back(name);
    result.addresses.push_back(std::move(where));
  }

  auto ms = [](std::chrono::milliseconds d) {
    return fmt::format("{} ms", d.count());
  };
  result.node_timeout = x.node_timeout;
  if (x.node_timeout < 40ms || x.node_timeout > 1h)
    return fault("node-timeout", ms(x.node_timeout),
                 "expected 40 ms to one hour");
  result.heartbeat = x.heartbeat == 0ms ? x.node_timeout / 8 : x.heartbeat;
  if (result.heartbeat < 5ms || result.heartbeat > x.node_timeout / 4)
    return fault("heartbeat-interval", ms(x.heartbeat),
                 fmt::format("expected 5 ms to a quarter of pawl.node-timeout, "
                             "which is {}",
                             ms(x.node_timeout)));
  result.window = x.window;
  if (x.window == 0 || x.window > 65'536)
    return fault("window", std::to_string(x.window), "expected 1 to 65536");
  return result;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> result;
  while (!text.empty()) {
    auto comma = text.find(',');
    auto item = trimmed(text.substr(0, comma));
    if (!item.empty())
      result.emplace_back(item);
    text.remove_prefix(comma == std::string_view::npos ? text.size()
                                                       : comma + 1);
  }
  return result;
}

} // namespace pawl
