// node_order: in which order the nodes of a scope are asked.
//
// By rendezvous weight of scope name and node name (Thaler, Ravishankar: "A
// name-based mapping scheme for rendezvous", 1996): each node has a weight, a
// hash of the two names, and the lead of a set of nodes is the one with the
// largest. So the lead depends on the node set only, never on the term: rivals
// over the same nodes meet at the same lead, whatever their terms, and wait
// there holding nothing elsewhere. Scopes differ in their order, which spreads
// the work of leading.
//
// Immutable after construction, hence thread-safe. rank() is a look-up.

#pragma once

#include "pawl/core/ids.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pawl {

class node_order {
public:
  /// `names` are all configured names, sorted: the place of a name is the slot
  /// of its node.
  node_order(std::string_view scope, std::span<const std::string> names);

  /// Smaller is asked earlier. Slots that are not configured come last.
  [[nodiscard]] std::size_t rank(node_slot x) const noexcept {
    auto index = to_index(x);
    return index < ranks_.size() ? ranks_[index] : ranks_.size() + index;
  }

  [[nodiscard]] bool before(node_slot a, node_slot b) const noexcept {
    return rank(a) < rank(b);
  }

  /// Brings nodes into this order and removes doubles. The first is the lead.
  void sort(std::vector<node_slot>& nodes) const;

  /// How many nodes are configured.
  [[nodiscard]] std::size_t size() const noexcept {
    return ranks_.size();
  }

private:
  std::vector<std::size_t> ranks_;
};

} // namespace pawl
