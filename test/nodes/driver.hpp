// What drives real nodes: three members (member.cpp) in processes of their own,
// told what to do by lines, and what they do wrong said and counted.

#pragma once

#include "pawl/test/nodes/private_network.hpp"
#include "pawl/test/support/child.hpp"
#include "pawl/test/support/free_port.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pawl::testing {

inline constexpr std::chrono::milliseconds node_timeout{1000};
inline constexpr std::chrono::seconds bound{30};

inline int faults = 0;

inline void fault(const std::string& x) {
  ++faults;
  fmt::print("FAULT: {}\n", x);
  std::fflush(stdout);
}

inline void say(const std::string& x) {
  fmt::print("{}\n", x);
  std::fflush(stdout);
}

/// A running member. What it does not answer is a fault, and says why.
class member : public child {
public:
  member(std::string name, std::vector<std::string> command)
    : child(std::move(command)), name_(std::move(name)) {
    // nop
  }

  /// The next line; empty if there is none in time.
  std::string hear() {
    try {
      return child::hear(bound);
    } catch (const std::runtime_error& why) {
      fault(fmt::format("node {} {}", name_, why.what()));
      return {};
    }
  }

  /// The next line, if there is one in time.
  std::optional<std::string> heard(std::chrono::milliseconds limit) {
    try {
      return child::hear(limit);
    } catch (const std::runtime_error&) {
      return std::nullopt;
    }
  }

  std::string ask(const std::string& x) {
    tell(x);
    return hear();
  }

  /// Asks until the answer is as expected.
  bool comes_to(const std::string& question, const std::string& answer) {
    auto end = std::chrono::steady_clock::now() + bound;
    std::string last;
    while (std::chrono::steady_clock::now() < end) {
      last = ask(question);
      if (last == answer)
        return true;
      if (last.empty())
        return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
    fault(fmt::format("node {} answers '{}' to '{}', not '{}'", name_, last,
                      question, answer));
    return false;
  }

private:
  std::string name_;
};

/// A directory that is removed if no fault was found.
class run_directory {
public:
  run_directory()
    : path_(std::filesystem::temp_directory_path() / "pawl-nodes-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("no directory for the histories");
  }

  run_directory(const run_directory&) = delete;

  ~run_directory() {
    std::error_code ignored;
    if (faults == 0)
      std::filesystem::remove_all(path_, ignored);
    else
      say("the histories are in " + path_);
  }

  [[nodiscard]] const std::string& path() const noexcept {
    return path_;
  }

private:
  std::string path_;
};

class three_nodes {
public:
  static inline const std::vector<std::string> names{"a", "b", "c"};

  /// Without a network the nodes are on loopback.
  three_nodes(std::string program, unsigned seed,
              private_network* network = nullptr)
    : network_(network), program_(std::move(program)), seed_(seed) {
    for (const auto& x : names) {
      addresses_[x] = network_ == nullptr
                        ? fmt::format("127.0.0.1:{}", free_port())
                        : network_->address(x) + ":7700";
      peers_ += (peers_.empty() ? "" : ",") + x + "=" + addresses_[x];
    }
  }

  void start(const std::string& name) {
    auto life = ++lives_;
    std::vector<std::string> command;
    if (network_ != nullptr)
      command = network_->inside(name);
    for (const auto& x : std::initializer_list<std::string>{
           program_, "--name", name, "--listen", addresses_[name], "--peers",
           peers_, "--history", history(name), "--counters", counters(),
           "--node-timeout", std::to_string(node_timeout.count()), "--seed",
           std::to_string(seed_ * 1000 + life)})
      command.push_back(x);
    members_[name] = std::make_unique<member>(name, std::move(command));
  }

  bool becomes_ready(const std::string& name) {
    auto x = (*this)[name].hear();
    return x == "ready"
           || trouble(fmt::format("node {} does not become ready: {}", name, x));
  }

  bool start_all() {
    for (const auto& x : names)
      start(x);
    return all_of([this](const auto& x) { return becomes_ready(x); })
           && all_see_all();
  }

  bool all_see_all() {
    return all_of([this](const auto& x) {
      return (*this)[x].comes_to("view", "view a b c");
    });
  }

  /// Ends all in good order.
  bool quit_all() {
    return all_of([this](const auto& x) {
      auto status = (*this)[x].quit(bound);
      return status == 0
             || trouble(fmt::format("node {} ends with {}", x, status));
    });
  }

  member& operator[](const std::string& name) {
    return *members_.at(name);
  }

  [[nodiscard]] std::string history(const std::string& name) const {
    return where_.path() + "/" + name + ".history";
  }

  [[nodiscard]] std::string counters() const {
    return where_.path() + "/counters";
  }

  static bool trouble(const std::string& x) {
    fault(x);
    return false;
  }

  template <class F>
  static bool all_of(F f) {
    return std::all_of(names.begin(), names.end(), f);
  }

protected:
  private_network* const network_;

private:
  run_directory where_;
  const std::string program_;
  const unsigned seed_;
  std::map<std::string, std::string> addresses_;
  std::string peers_;
  std::map<std::string, std::unique_ptr<member>> members_;
  unsigned lives_ = 0;
};

} // namespace pawl::testing
