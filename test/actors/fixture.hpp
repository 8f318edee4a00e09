// What the tests of actors share: a system with one scope, and puppets: actors
// that do what a test tells them.

#pragma once

#include "pawl/actors/caf_compat.hpp"
#include "pawl/actors/cancel.hpp"
#include "pawl/actors/leadership.hpp"
#include "pawl/actors/misuse.hpp"
#include "pawl/actors/scope.hpp"
#include "pawl/actors/scope_state.hpp"
#include "pawl/actors/type_ids.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace pawl::testing {

using namespace std::chrono_literals;

/// Waits for a condition, with a bound; false if it does not come true.
template <class F>
bool eventually(F condition, std::chrono::milliseconds limit = 20s) {
  auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// Where the stack stands. Not the address of a local: a sanitizer may keep that
/// elsewhere.
[[gnu::noinline]] inline const char* stack_place() {
  return static_cast<const char*>(__builtin_frame_address(0));
}

inline std::size_t stack_since(const char* bottom) {
  auto* here = stack_place();
  return static_cast<std::size_t>(here > bottom ? here - bottom
                                                : bottom - here);
}

struct task : compat::deliverable {
  std::function<void(caf::event_based_actor*)> f;
};

/// Does what it is told, and keeps what it is given.
class puppet : public caf::event_based_actor {
public:
  explicit puppet(caf::actor_config& cfg) : caf::event_based_actor(cfg) {
    // nop
  }

  caf::behavior make_behavior() override {
    return {
      [this](const compat::local_ptr& x) {
        static_cast<task&>(*x.ptr).f(this);
      },
    };
  }

  std::vector<lock> held;
  std::optional<session> own;
};

inline void tell(const caf::actor& who,
                 std::function<void(caf::event_based_actor*)> f) {
  auto x = std::make_shared<task>();
  x->f = std::move(f);
  compat::anon_send(who, compat::local_ptr{std::move(x)});
}

inline void tell_puppet(const caf::actor& who, std::function<void(puppet*)> f) {
  tell(who, [f = std::move(f)](caf::event_based_actor* self) {
    f(static_cast<puppet*>(self));
  });
}

/// How a request ended, for a test that waits for it.
struct result {
  std::atomic<outcome> how{outcome::pending};
  std::mutex lock_;
  std::string message;
  fencing_token token = 0;

  void ended(const failure& why) {
    {
      std::lock_guard guard{lock_};
      message = why.message;
    }
    how = why.why;
  }

  outcome get(std::chrono::milliseconds limit = 20s) {
    eventually([this] { return how.load() != outcome::pending; }, limit);
    return how;
  }
};

using result_ptr = std::shared_ptr<result>;

/// Lets a puppet ask; it keeps the lock.
using ask_function = std::function<request<lock>(const session&)>;

inline result_ptr ask(const caf::actor& who, const scope& where,
                      ask_function f) {
  auto out = std::make_shared<result>();
  tell_puppet(who, [=](puppet* self) {
    f(where.activity(self))
      .then(
        [self, out](lock held) {
          out->token = held.token();
          self->held.push_back(std::move(held));
          out->how = outcome::granted;
        },
        [out](const failure& why) { out->ended(why); });
  });
  return out;
}

inline result_ptr ask(const caf::actor& who, const scope& where,
                      const std::string& what, lock_mode mode) {
  return ask(who, where, [=](const session& s) { return s.lock(what, mode); });
}

class actors_test : public ::testing::Test {
protected:
  actors_test() {
    compat::init_meta<caf::id_block::pawl_actors>();
    cfg_.emplace();
    compat::add_types<caf::id_block::pawl_actors>(*cfg_);
    compat::use_sharing_scheduler(*cfg_);
    system_.emplace(*cfg_);
    tags_.emplace(open_local_scope(*system_, "tags"));
    EXPECT_TRUE(tags_->wait_ready(20s));
  }

  ~actors_test() override {
    close();
  }

  void close() {
    puppets_.clear();
    if (tags_) {
      // What is left would be found nowhere else.
      EXPECT_TRUE(eventually([this] { return tags_->residue() == residue{}; }))
        << "rows " << tags_->residue().rows << " sessions "
        << tags_->residue().sessions << " requests "
        << tags_->residue().requests << " waits " << tags_->residue().waits;
      tags_->close();
      tags_->state()->locks.table().check_invariants();
    }
    tags_.reset();
    system_.reset();
  }

  caf::actor make_puppet() {
    auto result = system_->spawn<puppet>();
    puppets_.push_back(result);
    return result;
  }

  std::size_t waiting_for(const std::string& what) {
    return tags_->waiters(what).size();
  }

  std::optional<caf::actor_system_config> cfg_;
  std::optional<caf::actor_system> system_;
  std::optional<scope> tags_;
  std::vector<caf::actor> puppets_;
};

} // namespace pawl::testing
