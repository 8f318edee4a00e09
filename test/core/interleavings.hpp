// interleavings: runs a few scripts in all orders in which their steps can come.
//
// A script is a fiber. It gives way before each guard bit that it takes (core is
// compiled with PAWL_YIELD_HOOK), before each operation that it asks to, and
// where it waits. What lies between is one step: a section under a bit is never
// interrupted, so no bit is ever found taken, and a step sees what a thread
// would see between two sections.
//
// A script begins with `give_way` or `await`. All schedules are walked depth first; each is run from the start. A bound on
// preemptions (switching away from a script that could go on) keeps larger
// plays within bounds; most faults of this kind need two or three of them.

#pragma once

#include "pawl/core/guard_bit.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#  include <sanitizer/common_interface_defs.h>
#endif

namespace pawl::test {

class interleavings {
public:
  using script = std::function<void()>;

  static constexpr unsigned all = ~0u;

  explicit interleavings(unsigned preemptions = all)
    : preemptions_(preemptions) {
    // nop
  }

  /// One play: `set_up` returns its scripts; `each` is called after each step,
  /// `at_end` when all scripts have ended.
  struct play {
    std::vector<script> scripts;
    std::function<void()> each;
    std::function<void()> at_end;
  };

  /// Returns the number of schedules, having run them all, or as many as it
  /// took to find one that fails.
  std::size_t explore(const std::function<play()>& set_up) {
    std::size_t schedules = 0;
    do {
      ++schedules;
      run(set_up());
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "schedule " << schedules << ": " << schedule();
        break;
      }
    } while (next());
    return schedules;
  }

  /// In a script: others may go on here.
  static void give_way() {
    current_->ready_[current_->running_] = nullptr;
    current_->leave();
  }

  /// In a script: goes on when `f()` is true.
  static void await(std::function<bool()> f) {
    current_->ready_[current_->running_] = std::move(f);
    current_->leave();
  }

  /// Whether all scripts but `spare` have ended.
  static bool only_left(std::size_t spare) {
    std::size_t left = 0;
    for (auto done : current_->done_)
      left += !done;
    return left <= spare;
  }

private:
  struct point {
    std::size_t options;
    std::size_t taken;
  };

  static constexpr std::size_t stack_size = 128 * 1024;

  void run(play x) {
    current_ = this;
    auto count = x.scripts.size();
    scripts_ = std::move(x.scripts);
    ready_.assign(count, nullptr);
    done_.assign(count, false);
    contexts_.resize(count);
    while (stacks_.size() < count)
      stacks_.push_back(std::make_unique<char[]>(stack_size));
    for (std::size_t i = 0; i < count; ++i) {
      ::getcontext(&contexts_[i]);
      contexts_[i].uc_stack.ss_sp = stacks_[i].get();
      contexts_[i].uc_stack.ss_size = stack_size;
      contexts_[i].uc_link = nullptr;
      ::makecontext(&contexts_[i], &interleavings::entry, 0);
    }
    trace_.clear();
    depth_ = 0;
    // A script begins by giving way or waiting: nothing has happened yet.
    for (std::size_t i = 0; i < count; ++i)
      step(i);
    auto before = count;
    unsigned used = 0;
    std::vector<std::size_t> able;
    for (;;) {
      able.clear();
      auto can = [&](std::size_t i) {
        return !done_[i] && (!ready_[i] || ready_[i]());
      };
      // Who ran last comes first: any other choice is a preemption.
      auto goes_on = before < count && can(before);
      if (goes_on)
        able.push_back(before);
      if (!goes_on || used < preemptions_)
        for (std::size_t i = 0; i < count; ++i)
          if (i != before && can(i))
            able.push_back(i);
      if (able.empty())
        break;
      auto which = choose(able.size());
      used += goes_on && which > 0;
      before = able[which];
      trace_.push_back(before);
      step(before);
      if (x.each)
        x.each();
    }
    std::size_t stuck = 0;
    for (std::size_t i = 0; i < count; ++i)
      stuck += !done_[i];
    EXPECT_EQ(stuck, 0u) << "scripts that wait for ever";
    if (stuck == 0 && x.at_end)
      x.at_end();
    guard_bit_hook = nullptr;
  }

  std::size_t choose(std::size_t options) {
    if (depth_ == path_.size())
      path_.push_back({options, 0});
    auto& x = path_[depth_++];
    EXPECT_EQ(x.options, options) << "a play must be the same each time";
    return x.taken < options ? x.taken : 0;
  }

  bool next() {
    while (!path_.empty() && path_.back().taken + 1 >= path_.back().options)
      path_.pop_back();
    if (path_.empty())
      return false;
    ++path_.back().taken;
    return true;
  }

  std::string schedule() const {
    std::string result;
    for (auto x : trace_)
      result += std::to_string(x);
    return result;
  }

  void step(std::size_t i) {
    running_ = i;
    guard_bit_hook = &interleavings::give_way;
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stacks_[i].get(), stack_size);
    ::swapcontext(&main_, &contexts_[i]);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    ::swapcontext(&main_, &contexts_[i]);
#endif
    guard_bit_hook = nullptr;
  }

  void leave() {
    auto i = running_;
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(done_[i] ? nullptr : &fake, main_stack_,
                                   main_size_);
    ::swapcontext(&contexts_[i], &main_);
    __sanitizer_finish_switch_fiber(fake, &main_stack_, &main_size_);
#else
    ::swapcontext(&contexts_[i], &main_);
#endif
  }

  static void entry() {
    auto* self = current_;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self->main_stack_,
                                    &self->main_size_);
#endif
    auto i = self->running_;
    self->scripts_[i]();
    self->scripts_[i] = nullptr;
    self->done_[i] = true;
    self->leave();
  }

  static inline interleavings* current_ = nullptr;

  const unsigned preemptions_;
  std::vector<script> scripts_;
  std::vector<std::function<bool()>> ready_;
  std::vector<char> done_;
  std::vector<ucontext_t> contexts_;
  std::vector<std::unique_ptr<char[]>> stacks_;
  ucontext_t main_{};
  const void* main_stack_ = nullptr;
  std::size_t main_size_ = 0;
  std::size_t running_ = 0;
  std::vector<point> path_;
  std::size_t depth_ = 0;
  std::vector<std::size_t> trace_;
};

} // namespace pawl::test
