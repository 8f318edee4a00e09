// The pool of blocks: every block is one's own, and memory goes back.

#include "pawl/core/block_pool.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#ifdef __GLIBC__
#  include <malloc.h>
#endif

namespace {

using pawl::block_pool;

TEST(block_pool, blocks_are_aligned_and_distinct) {
  std::set<void*> all;
  for (int i = 0; i < 3000; ++i) {
    auto* block = block_pool::take();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    EXPECT_TRUE(all.insert(block).second);
    std::memset(block, i, block_pool::block_size);
  }
  for (auto* block : all)
    block_pool::give(block);
  block_pool::flush();
}

TEST(block_pool, a_block_that_was_given_is_taken_again_first) {
  auto* first = block_pool::take();
  block_pool::give(first);
  auto* again = block_pool::take();
#if !defined(__SANITIZE_ADDRESS__)
  EXPECT_EQ(again, first) << "it is the one that is in the cache";
#endif
  block_pool::give(again);
  block_pool::flush();
}

TEST(block_pool, all_come_back_when_magazines_are_flushed) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  std::vector<void*> all;
  for (int i = 0; i < 10'000; ++i)
    all.push_back(block_pool::take());
  for (auto* block : all)
    block_pool::give(block);
  EXPECT_LE(block_pool::blocks_out(), before + 200)
    << "a magazine keeps two fillings at most";
  block_pool::flush();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) \
  && !defined(__SANITIZE_THREAD__)
TEST(block_pool, slabs_go_back_to_the_system) {
  // Slabs may lie in the heap or be mapped, as malloc likes.
  auto in_use = [] {
    auto x = mallinfo2();
    return x.uordblks + x.hblkhd;
  };
  constexpr std::size_t spare = 8 * 2 * 64 * 1024; // some slabs stay
  block_pool::flush();
  auto before = in_use();
  std::vector<void*> all;
  all.reserve(100'000);
  auto empty = in_use();
  for (int i = 0; i < 100'000; ++i)
    all.push_back(block_pool::take());
  EXPECT_GE(in_use() + spare, empty + all.size() * block_pool::block_size);
  for (auto* block : all)
    block_pool::give(block);
  block_pool::flush();
  std::vector<void*>{}.swap(all);
  EXPECT_LE(in_use(), before + spare);
}
#endif

TEST(block_pool, the_end_of_a_thread_brings_back_its_magazine) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  std::thread{[] { block_pool::give(block_pool::take()); }}.join();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

TEST(block_pool, blocks_taken_by_one_thread_are_given_back_by_another) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  std::vector<void*> all;
  std::thread{[&] {
    for (int i = 0; i < 5000; ++i)
      all.push_back(block_pool::take());
  }}.join();
  std::thread{[&] {
    for (auto* block : all)
      block_pool::give(block);
  }}.join();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

/// Threads take, write, exchange over a shared heap, check and give back.
TEST(block_pool, threads_that_exchange_blocks_never_share_one) {
  struct content {
    std::uint64_t owner;
    std::uint64_t serial;
  };
  block_pool::flush();
  auto before = block_pool::blocks_out();
  std::mutex lock;
  std::vector<std::pair<content*, content>> market;
  auto work = [&](std::uint64_t self) {
    std::mt19937_64 random{self};
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      auto* fresh = new (block_pool::take()) content{self, i};
      std::pair<content*, content> other{nullptr, {}};
      {
        std::lock_guard guard{lock};
        market.emplace_back(fresh, *fresh);
        if (market.size() > 300 || random() % 2 == 0) {
          auto& at = market[random() % market.size()];
          std::swap(at, market.back());
          other = market.back();
          market.pop_back();
        }
      }
      if (other.first == nullptr)
        continue;
      EXPECT_EQ(other.first->owner, other.second.owner);
      EXPECT_EQ(other.first->serial, other.second.serial);
      block_pool::give(other.first);
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t i = 1; i <= 4; ++i)
    threads.emplace_back(work, i);
  for (auto& x : threads)
    x.join();
  for (auto& x : market)
    block_pool::give(x.first);
  block_pool::flush();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

TEST(block_pool, a_load_that_swings_keeps_nothing) {
  block_pool::flush();
  auto before = block_pool::blocks_out();
  std::mt19937 random{9};
  std::vector<void*> held;
  for (int round = 0; round < 50; ++round) {
    auto target = random() % 8000;
    while (held.size() < target)
      held.push_back(block_pool::take());
    while (held.size() > target) {
      std::swap(held[random() % held.size()], held.back());
      block_pool::give(held.back());
      held.pop_back();
    }
  }
  for (auto* block : held)
    block_pool::give(block);
  block_pool::flush();
  EXPECT_EQ(block_pool::blocks_out(), before);
}

} // namespace
