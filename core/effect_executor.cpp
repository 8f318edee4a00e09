#include "pawl/core/effect_executor.hpp"

#include <type_traits>
#include <utility>

namespace pawl {

scope_port::~scope_port() = default;

effect_executor::effect_executor(node_slot self, coordinator& home, worker& own,
                                 scope_port& port)
  : self_(self), home_(home), own_(own), port_(port) {
  // nop
}

void effect_executor::run(scope_effects list) {
  while (!list.empty()) {
    for (auto& x : list) {
      ++executed_;
      std::visit([this](auto& y) { execute(y); }, x);
    }
    list = std::exchange(next_, {});
  }
}

void effect_executor::execute(effect::send& x) {
  if (x.to != self_) {
    port_.to_peer(x.to, std::move(x.what));
    return;
  }
  if (for_coordinator(x.what))
    home_.receive(self_, x.what, next_);
  if (for_worker(x.what))
    own_.receive(x.what, next_);
}

void effect_executor::execute(effect::aged& x) {
  port_.aged(x.id, x.lamport);
}

void effect_executor::execute(effect::whole& x) {
  if (!port_.whole(x.id, std::move(x.tokens), std::move(x.nodes)))
    home_.take_back(x.id, next_);
}

void effect_executor::execute(effect::ended& x) {
  port_.ended(x.id, x.why, x.node);
}

void effect_executor::execute(effect::hold_lost& x) {
  for (auto which : x.which)
    port_.hold_lost(x.id, which, x.why, x.node);
}

void effect_executor::execute(effect::downgraded& x) {
  port_.downgraded(x.id, x.which);
}

void effect_executor::execute(effect::node_left& x) {
  port_.node_left(x.id, x.node);
}

void effect_executor::execute(effect::view_changed& x) {
  port_.view_changed(std::move(x.nodes));
}

void effect_executor::execute(effect::ready&) {
  own_.set_ready(next_);
  port_.ready();
}

void effect_executor::execute(effect::mismatch& x) {
  port_.mismatch(x.peer);
}

void effect_executor::execute(effect::installed& x) {
  home_.installed(x.peer, x.epoch, x.holds, next_);
}

void effect_executor::execute(effect::walk& x) {
  port_.walk(x);
}

namespace {

template <class T, class... Ts>
constexpr bool is_one_of = (std::is_same_v<T, Ts> || ...);

} // namespace

bool for_worker(const message& what) noexcept {
  return std::visit(
    [](const auto& x) {
      using type = std::decay_t<decltype(x)>;
      return is_one_of<type, request_message, abandon_message, release_message,
                       downgrade_message, raise_message, hand_over_message,
                       waits_elsewhere_message, scope_closed_message>;
    },
    what);
}

bool for_coordinator(const message& what) noexcept {
  return !for_worker(what) || std::holds_alternative<hand_over_message>(what)
         || std::holds_alternative<scope_closed_message>(what);
}

} // namespace pawl
