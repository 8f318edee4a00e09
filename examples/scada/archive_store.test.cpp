// What was archived can be read back, across shards and after a restart.

#include "archive_store.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace scada {
namespace {

TEST(archive_store, returns_the_values_of_a_tag_in_the_order_of_their_times) {
  std::string directory = testing::TempDir() + "scada-archive-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  constexpr auto shard = archive_store::shard_length;
  {
    auto store = archive_store::open(directory);
    ASSERT_TRUE(store) << store.error();
    for (tag_id tag : {1u, 2u})
      for (int i = 0; i < 10; ++i)
        (*store)->add({{tag,
                        double(i),
                        quality::good,
                        {0, 1, 1, pawl::shared, i * shard / 4}}});
  }
  auto store = archive_store::open(directory);
  ASSERT_TRUE(store) << store.error();
  auto values = (*store)->values(2, shard / 4, 2 * shard);
  ASSERT_EQ(values.size(), 7u);
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(values[i], std::pair(time_ns{(i + 1) * shard / 4}, i + 1.0));
  std::filesystem::remove_all(directory);
}

TEST(archive_store, says_in_a_sentence_why_it_cannot_open) {
  auto store = archive_store::open("/proc/nowhere");
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().find("/proc/nowhere"), std::string::npos);
}

} // namespace
} // namespace scada
