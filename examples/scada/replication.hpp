// Replication of tags between stations: ordinary traffic of the application,
// by CAF's remote actors, apart from whatever pawl sends.
//
// Each station tells every other what its own services have written; nobody
// passes on what he was told. To a peer that has just been reached it first
// sends images of all its tags, so one that was away catches up. Order between
// senders does not matter: the fences of the receiving store sort it out.
//
//   hello_atom, node, fingerprint of the plant -> void, or an error
//   update_atom, wire_updates                  -> void
//   image_atom, wire_images                    -> void
//
// At most `window` messages to a peer are unanswered. While it is slower, what
// it is to be told is kept, of each tag only the newest. A peer that does not
// answer in time, or whose connection breaks, is forgotten and sought anew; its
// handle from before is never used again.

#pragma once

#include "messages.hpp"
#include "tag_store.hpp"

#include <string>
#include <vector>

namespace scada {

/// Where a station's tags listen.
struct peer_address {
  std::string host;
  std::uint16_t port = 0;
};

class replicator : public caf::event_based_actor {
public:
  static constexpr std::size_t window = 8;
  static constexpr std::size_t batch_size = 1000;

  replicator(caf::actor_config& cfg, std::string node, tag_store& store,
             std::uint64_t fingerprint, std::vector<peer_address> peers);

  caf::behavior make_behavior() override;

  void on_exit() override;

private:
  struct peer {
    peer_address address;
    caf::actor handle;            // empty while it is not reached
    std::uint64_t generation = 0; // of the handle; answers to older ones lapse
    tag_id images_sent = 0;       // tags below have been sent as images
    std::size_t unanswered = 0;
    tag_updates pending;
    bool complained = false;
  };

  void seek(std::size_t index);
  void seek_later(std::size_t index);
  void reached(std::size_t index, caf::actor handle);
  void lost(std::size_t index, std::uint64_t generation, const caf::error& why);
  void complain(peer& who, const std::string& why);

  void take(const tag_updates& updates);
  void send_more(std::size_t index);
  template <class Atom, class Content>
  void send_one(std::size_t index, Atom what, Content content);

  std::string node_;
  tag_store& store_;
  std::uint64_t fingerprint_;
  std::vector<peer> peers_;
  compat::monitors monitors_;
  tag_store::listener_id subscription_ = 0;
};

/// Keeps the last update of each tag.
void keep_newest(tag_updates& updates);

} // namespace scada
