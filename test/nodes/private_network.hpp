// private_network: a network of its own for each of some nodes, joined by a
// bridge, for tests that cut links. What is sent over a cut link is lost, and
// nobody is told, as on a real network:
//
//   node a                      node b
//   eth0 10.199.0.1             eth0 10.199.0.2
//      |                           |
//      +----- bridge of the hub ---+
//
// A way from one node to another is cut by a neighbour entry that leads nowhere:
// iproute2 is all it takes, and one way can be cut and the other left. Each
// network is a namespace that lives as long as a process which does nothing
// else, and which ends with this one: nothing is left behind, however it ends.
//
// Takes root and network namespaces, which a container may not have.

#pragma once

#include "pawl/test/support/child.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pawl::testing {

class private_network {
public:
  /// @throws std::runtime_error it is not permitted here, or iproute2 is missing
  explicit private_network(const std::vector<std::string>& names) {
    in_hub("ip link add name hub type bridge");
    in_hub("ip link set hub up");
    for (const auto& name : names) {
      auto& x = *hosts_.emplace(name, std::make_unique<host>()).first->second;
      auto number = hosts_.size();
      x.address = fmt::format("10.199.0.{}", number);
      in_hub(fmt::format("ip link add name to{0} type veth peer name eth0 netns "
                         "{1}",
                         number, x.keeper.pid()));
      in_hub(fmt::format("ip link set to{} master hub up", number));
      in(x, fmt::format("ip addr add {}/24 dev eth0", x.address));
      in(x, "ip link set lo up");
      in(x, "ip link set eth0 up");
    }
  }

  [[nodiscard]] const std::string& address(const std::string& name) const {
    return hosts_.at(name)->address;
  }

  /// What has a command run in the network of a node, as its first words.
  [[nodiscard]] std::vector<std::string> inside(const std::string& name) const {
    return {"nsenter", "-t", std::to_string(hosts_.at(name)->keeper.pid()), "-n"};
  }

  /// What `from` sends to `to` is lost from now on.
  void cut_way(const std::string& from, const std::string& to) {
    in(*hosts_.at(from),
       fmt::format("ip neigh replace {} lladdr 02:00:00:00:00:ff dev eth0 nud "
                   "permanent",
                   address(to)));
  }

  /// It arrives again.
  void mend_way(const std::string& from, const std::string& to) {
    in(*hosts_.at(from), fmt::format("ip neigh del {} dev eth0", address(to)));
  }

private:
  /// Keeps a network alive.
  struct host {
    host() : keeper({"unshare", "-n", "sh", "-c", "echo ready; exec cat"}) {
      if (keeper.hear(std::chrono::seconds{10}) != "ready")
        throw std::runtime_error("no network namespace");
    }
    child keeper;
    std::string address;
  };

  static void in(const host& x, const std::string& command) {
    auto all = fmt::format("nsenter -t {} -n {}", x.keeper.pid(), command);
    if (std::system(all.c_str()) != 0)
      throw std::runtime_error("cannot " + command);
  }

  void in_hub(const std::string& command) {
    in(hub_, command);
  }

  host hub_;
  std::map<std::string, std::unique_ptr<host>> hosts_;
};

} // namespace pawl::testing
