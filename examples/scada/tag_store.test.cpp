// The store refuses and counts what its fences refuse, and tells listeners
// only of what passed.

#include "tag_store.hpp"

#include <gtest/gtest.h>

namespace scada {
namespace {

tag_update update(tag_id tag, double value, std::uint64_t epoch, time_ns time) {
  return {tag, value, quality::good, {0, epoch, 1, pawl::shared, time}};
}

struct heard {
  tag_updates updates;

  tag_store::listener listener() {
    return [this](const tag_updates& more) {
      updates.insert(updates.end(), more.begin(), more.end());
    };
  }
};

TEST(tag_store, refuses_and_counts_a_smaller_epoch) {
  tag_store store{2};
  heard all;
  store.subscribe_all(all.listener());
  EXPECT_EQ(store.write({update(0, 1, 2, 100)}), 0u);
  EXPECT_EQ(store.write({update(0, 2, 1, 200), update(1, 3, 1, 200)}), 1u);
  EXPECT_EQ(store.current(0).value, 1);
  EXPECT_EQ(store.current(1).value, 3);
  EXPECT_EQ(store.figures().stale_epoch, 1u);
  EXPECT_EQ(store.figures().written, 2u);
  EXPECT_EQ(all.updates.size(), 2u);
}

TEST(tag_store, tells_each_listener_what_it_subscribed_to) {
  tag_store store{3};
  heard some, all, local;
  store.subscribe({1, 2}, some.listener());
  store.subscribe_all(all.listener());
  store.subscribe_local(local.listener());
  store.write({update(0, 1, 1, 100), update(1, 1, 1, 100)});
  store.replicate(tag_updates{update(2, 1, 1, 100)});
  EXPECT_EQ(some.updates.size(), 2u);
  EXPECT_EQ(all.updates.size(), 3u);
  EXPECT_EQ(local.updates.size(), 2u);
}

TEST(tag_store, is_silent_after_unsubscribe) {
  tag_store store{1};
  heard some;
  auto id = store.subscribe({0}, some.listener());
  store.unsubscribe(id);
  store.write({update(0, 1, 1, 100)});
  EXPECT_TRUE(some.updates.empty());
}

TEST(tag_store, brings_a_fresh_store_up_to_date_and_fences_it) {
  tag_store old_store{10}, fresh{10};
  old_store.write({update(3, 7, 5, 100), update(4, 8, 5, 100)});
  fresh.replicate(old_store.images({0, 10}));
  EXPECT_EQ(fresh.current(3).value, 7);
  EXPECT_EQ(fresh.figures().replicated, 2u);
  EXPECT_EQ(fresh.write({update(4, 9, 4, 200)}), 1u);
}

TEST(tag_store, ignores_tags_that_it_does_not_have) {
  tag_store store{1};
  EXPECT_EQ(store.write({update(1, 1, 1, 100)}), 1u);
  store.replicate(tag_images{{update(9, 1, 1, 100), {}}});
  EXPECT_EQ(store.figures().written, 0u);
}

} // namespace
} // namespace scada
