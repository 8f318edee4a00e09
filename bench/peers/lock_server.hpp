// A lock server in plain CAF, as one would write it by hand: an actor with a
// map; a request and a response for each lock and each release. Whoever finds a
// term taken waits in its queue. What a client that dies holds stays locked.

#pragma once

#include <pawl/actors/caf_compat.hpp>

#include <caf/all.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

// clang-format off
CAF_BEGIN_TYPE_ID_BLOCK(pawl_bench, caf::first_custom_type_id)

  CAF_ADD_ATOM(pawl_bench, bench, lock_atom, "lock")
  CAF_ADD_ATOM(pawl_bench, bench, free_atom, "free")
  CAF_ADD_ATOM(pawl_bench, bench, size_atom, "size")
  CAF_ADD_ATOM(pawl_bench, bench, go_atom, "go")

CAF_END_TYPE_ID_BLOCK(pawl_bench)
// clang-format on

namespace bench {

namespace compat = pawl::compat;

class lock_server : public caf::event_based_actor {
public:
  /// `held`: terms that are taken, and never given back.
  lock_server(caf::actor_config& cfg, const std::vector<std::string>& held)
    : event_based_actor(cfg) {
    for (const auto& x : held)
      locks_.try_emplace(x);
  }

  caf::behavior make_behavior() override {
    return {
      [this](lock_atom, const std::string& term) -> caf::response_promise {
        auto asked = make_response_promise();
        auto [i, free] = locks_.try_emplace(term);
        if (free)
          asked.deliver(true);
        else
          i->second.push_back(asked);
        return asked;
      },
      [this](free_atom, const std::string& term) {
        auto i = locks_.find(term);
        if (i == locks_.end())
          return false;
        if (i->second.empty()) {
          locks_.erase(i);
        } else {
          auto next = std::move(i->second.front());
          i->second.pop_front();
          next.deliver(true);
        }
        return true;
      },
      [this](size_atom) { return static_cast<std::uint64_t>(locks_.size()); },
    };
  }

private:
  std::unordered_map<std::string, std::deque<caf::response_promise>> locks_;
};

} // namespace bench
