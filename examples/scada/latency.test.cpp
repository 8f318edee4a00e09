#include "latency.hpp"

#include <gtest/gtest.h>

namespace scada {
namespace {

TEST(latency, is_zero_when_there_was_nothing) {
  latency x;
  EXPECT_EQ(x.take_p99(), 0);
}

TEST(latency, leaves_out_the_slowest_of_a_hundred) {
  latency x;
  for (int i = 0; i < 99; ++i)
    x.record(1000);
  x.record(1'000'000'000);
  auto p99 = x.take_p99();
  EXPECT_GE(p99, 1000);
  EXPECT_LE(p99, 1125);
}

TEST(latency, is_at_most_an_eighth_too_large_and_empty_afterwards) {
  latency x;
  for (time_ns span : {1l, 7l, 8l, 9l, 100l, 12345l, 999'999'999'999l}) {
    x.record(span);
    auto p99 = x.take_p99();
    EXPECT_GE(p99, span);
    EXPECT_LE(p99, span + span / 8);
    EXPECT_EQ(x.take_p99(), 0);
  }
}

} // namespace
} // namespace scada
