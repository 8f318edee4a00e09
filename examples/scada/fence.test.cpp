// The fence lets writes pass in the order of their rights, not of their
// arrival.

#include "fence.hpp"

#include <gtest/gtest.h>

namespace scada {
namespace {

enum : service_id { device, first_operator, second_operator };

write_stamp heavy(std::uint64_t epoch, std::uint64_t token, time_ns time) {
  return {device, epoch, token, pawl::shared, time};
}

write_stamp rare(service_id who, std::uint64_t token, time_ns time) {
  return {who, 1, token, pawl::exclusive, time};
}

TEST(fence, refuses_the_old_leader_once_the_new_one_has_written) {
  fence x;
  EXPECT_EQ(x.judge(heavy(1, 5, 100)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(2, 5, 200)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(1, 9, 300)), verdict::stale_epoch);
}

TEST(fence, takes_the_new_leader_although_its_shared_lock_token_is_smaller) {
  fence x;
  EXPECT_EQ(x.judge(heavy(1, 500, 100)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(2, 300, 200)), verdict::pass);
  EXPECT_EQ(x.judge(rare(first_operator, 301, 300)), verdict::pass);
}

TEST(fence, takes_equal_tokens_of_shared_grants) {
  fence x;
  EXPECT_EQ(x.judge(rare(first_operator, 7, 50)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(1, 7, 100)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(1, 7, 200)), verdict::pass);
}

TEST(fence, refuses_an_exclusive_write_that_arrives_after_the_next_shared_one) {
  fence x;
  EXPECT_EQ(x.judge(heavy(1, 7, 100)), verdict::pass);
  EXPECT_EQ(x.judge(rare(first_operator, 7, 50)), verdict::overtaken);
}

TEST(fence, refuses_a_shared_write_that_arrives_after_the_exclusive_one) {
  fence x;
  EXPECT_EQ(x.judge(rare(first_operator, 8, 200)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(1, 7, 100)), verdict::overtaken);
}

TEST(fence, orders_operators_by_lock_token_whatever_their_epochs) {
  fence x;
  EXPECT_EQ(x.judge(rare(first_operator, 8, 100)), verdict::pass);
  EXPECT_EQ(x.judge(rare(second_operator, 7, 200)), verdict::overtaken);
  EXPECT_EQ(x.judge(rare(second_operator, 9, 300)), verdict::pass);
}

TEST(fence, recognises_a_repetition) {
  fence x;
  EXPECT_EQ(x.judge(heavy(1, 5, 100)), verdict::pass);
  EXPECT_EQ(x.judge(heavy(1, 5, 100)), verdict::repeated);
  EXPECT_EQ(x.judge(heavy(1, 5, 90)), verdict::repeated);
}

TEST(fence, fences_with_what_it_has_only_learned) {
  fence x;
  x.learn(heavy(2, 5, 100));
  x.learn(heavy(1, 9, 900));
  EXPECT_EQ(x.judge(heavy(1, 9, 901)), verdict::stale_epoch);
  EXPECT_EQ(x.judge(heavy(2, 5, 101)), verdict::pass);
  EXPECT_EQ(x.marks().size(), 1u);
}

} // namespace
} // namespace scada
