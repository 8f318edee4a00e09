#include "row_watch.hpp"

#include "options.hpp"

#include "pawl/core/session_ledger.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace pawl::sim {

namespace {

bool in_the_way(lock_mode a, lock_mode b) noexcept {
  return a == lock_mode::exclusive || b == lock_mode::exclusive;
}

bool hangs(const waiter& x) noexcept {
  return x.queue != nullptr && x.state() == outcome::pending;
}

bool granted(const waiter& x) noexcept {
  return x.queue == nullptr && x.state() == outcome::granted;
}

} // namespace

row_watch::~row_watch() {
  for (auto& [where, x] : rows_)
    let_go(x);
}

void row_watch::look(std::size_t node, const lock_table& table,
                     const term& what) {
  auto now = see(table, what);
  auto& before = rows_[{node, what}];
  std::swap(before, now); // so that all that is seen is let go, also on a throw
  auto& old = now;
  struct last {
    seen& x;
    ~last() {
      let_go(x);
    }
  } guard{old};
  if (old.queue.empty())
    return;
  check_order(old);
  if (strict_)
    check_newcomers(old, before);
}

void row_watch::forget(std::size_t node) {
  for (auto i = rows_.begin(); i != rows_.end();)
    if (i->first.first == node) {
      let_go(i->second);
      i = rows_.erase(i);
    } else {
      ++i;
    }
}

row_watch::seen row_watch::see(const lock_table& table, const term& what) {
  seen result;
  table.for_each_waiter(what, [&](waiter& w) {
    w.ref();
    result.queue.push_back({&w, w.session().id(), w.upgrade});
  });
  if (!result.queue.empty())
    table.for_each_holder(what, [&](const hold_record& r) {
      auto& mode = result.holders[r.session->id()];
      mode = stronger(mode, r.mode);
    });
  return result;
}

void row_watch::check_order(const seen& before) {
  const auto& queue = before.queue;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const auto& lucky = *queue[i].who;
    const auto& id = queue[i].session;
    if (!granted(lucky) || queue[i].upgrade || before.holders.count(id) != 0)
      continue;
    for (std::size_t k = 0; k < i; ++k) {
      const auto& passed = *queue[k].who;
      if (granted(passed) && queue[k].session == id)
        break; // what is behind its session's other request does not matter
      if (hangs(passed) && queue[k].session != id
          && in_the_way(passed.mode(), lucky.mode()))
        throw violation{
          fmt::format("{} is granted {} past {}", to_string(lucky.request),
                      to_string(lucky.what()), to_string(passed.request))};
    }
  }
}

void row_watch::check_newcomers(const seen& before, const seen& now) {
  for (const auto& [id, mode] : now.holders) {
    auto was_there
      = std::any_of(before.queue.begin(), before.queue.end(),
                    [&, &id = id](const place& x) { return x.session == id; });
    if (was_there || before.holders.count(id) != 0)
      continue;
    for (const auto& x : before.queue)
      if (hangs(*x.who) && in_the_way(x.who->mode(), mode))
        throw violation{fmt::format("{} is let in to {} past {}", to_string(id),
                                    to_string(x.who->what()),
                                    to_string(x.who->request))};
  }
}

void row_watch::let_go(seen& x) noexcept {
  for (auto& p : x.queue)
    p.who->unref();
  x.queue.clear();
}

} // namespace pawl::sim
