#include "replication.hpp"

#include <caf/io/all.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <set>
#include <unordered_set>

namespace scada {

using namespace std::chrono_literals;

namespace {

constexpr auto answer_timeout = 2s;
constexpr auto connect_timeout = 5s;
constexpr auto seek_interval = 200ms;

} // namespace

replicator::replicator(caf::actor_config& cfg, std::string node,
                       tag_store& store, std::uint64_t fingerprint,
                       std::vector<peer_address> peers)
  : caf::event_based_actor(cfg), node_(std::move(node)), store_(store),
    fingerprint_(fingerprint), monitors_(this) {
  for (auto& address : peers)
    peers_.emplace_back().address = std::move(address);
}

caf::behavior replicator::make_behavior() {
  auto pass_on
    = [me = caf::actor_cast<caf::actor>(this)](const tag_updates& updates) {
        compat::anon_send(me, changed_atom_v, updates);
      };
  subscription_ = store_.subscribe_local(pass_on);
  for (std::size_t i = 0; i < peers_.size(); ++i)
    seek(i);
  return {
    // from this node
    [this](changed_atom, const tag_updates& updates) { take(updates); },
    [this](tick_atom, std::uint64_t index) { seek(index); },
    // from others
    [this](hello_atom, const std::string& node,
           std::uint64_t fingerprint) -> caf::result<void> {
      if (fingerprint == fingerprint_)
        return caf::unit;
      fmt::print(stderr, "{} runs another plant and gets no tags\n", node);
      return caf::make_error(caf::sec::invalid_argument);
    },
    [this](update_atom, const wire_updates& updates) -> caf::result<void> {
      auto valid = from_wire(updates);
      if (!valid)
        return caf::make_error(caf::sec::invalid_argument);
      store_.replicate(*valid);
      return caf::unit;
    },
    [this](image_atom, const wire_images& images) -> caf::result<void> {
      auto valid = from_wire(images);
      if (!valid)
        return caf::make_error(caf::sec::invalid_argument);
      store_.replicate(*valid);
      return caf::unit;
    },
  };
}

void replicator::on_exit() {
  store_.unsubscribe(subscription_);
}

// -- reaching a peer ----------------------------------------------------------

// CAF connects to one address at a time, which is no matter on one machine.
void replicator::seek(std::size_t index) {
  auto& peer = peers_[index];
  auto connector = system().middleman().actor_handle();
  auto failed = [this, index](const caf::error&) { seek_later(index); };
  compat::request(this, connector, connect_timeout, caf::connect_atom_v,
                  peer.address.host, peer.address.port)
    .then(
      [this, index](const caf::node_id&, caf::strong_actor_ptr& found,
                    const std::set<std::string>&) {
        auto handle = caf::actor_cast<caf::actor>(std::move(found));
        if (!handle)
          return seek_later(index);
        compat::request(this, handle, answer_timeout, hello_atom_v, node_,
                        fingerprint_)
          .then([this, index, handle] { reached(index, handle); },
                [this, index](const caf::error& why) {
                  complain(peers_[index], compat::render(system(), why));
                  seek_later(index);
                });
      },
      failed);
}

void replicator::seek_later(std::size_t index) {
  compat::delayed_send(this, seek_interval, tick_atom_v,
                       static_cast<std::uint64_t>(index));
}

void replicator::reached(std::size_t index, caf::actor handle) {
  auto& peer = peers_[index];
  auto generation = ++peer.generation;
  peer.handle = std::move(handle);
  peer.images_sent = 0;
  peer.unanswered = 0;
  peer.pending.clear();
  peer.complained = false;
  // A handle from before the connection broke may compare equal to this one.
  monitors_.remove(peer.handle);
  monitors_.add(peer.handle, [this, index, generation](const caf::actor_addr&,
                                                       const caf::error& why) {
    lost(index, generation, why);
  });
  send_more(index);
}

void replicator::lost(std::size_t index, std::uint64_t generation,
                      const caf::error& why) {
  auto& peer = peers_[index];
  if (peer.generation != generation || !peer.handle)
    return;
  complain(peer, compat::render(system(), why));
  monitors_.remove(peer.handle);
  peer.handle = nullptr;
  peer.pending.clear();
  seek_later(index);
}

void replicator::complain(peer& who, const std::string& why) {
  if (!std::exchange(who.complained, true))
    fmt::print(stderr, "{:.3f} replication to {}:{}: {}\n", seconds(now_ns()),
               who.address.host, who.address.port, why);
}

// -- telling a peer -----------------------------------------------------------

void replicator::take(const tag_updates& updates) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    auto& peer = peers_[i];
    if (!peer.handle)
      continue; // it gets images when it is back
    peer.pending.insert(peer.pending.end(), updates.begin(), updates.end());
    if (peer.pending.size() > 2 * store_.size() + batch_size)
      keep_newest(peer.pending);
    send_more(i);
  }
}

void replicator::send_more(std::size_t index) {
  auto& peer = peers_[index];
  while (peer.handle && peer.unanswered < window) {
    if (peer.images_sent < store_.size()) {
      auto images = store_.images({peer.images_sent, batch_size});
      peer.images_sent += batch_size;
      send_one(index, image_atom_v, to_wire(images));
    } else if (!peer.pending.empty()) {
      auto count = std::min(peer.pending.size(), batch_size);
      auto end = peer.pending.begin() + static_cast<std::ptrdiff_t>(count);
      tag_updates batch(peer.pending.begin(), end);
      peer.pending.erase(peer.pending.begin(), end);
      send_one(index, update_atom_v, to_wire(batch));
    } else {
      return;
    }
  }
}

template <class Atom, class Content>
void replicator::send_one(std::size_t index, Atom what, Content content) {
  auto& peer = peers_[index];
  ++peer.unanswered;
  auto generation = peer.generation;
  compat::request(this, peer.handle, answer_timeout, what, std::move(content))
    .then(
      [this, index, generation] {
        if (peers_[index].generation != generation)
          return;
        --peers_[index].unanswered;
        send_more(index);
      },
      [this, index, generation](const caf::error& why) {
        lost(index, generation, why);
      });
}

void keep_newest(tag_updates& updates) {
  std::unordered_set<tag_id> seen;
  tag_updates kept;
  for (auto i = updates.rbegin(); i != updates.rend(); ++i)
    if (seen.insert(i->tag).second)
      kept.push_back(*i);
  updates.assign(kept.rbegin(), kept.rend());
}

} // namespace scada
