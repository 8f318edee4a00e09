// link_machine: one side of the link between this node and one peer.
//
// It turns connections, which come and go, into *link epochs*. Within an epoch
// messages arrive once and in order; when it ends both sides know, and nothing
// of it is ever honoured again. It knows no CAF, no socket and no clock: time
// is passed in, what is to be done is handed back. Its owner (net/link, or a
// simulator) carries the effects out in order.
//
// Handshake. The node with the smaller slot *asks* (hello), the other *offers*
// an epoch that it draws (welcome), and the first frame of that epoch confirms
// it. Both dial; the hello of the larger slot is checked like any other, so
// that mismatches and names in use are found whoever dials whom, and makes the
// smaller one ask at once over that very connection. Two dials that cross thus
// make one link. An old hello or welcome that turns up again makes none: only a
// fresh answer to a fresh nonce counts, and an offer replaces a standing link
// only when it is confirmed.
//
//                timer            connected; the peer's hello (smaller slot)
//      idle ------------> dialling ------------------------> asked
//       ^  ^                 | connect_failed                  |
//       |  +-- back-off -----+--- closed, reject, time --------+
//       |                                                      | welcome
//       |   goodbye, closed, silence, a missing batch          v
//       +------------------------------------------------- up(epoch)
//       |                                                      ^
//       +-------> offered(epoch), the larger slot upon hello --+ its first
//       frame
//
//   transition               by
//   idle -> dialling         tick
//   dialling -> asked        connected
//   idle, dialling -> asked  receive_hello, smaller slot only
//   asked -> up              receive(welcome), smaller slot only
//   asked, dialling -> idle  receive(reject), connect_failed, closed, tick
//   -> offered               receive_hello, larger slot only; beside any state
//   offered -> up            receive, first frame of the offered epoch
//   up -> idle               receive(goodbye), closed, tick, shut_down
//
// A hello while the link is up is a *claim*: the old link is asked for a sign
// of life. If it gives one within two heartbeat intervals, a claimant of
// another incarnation is rejected with both addresses; if it does not, or
// closes, the epoch is closed and the claimant is answered. A claimant of the
// same incarnation was late, or has lost the link: the question alone makes it
// say so, and silence is judged as always. (An offer needs no claim when the
// incarnation is the same: it takes the place of the old link only when it is
// confirmed.)
//
// Order. A frame is what is queued at flush(): first all but requests, in the
// order in which it arose, then requests. (What belongs to a hand-over arises
// first in its epoch. It must not overtake either: a scope that is closed and
// opened again would be heard of before the refusals of its former life.)
// Requests never overtake, others may overtake requests; an abandon of a
// request that is still queued takes it out, and neither is sent, and
// waits_elsewhere becomes part of it (request_queue.hpp); scope_closed and its
// acknowledgement take all requests of the scope out, so that none comes behind
// them. At most `window` batches are under way without acknowledgement.
// Acknowledgements ride on batches and heartbeats, and go alone when a quarter
// of the window is due.
//
// Down. Nothing received for node_timeout: down. If this side did not run
// itself, it reads its input first, for one interval, before it judges; a gap
// of half of it is reported. last_heard() is no time of arrival: it is when
// this side *sent* what the peer has since confirmed. So until last_heard() +
// node_timeout the peer has not declared this node silent, whatever is on its
// way or was left in buffers.
//
// Invariants (check_invariants):
//   L1 at most `window` batches are unacknowledged
//   L2 no link, no queue
//   L3 only the smaller slot is asked-and-welcomed, only the larger offers
//   L4 a claim stands only while the link is up
//
// Cost: one copy of each message into its frame. Thread safety: none.

#pragma once

#include "pawl/core/fencing.hpp"
#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"
#include "pawl/net/request_queue.hpp"
#include "pawl/net/wire.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace pawl {

class link_machine {
public:
  // -- types ------------------------------------------------------------------

  using time_point = std::chrono::steady_clock::time_point;

  using duration = std::chrono::steady_clock::duration;

  /// A way to the peer, named by the owner; never reused. 0: none.
  using transport = std::uint64_t;

