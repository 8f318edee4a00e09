#include "tag_store.hpp"

namespace scada {

tag_store::tag_store(std::size_t tags) : tags_(tags) {
  for (std::size_t i = 0; i < tags; ++i)
    tags_[i].current.tag = static_cast<tag_id>(i);
}

// -- writes -------------------------------------------------------------------

std::size_t tag_store::write(const tag_updates& updates) {
  auto passed = pass(updates, written_);
  tell(passed, true);
  return updates.size() - passed.size();
}

void tag_store::replicate(const tag_updates& updates) {
  tell(pass(updates, replicated_), false);
}

void tag_store::replicate(const tag_images& images) {
  tag_updates currents;
  for (auto& image : images)
    currents.push_back(image.current);
  replicate(currents);
  for (auto& image : images) {
    if (image.current.tag >= tags_.size())
      continue;
    std::unique_lock guard{stripe(image.current.tag)};
    for (auto& mark : image.marks)
      tags_[image.current.tag].guard.learn(mark);
  }
}

tag_updates tag_store::pass(const tag_updates& updates,
                            std::atomic<std::uint64_t>& counter) {
  tag_updates passed;
  passed.reserve(updates.size());
  for (auto& update : updates) {
    if (update.tag >= tags_.size())
      continue; // from a peer with another plant; the handshake refuses those
    auto& tag = tags_[update.tag];
    std::unique_lock guard{stripe(update.tag)};
    switch (tag.guard.judge(update.stamp)) {
      case verdict::pass:
        tag.current = update;
        passed.push_back(update);
        break;
      case verdict::stale_epoch:
        ++stale_epoch_;
        break;
      case verdict::overtaken:
        ++overtaken_;
        break;
      case verdict::repeated:
        break;
    }
  }
  counter += passed.size();
  return passed;
}

// -- reads --------------------------------------------------------------------

tag_update tag_store::current(tag_id tag) const {
  std::unique_lock guard{stripe(tag)};
  return tags_[tag].current;
}

tag_images tag_store::images(tag_range range) const {
  tag_images written;
  for (tag_id i = range.first; range.contains(i) && i < tags_.size(); ++i) {
    std::unique_lock guard{stripe(i)};
    auto& tag = tags_[i];
    if (!tag.guard.marks().empty())
      written.push_back({tag.current, tag.guard.marks()});
  }
  return written;
}

store_figures tag_store::figures() const {
  return {written_, replicated_, stale_epoch_, overtaken_};
}

// -- subscriptions ------------------------------------------------------------

tag_store::listener_id tag_store::subscribe(const std::vector<tag_id>& tags,
                                            listener f) {
  std::unique_lock guard{subscriptions_mutex_};
  auto id = ++last_id_;
  for (auto tag : tags)
    by_tag_[tag].push_back(id);
  some_.emplace(id, subscription{std::move(f), tags});
  return id;
}

tag_store::listener_id tag_store::subscribe_all(listener f) {
  std::unique_lock guard{subscriptions_mutex_};
  all_.emplace(++last_id_, std::move(f));
  return last_id_;
}

tag_store::listener_id tag_store::subscribe_local(listener f) {
  std::unique_lock guard{subscriptions_mutex_};
  local_.emplace(++last_id_, std::move(f));
  return last_id_;
}

void tag_store::unsubscribe(listener_id id) {
  std::unique_lock guard{subscriptions_mutex_};
  all_.erase(id);
  local_.erase(id);
  auto some = some_.find(id);
  if (some == some_.end())
    return;
  for (auto tag : some->second.tags)
    std::erase(by_tag_[tag], id);
  some_.erase(some);
}

void tag_store::tell(const tag_updates& passed, bool local) const {
  if (passed.empty())
    return;
  std::shared_lock guard{subscriptions_mutex_};
  std::unordered_map<listener_id, tag_updates> parts;
  for (auto& update : passed)
    if (auto ids = by_tag_.find(update.tag); ids != by_tag_.end())
      for (auto id : ids->second)
        parts[id].push_back(update);
  for (auto& [id, part] : parts)
    some_.at(id).f(part);
  for (auto& [id, f] : all_)
    f(passed);
  if (!local)
    return;
  for (auto& [id, f] : local_)
    f(passed);
}

} // namespace scada
