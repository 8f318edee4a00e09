// Names: their order is the same on all nodes, and age says who is youngest.

#include "pawl/core/ids.hpp"

#include <gtest/gtest.h>

#include <unordered_set>

namespace {

using pawl::node_slot;
using pawl::request_id;
using pawl::session_age;
using pawl::session_id;

constexpr auto home(unsigned x) {
  return static_cast<node_slot>(x);
}

TEST(ids, are_compared_by_home_then_serial) {
  EXPECT_LT((session_id{home(1), 9}), (session_id{home(2), 1}));
  EXPECT_LT((session_id{home(1), 1}), (session_id{home(1), 2}));
  EXPECT_EQ((request_id{home(3), 4}), (request_id{home(3), 4}));
  EXPECT_NE((request_id{home(3), 4}), (request_id{home(4), 4}));
}

TEST(ids, read_as_slot_and_serial) {
  EXPECT_EQ(to_string(session_id{home(2), 1'048'577}), "2/1048577");
  EXPECT_EQ(to_string(request_id{home(0), 0}), "0/0");
}

TEST(ids, no_node_is_none_of_the_nodes) {
  EXPECT_GE(to_index(pawl::no_node), pawl::max_nodes);
  EXPECT_EQ(session_id{}.home, pawl::no_node);
}

TEST(ids, hashes_differ_for_neighbours) {
  std::unordered_set<std::size_t> seen;
  for (unsigned node = 0; node < pawl::max_nodes; ++node)
    for (std::uint64_t serial = 1; serial <= 64; ++serial)
      seen.insert(std::hash<session_id>{}({home(node), serial}));
  EXPECT_EQ(seen.size(), pawl::max_nodes * 64);
}

TEST(ids, the_later_session_is_the_younger_and_has_the_larger_age) {
  session_age elder{5, {home(2), 7}};
  session_age younger{6, {home(1), 1}};
  EXPECT_LT(elder, younger);
}

TEST(ids, ties_of_age_are_broken_by_session) {
  EXPECT_LT((session_age{5, {home(1), 7}}), (session_age{5, {home(2), 1}}));
}

TEST(ids, who_holds_nothing_is_younger_than_all_who_do) {
  session_age idle{session_age::holds_nothing, {home(0), 1}};
  session_age latest{session_age::holds_nothing - 1, {home(127), 99}};
  EXPECT_LT(latest, idle);
  EXPECT_EQ(session_age{}.lamport, session_age::holds_nothing);
}

} // namespace
