#include "pawl/core/node_order.hpp"

#include "pawl/core/ensure.hpp"
#include "pawl/core/term.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace pawl {

namespace {

/// The zero byte keeps ("a", "bc") and ("ab", "c") apart.
std::uint64_t weight(std::string_view scope, std::string_view node) {
  std::string both{scope};
  both += '\0';
  both += node;
  return hash_bytes(std::as_bytes(std::span{both}));
}

} // namespace

node_order::node_order(std::string_view scope,
                       std::span<const std::string> names) {
  ensure(names.size() <= max_nodes, "a cluster has at most 128 nodes");
  std::vector<std::pair<std::uint64_t, std::size_t>> heaviest_first;
  for (std::size_t i = 0; i < names.size(); ++i)
    heaviest_first.emplace_back(~weight(scope, names[i]), i);
  std::sort(heaviest_first.begin(), heaviest_first.end());
  ranks_.resize(names.size());
  for (std::size_t i = 0; i < heaviest_first.size(); ++i)
    ranks_[heaviest_first[i].second] = i;
}

void node_order::sort(std::vector<node_slot>& nodes) const {
  std::sort(nodes.begin(), nodes.end(),
            [this](node_slot a, node_slot b) { return before(a, b); });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

} // namespace pawl
