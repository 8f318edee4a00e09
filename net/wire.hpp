// wire: what goes between two links, as bytes. Knows no CAF and no socket.
//
// A frame is one kind byte and its fields. Numbers are varints (little-endian
// groups of 7 bits, shortest form only), except tokens, epochs, nonces and
// incarnations, which take 8 bytes per 64 bits, little-endian. A string is its
// length and its bytes; a list is its length and its elements.
//
//   hello      may I speak with you?            magic version name nonce | rest
//   welcome    yes, in this link epoch          like hello, and the epoch
//   reject     no, and why                      magic version name nonce ...
//   batch      messages of scopes               epoch seq ack lamport scopes
//   ack        credit for batches               epoch ack
//   heartbeat  I am here                        epoch ack floor lamport ...
//   goodbye    this epoch is closed, and why    epoch sentence
//
// hello, welcome and reject begin alike in every version of the protocol, so
// that two versions can tell each other what is wrong; of another version's
// hello or welcome only the part before the bar is read.
//
// Decoding is strict. Whatever is not exactly what encode() makes is refused,
// with the field and its offset: other kinds, values out of range, lengths that
// exceed the rest, long forms of short numbers, bytes behind the end. It never
// allocates more than a small multiple of the bytes it was given.
//
// Thread safety: free functions over values.

#pragma once

#include "pawl/core/ids.hpp"
#include "pawl/core/message.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pawl::wire {

using bytes = std::vector<std::byte>;

// -- limits -------------------------------------------------------------------

/// Counts changes of anything in this file or in core/message.hpp.
constexpr std::uint32_t protocol_version = 2;

/// A larger frame is refused by its receiver. Batches are cut at a much smaller
/// size (see batch_writer); only a single large message comes near.
constexpr std::size_t max_frame_size = 64 * 1024 * 1024;

/// What a single message may take, so that no frame is ever refused, whatever
/// came into its batch before.
constexpr std::size_t max_message_size = max_frame_size - 8 * 1024 * 1024;

constexpr std::size_t max_batch_messages = 4096;
constexpr std::size_t max_node_name = 255;
constexpr std::size_t max_scope_name = 1024;
constexpr std::size_t max_address = 300;
constexpr std::size_t max_sentence = 4096;

// -- frames -------------------------------------------------------------------

/// Who speaks, and what both sides of a link must agree on.
struct introduction {
  std::uint32_t version = protocol_version;
  /// The sender's name.
  std::string name;
  /// Stands for the ids of the message types that carry frames.
  std::uint64_t fingerprint = 0;
  /// The name that the sender thinks the receiver has.
  std::string called;
  /// The names of all nodes, sorted.
  std::vector<std::string> names;
  incarnation who;
  /// Where the sender listens; for people.
  std::string address;
  std::uint32_t node_timeout_ms = 0;
  std::uint32_t heartbeat_ms = 0;
  /// How many unacknowledged batches the sender may have under way.
  std::uint32_t window = 0;
  fencing_token floor = 0;
  std::uint64_t lamport = 0;
  friend bool operator==(const introduction&, const introduction&) = default;
};

struct hello {
  introduction self;
  /// Random; the answer repeats it.
  std::uint64_t nonce = 0;
  friend bool operator==(const hello&, const hello&) = default;
};

struct welcome {
  introduction self;
  /// That of the hello.
  std::uint64_t nonce = 0;
  link_epoch epoch = 0;
  friend bool operator==(const welcome&, const welcome&) = default;
};

enum class reject_kind : std::uint8_t {
  /// Configurations differ: no use until one of them changes.
  mismatch,
  /// Another process runs under this name.
  name_in_use,
  /// Not now.
  busy,
};

inline constexpr reject_kind last_reject_kind = reject_kind::busy;

struct reject {
  std::uint32_t version = protocol_version;
  /// Who rejects.
  std::string name;
  std::uint64_t nonce = 0;
  reject_kind kind = reject_kind::mismatch;
  std::string why;
  friend bool operator==(const reject&, const reject&) = default;
};

/// A message and the place of its scope in the table of its batch.
struct batch_item {
  std::uint16_t scope = 0;
  message what;
  friend bool operator==(const batch_item&, const batch_item&) = default;
};

struct batch {
  link_epoch epoch = 0;
  /// Counts the batches of one direction of one epoch, from 1.
  std::uint64_t seq = 0;
  /// The last batch of the other direction that was received.
  std::uint64_t ack = 0;
  std::uint64_t lamport = 0;
  std::vector<std::string> scopes;
  std::vector<batch_item> items;
  friend bool operator==(const batch&, const batch&) = default;
};

struct ack {
  link_epoch epoch = 0;
  std::uint64_t seq = 0;
  friend bool operator==(const ack&, const ack&) = default;
};

struct heartbeat {
  link_epoch epoch = 0;
  std::uint64_t ack = 0;
  fencing_token floor = 0;
  std::uint64_t lamport = 0;
  /// When it was sent, by a clock that only the sender reads.
  std::uint64_t stamp = 0;
  /// The last stamp that the sender has received: tells the receiver that it
  /// was still heard when it sent that.
  std::uint64_t echo = 0;
  /// Asks for a heartbeat at once.
  bool ask = false;
  friend bool operator==(const heartbeat&, const heartbeat&) = default;
};

struct goodbye {
  link_epoch epoch = 0;
  std::string why;
  friend bool operator==(const goodbye&, const goodbye&) = default;
};

using frame
  = std::variant<hello, welcome, reject, batch, ack, heartbeat, goodbye>;

/// The word for a frame, as in docs/PROTOCOL.md and in logs.
std::string_view name_of(const frame& x) noexcept;

// -- bytes --------------------------------------------------------------------

/// Why bytes were refused: the field that could not be read, where it begins.
struct malformed {
  std::string field;
  std::size_t offset = 0;
  std::string why;
};

/// E.g. "batch.seq at byte 9: the frame ends within it".
std::string to_string(const malformed& x);

template <class T>
using decoded = std::variant<T, malformed>;

/// Ours to get right: names within their limits, `carried` as long as `terms`,
/// a mode for each term, scope places within the table.
bytes encode(const frame& x);

decoded<frame> decode(std::span<const std::byte> in);

/// A message without frame: for tests, and to measure one.
bytes encode_message(const message& x);

decoded<message> decode_message(std::span<const std::byte> in);

/// Builds the frame of a batch, message by message.
class batch_writer {
public:
  /// At this size a batch is full, whatever may follow.
  static constexpr std::size_t full_size = 256 * 1024;

  /// Takes the message and returns true; or returns false if it alone exceeds
  /// max_message_size, and the batch is as before.
  [[nodiscard]] bool add(std::string_view scope, const message& what);

  [[nodiscard]] bool empty() const noexcept {
    return count_ == 0;
  }

  [[nodiscard]] bool full() const noexcept {
    return body_.size() >= full_size || count_ >= max_batch_messages;
  }

  /// The whole frame; the writer is empty again.
  bytes finish(link_epoch epoch, std::uint64_t seq, std::uint64_t ack,
               std::uint64_t lamport);

private:
  std::vector<std::string> scopes_;
  /// The place of the scope that came last: batches are mostly of one.
  std::size_t last_ = 0;
  bytes body_;
  std::size_t count_ = 0;
};

} // namespace pawl::wire