  struct config {
    /// The names of all nodes, sorted, and which two of them this is about.
    std::vector<std::string> names;
    node_slot self = no_node;
    node_slot peer = no_node;
    incarnation who;
    /// Where this node listens, and where it looks for the peer.
    std::string address;
    std::string peer_address;
    std::uint64_t fingerprint = 0;
    std::chrono::milliseconds node_timeout{2000};
    std::chrono::milliseconds heartbeat{250};
    std::uint32_t window = 32;
    /// For epochs, nonces and jitter.
    std::function<std::uint64_t()> random;
  };

  // -- effects: what the owner is to do ---------------------------------------

  /// Connect to the peer's address; report connected() or connect_failed().
  struct dial {};

  struct transmit {
    transport to;
    wire::bytes frame;
  };

  /// Forget this transport; its fate is of no interest any more.
  struct drop {
    transport which;
  };

  struct up {
    link_epoch epoch;
    incarnation who;
    fencing_token floor;
  };

  struct down {
    link_epoch epoch;
    std::string why;
  };

  struct deliver {
    link_epoch epoch;
    wire::batch what;
  };

  /// No link, because the two do not fit together, or by the peer's word. Told
  /// once as long as the sentence stays the same.
  struct rejected {
    wire::reject_kind kind;
    std::string why;
  };

  /// This process did not run for that long.
  struct clock_gap {
    duration length;
  };

  /// Wrong input was refused: a line for the log.
  struct note {
    std::string text;
  };

  using effect = std::variant<dial, transmit, drop, up, down, deliver, rejected,
                              clock_gap, note>;

  using effects = std::vector<effect>;

  // -- constructors -----------------------------------------------------------

  /// The first tick() dials.
  explicit link_machine(config cfg);

  // -- events -----------------------------------------------------------------

  /// Time has passed. Due at next_deadline(), at least once per heartbeat.
  void tick(time_point now, effects& out);

  /// The connection asked for by `dial` is there.
  void connected(transport way, time_point now, effects& out);

  void connect_failed(time_point now, effects& out);

  /// A transport has ended.
  void closed(transport way, time_point now, effects& out);

  /// A frame came in.
  void receive(transport from, std::span<const std::byte> frame, time_point now,
               effects& out);

  /// A hello came in, in whatever way; its name is that of the peer.
  void receive_hello(transport from, const wire::hello& x, time_point now,
                     effects& out);

  /// Queues a message for the peer. False: this is not the current epoch, and
  /// the message is dropped.
  bool send(link_epoch epoch, std::string_view scope, message what);

  /// Sends what is queued, at most so many frames of it, and what is due:
  /// acknowledgements, heartbeats (a tick may wait behind long work). To be
  /// called after other events, as often as the owner likes: what came since is
  /// one batch.
  void flush(time_point now, effects& out, std::size_t most = ~std::size_t{0});

  /// Says goodbye. From then on nothing happens any more.
  void shut_down(time_point now, effects& out);

  // -- queries ----------------------------------------------------------------

  /// 0: the link is down.
  [[nodiscard]] link_epoch epoch() const noexcept {
    return current_ ? current_->epoch : 0;
  }

  /// When this side sent the latest that the peer has confirmed since, in any
  /// epoch. time_point::min(): never.
  [[nodiscard]] time_point last_heard() const noexcept {
    return last_heard_;
  }

  /// When tick() is due at the latest. time_point::max(): never again.
  [[nodiscard]] time_point next_deadline() const noexcept;

  /// Whether anything depends on that transport.
  [[nodiscard]] bool uses(transport way) const noexcept;

  [[nodiscard]] std::size_t queued() const noexcept {
    return middle_.size() + requests_.size();
  }

  /// Whether flush() would send more of what is queued.
  [[nodiscard]] bool can_send() const noexcept {
    return queued() > 0 && unacknowledged() < cfg_.window;
  }

  [[nodiscard]] std::uint64_t unacknowledged() const noexcept {
    return current_ ? current_->sent - current_->acknowledged : 0;
  }

  /// The state as one string, for tests and logs.
  [[nodiscard]] std::string state() const;

  void check_invariants() const;

  // -- what both sides tell each other all along ------------------------------

  /// The largest token and the Lamport time known here; sent with what follows.
  void vitals(fencing_token floor, std::uint64_t lamport) noexcept {
    floor_ = floor;
    lamport_ = lamport;
  }

  /// The largest that the peer has told so far.
  [[nodiscard]] fencing_token peer_floor() const noexcept {
    return peer_floor_;
  }

