#include "pawl/net/request_queue.hpp"

#include "pawl/core/ensure.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

namespace pawl {

void request_queue::push(outgoing x) {
  ensure(std::holds_alternative<request_message>(x.what),
         "only requests wait behind all else");
  places_.emplace_back(std::move(x));
}

std::optional<outgoing> request_queue::pop() {
  std::optional<outgoing> result;
  while (!result && size() > 0) {
    result = std::move(places_.front());
    if (!result)
      --holes_;
    places_.pop_front();
    ++gone_;
  }
  if (size() == 0)
    clear();
  return result;
}

bool request_queue::take_out(const std::string& scope,
                             const abandon_message& x) {
  key what{scope, x.id, x.attempt};
  auto* place = find(what);
  if (place == nullptr)
    return false;
  index_.erase(what);
  place->reset();
  ++holes_;
  return true;
}

bool request_queue::tell(const std::string& scope,
                         const waits_elsewhere_message& x) {
  auto* place = find({scope, x.id, x.attempt});
  if (place == nullptr)
    return false;
  auto& request = std::get<request_message>((*place)->what);
  request.elsewhere = true;
  request.patient = false;
  return true;
}

void request_queue::take_out_all(const std::string& scope) {
  for (auto& x : places_)
    if (x && x->scope == scope) {
      x.reset();
      ++holes_;
    }
  std::erase_if(index_, [&](const auto& x) { return x.first.scope == scope; });
}

void request_queue::clear() noexcept {
  places_.clear();
  index_.clear();
  holes_ = 0;
  gone_ = 0;
  indexed_ = 0;
}

/// The place of an attempt, or null.
std::optional<outgoing>* request_queue::find(const key& what) {
  if (size() == 0)
    return nullptr;
  auto end = gone_ + places_.size();
  for (auto i = std::max(indexed_, gone_); i < end; ++i)
    if (const auto& x = places_[i - gone_]) {
      const auto& request = std::get<request_message>(x->what);
      index_[{x->scope, request.id, request.attempt}] = i;
    }
  indexed_ = end;
  auto i = index_.find(what);
  if (i == index_.end())
    return nullptr;
  if (i->second < gone_) {
    index_.erase(i);
    return nullptr;
  }
  return &places_[i->second - gone_];
}

std::size_t request_queue::key_hash::operator()(const key& x) const noexcept {
  auto result = std::hash<std::string>{}(x.scope);
  result = result * 31 + std::hash<request_id>{}(x.id);
  return result * 31 + x.attempt;
}

} // namespace pawl
