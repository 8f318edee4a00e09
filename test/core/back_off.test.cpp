#include "pawl/core/back_off.hpp"

#include <gtest/gtest.h>

using namespace pawl;
using namespace std::chrono_literals;

TEST(back_off, draws_between_half_of_the_step_and_the_whole_and_doubles_it) {
  for (std::uint64_t random :
       {std::uint64_t{0}, std::uint64_t{12345}, ~std::uint64_t{0}}) {
    back_off x{100ns, 1000ns};
    for (auto step : {100ns, 200ns, 400ns, 800ns, 1000ns, 1000ns}) {
      auto delay = x.next(random);
      EXPECT_GE(delay, step / 2);
      EXPECT_LE(delay, step);
    }
  }
}

TEST(back_off, reaches_both_ends_of_its_range) {
  EXPECT_EQ((back_off{100ns, 100ns}.next(0)), 50ns);
  EXPECT_EQ((back_off{100ns, 100ns}.next(50)), 100ns);
}

TEST(back_off, is_never_longer_than_its_most_and_does_not_overflow) {
  back_off x{5s, 1s};
  EXPECT_LE(x.next(~std::uint64_t{0}), 1s);
  back_off y{0ns, 0ns};
  EXPECT_EQ(y.next(7), 0ns);
  back_off z{std::chrono::nanoseconds::max(), std::chrono::nanoseconds::max()};
  EXPECT_GT(z.next(7), 0ns);
  EXPECT_GT(z.next(7), 0ns);
}
