// Names of things: nodes, sessions, requests, epochs. Small values, no logic.
//
// None of them is ever reused for something else: what a name once meant it
// means for ever, so a late message can be recognised instead of believed.

#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace pawl {

/// The place of a node's name in the sorted list of all configured names. The
/// list is the same on all nodes (the handshake checks it), hence so is the
/// slot. It also is the lowest bits of the tokens that the node issues.
enum class node_slot : std::uint16_t {};

constexpr std::size_t max_nodes = 128;

/// No node: for a scope that is not part of a cluster yet, and "nobody".
constexpr node_slot no_node = static_cast<node_slot>(0xffff);

constexpr std::uint16_t to_index(node_slot x) noexcept {
  return static_cast<std::uint16_t>(x);
}

/// 128 random bits, drawn once per start of a node.
struct incarnation {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;
  friend auto operator<=>(const incarnation&, const incarnation&) = default;
};

/// One life of the link between two nodes; drawn at each handshake, closed for
/// ever when either side declares the other down. 0 is never drawn.
using link_epoch = std::uint64_t;

/// A session, cluster-wide: the node where it lives and a number that this
/// node never gives out again.
struct session_id {
  node_slot home = no_node;
  std::uint64_t serial = 0;
  friend auto operator<=>(const session_id&, const session_id&) = default;
};

/// A request, cluster-wide. What it holds keeps its name: "the hold that came
/// from this request".
struct request_id {
  node_slot home = no_node;
  std::uint64_t serial = 0;
  friend auto operator<=>(const request_id&, const request_id&) = default;
};

/// Counts how often a request was asked anew (a view changed, a cycle of
/// partial grants was broken). An answer to an older attempt is not believed.
using attempt_number = std::uint32_t;

/// How old a session is, for choosing a victim: the Lamport time of its home
/// when it took the first lock of its present set, ties by session id. The
/// *largest* age is the *youngest* session; one that holds nothing is younger
/// than any that holds something. Compared across nodes without any clock.
struct session_age {
  static constexpr std::uint64_t holds_nothing = ~std::uint64_t{0};
  std::uint64_t lamport = holds_nothing;
  session_id who;
  friend auto operator<=>(const session_age&, const session_age&) = default;
};

/// Renders as `node-slot/serial`, e.g. "2/1048577".
std::string to_string(const session_id& x);
std::string to_string(const request_id& x);

} // namespace pawl

template <>
struct std::hash<pawl::session_id> {
  std::size_t operator()(const pawl::session_id& x) const noexcept {
    return (x.serial * 0x9e3779b97f4a7c15ull) ^ pawl::to_index(x.home);
  }
};

template <>
struct std::hash<pawl::request_id> {
  std::size_t operator()(const pawl::request_id& x) const noexcept {
    return (x.serial * 0x9e3779b97f4a7c15ull) ^ pawl::to_index(x.home);
  }
};