  [[nodiscard]] std::uint64_t peer_lamport() const noexcept {
    return peer_lamport_;
  }

private:
  // -- parts of the state -----------------------------------------------------

  struct link {
    link_epoch epoch = 0;
    transport way = 0;
    incarnation who;
    std::string address;
    std::uint32_t peer_window = 1;
    time_point last_received;
    time_point next_heartbeat;
    std::uint64_t peer_stamp = 0;
    std::uint64_t sent = 0;
    std::uint64_t acknowledged = 0;
    std::uint64_t received = 0;
    std::uint64_t ack_sent = 0;
  };

  enum class call_state : std::uint8_t { idle, dialling, asked };

  struct offer {
    transport way = 0;
    wire::hello asked;
    link_epoch epoch = 0;
    time_point since;
  };

  struct claim {
    transport way = 0;
    wire::hello what;
    time_point since;
    time_point until;
  };

  // -- steps ------------------------------------------------------------------

  void observe(time_point now, effects& out);
  void ask(transport way, time_point now, effects& out);
  void answer(transport way, const wire::hello& x, time_point now,
              effects& out);
  void hang_up(time_point now, effects& out, bool hopeless);
  void rise(link_epoch epoch, transport way, const wire::introduction& peer,
            time_point heard, time_point now, effects& out);
  void close(std::string why, bool tell, time_point now, effects& out);
  void settle_claim(bool old_answers, time_point now, effects& out);

  void receive(transport from, const wire::hello& x, time_point, effects&);
  void receive(transport from, const wire::welcome& x, time_point, effects&);
  void receive(transport from, const wire::reject& x, time_point, effects&);
  void receive(transport from, wire::batch& x, time_point, effects&);
  void receive(transport from, const wire::ack& x, time_point, effects&);
  void receive(transport from, const wire::heartbeat& x, time_point, effects&);
  void receive(transport from, const wire::goodbye& x, time_point, effects&);

  bool admit(transport from, link_epoch epoch, std::string_view what,
             time_point now, effects& out);
  bool acknowledged(std::uint64_t seq, effects& out);
  void heard(fencing_token floor, std::uint64_t lamport) noexcept;
  void send_heartbeat(bool ask, time_point now, effects& out);
  std::optional<outgoing> next_unsent();
  void too_large(const outgoing& x, time_point now, effects& out);
  void reject(transport way, const wire::hello& x, wire::reject_kind kind,
              std::string why, effects& out);
  void report(wire::reject_kind kind, std::string why, effects& out);
  void let_go(transport way, effects& out);
  void clear_queue() noexcept;

  [[nodiscard]] wire::introduction introduction() const;
  [[nodiscard]] std::uint64_t draw();
  [[nodiscard]] std::uint64_t stamp(time_point now) const noexcept;
  [[nodiscard]] bool asks() const noexcept {
    return cfg_.self < cfg_.peer;
  }
  [[nodiscard]] const std::string& peer_name() const noexcept {
    return cfg_.names[to_index(cfg_.peer)];
  }

  // -- members ----------------------------------------------------------------

  config cfg_;
  bool ended_ = false;

  std::optional<link> current_;
  std::optional<offer> offer_;
  std::optional<claim> claim_;

  call_state call_ = call_state::idle;
  /// While asked: over what, what the answer must repeat, since when.
  transport asked_ = 0;
  std::uint64_t nonce_ = 0;
  time_point asked_at_;
  /// Over what the larger slot has said hello while we asked elsewhere.
  transport knock_ = 0;
  /// While idle: when to dial. While asked: when to give up.
  time_point call_due_ = time_point::min();
  unsigned failures_ = 0;

  /// All events: to notice that this side did not run.
  std::optional<time_point> last_event_;
  time_point judge_after_ = time_point::min();
  bool excused_ = false;
  time_point base_;
  time_point last_heard_ = time_point::min();

  std::string last_report_;

  std::deque<outgoing> middle_;
  request_queue requests_;

  fencing_token floor_ = 0;
  std::uint64_t lamport_ = 0;
  fencing_token peer_floor_ = 0;
  std::uint64_t peer_lamport_ = 0;
};

/// What keeps two nodes from speaking with each other, in one sentence; nothing
/// if they fit. `own` is about `self`, `peer` is what the other node says.
std::optional<std::string> mismatch(const link_machine::config& own,
                                    const wire::introduction& peer);

} // namespace pawl
