#include "pawl/net/wire.hpp"

#include "pawl/core/ensure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <utility>

namespace pawl::wire {

namespace {

enum class kind : std::uint8_t {
  hello,
  welcome,
  reject,
  batch,
  ack,
  heartbeat,
  goodbye,
};

constexpr std::array<std::string_view, std::variant_size_v<frame>> kind_names{
  "hello", "welcome", "reject", "batch", "ack", "heartbeat", "goodbye"};

constexpr std::string_view magic = "pawl";

// A new message needs its functions below, a new row in docs/PROTOCOL.md and a
// new protocol_version.
static_assert(std::variant_size_v<message> == 18);

// -- numbers and strings ------------------------------------------------------

class writer {
public:
  explicit writer(bytes& out) : out_(out) {
    // nop
  }

  void byte(std::uint8_t x) {
    out_.push_back(static_cast<std::byte>(x));
  }

  void flag(bool x) {
    byte(x ? 1 : 0);
  }

  void number(std::uint64_t x) {
    std::array<std::byte, 10> buffer;
    std::size_t n = 0;
    for (; x >= 0x80; x >>= 7)
      buffer[n++] = static_cast<std::byte>(x | 0x80);
    buffer[n++] = static_cast<std::byte>(x);
    raw(std::span{buffer}.first(n));
  }

  void fixed(std::uint64_t x) {
    std::array<std::byte, 8> buffer;
    for (auto& b : buffer) {
      b = static_cast<std::byte>(x);
      x >>= 8;
    }
    raw(buffer);
  }

  void raw(std::span<const std::byte> x) {
    out_.insert(out_.end(), x.begin(), x.end());
  }

  void text(std::string_view x) {
    number(x.size());
    raw(std::as_bytes(std::span{x}));
  }

private:
  bytes& out_;
};

/// After the first error all reads return zeros and move nothing, so that only
/// loops need to look whether it is good().
class reader {
public:
  /// `kind` is the first part of the names of fields in errors.
  reader(std::span<const std::byte> in, std::string_view kind)
    : in_(in), kind_(kind) {
    // nop
  }

  [[nodiscard]] bool good() const noexcept {
    return !error_;
  }

  [[nodiscard]] std::size_t rest() const noexcept {
    return in_.size() - pos_;
  }

  [[nodiscard]] std::size_t position() const noexcept {
    return pos_;
  }

  [[nodiscard]] malformed take_error() {
    return std::move(*error_);
  }

  void kind(std::string_view x) {
    kind_ = x;
  }

  void fail(std::string_view field, std::size_t offset, std::string why) {
    if (good())
      error_
        = malformed{fmt::format("{}.{}", kind_, field), offset, std::move(why)};
  }

  std::uint8_t byte(std::string_view field) {
    auto x = raw(field, 1);
    return x.empty() ? 0 : static_cast<std::uint8_t>(x[0]);
  }

  bool flag(std::string_view field) {
    auto at = pos_;
    auto x = byte(field);
    if (x > 1)
      fail(field, at, fmt::format("{} is neither 0 nor 1", x));
    return x == 1;
  }

  /// One of the values first..last of an enum without gaps.
  template <class Enum>
  Enum choice(std::string_view field, Enum first, Enum last) {
    auto at = pos_;
    auto x = byte(field);
    if (x < static_cast<std::uint8_t>(first)
        || x > static_cast<std::uint8_t>(last)) {
      fail(field, at, fmt::format("{} is not one of its values", x));
      return first;
    }
    return static_cast<Enum>(x);
  }

  std::uint64_t number(std::string_view field,
                       std::uint64_t largest
                       = std::numeric_limits<std::uint64_t>::max()) {
    auto at = pos_;
    std::uint64_t result = 0;
    for (unsigned shift = 0; good(); shift += 7) {
      auto x = byte(field);
      auto bits = static_cast<std::uint64_t>(x & 0x7f);
      if (shift == 63 && x > 1) {
        fail(field, at, "the number has more than 64 bits");
        break;
      }
      result |= bits << shift;
      if ((x & 0x80) == 0) {
        if (x == 0 && shift > 0)
          fail(field, at, "the number is not in its shortest form");
        break;
      }
    }
    if (good() && result > largest)
      fail(field, at, fmt::format("{} is larger than {}", result, largest));
    return good() ? result : 0;
  }

  template <class T>
  T small(std::string_view field) {
    return static_cast<T>(number(field, std::numeric_limits<T>::max()));
  }

  std::uint64_t fixed(std::string_view field) {
    auto x = raw(field, 8);
    std::uint64_t result = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      result |= static_cast<std::uint64_t>(x[i]) << (8 * i);
    return result;
  }

  std::span<const std::byte> raw(std::string_view field, std::size_t size) {
    if (!good())
      return {};
    if (size > rest()) {
      fail(field, pos_, "the frame ends within it");
      return {};
    }
    auto result = in_.subspan(pos_, size);
    pos_ += size;
    return result;
  }

  /// Bytes with their length before them.
  std::span<const std::byte> blob(std::string_view field, std::size_t smallest,
                                  std::size_t largest) {
    auto at = pos_;
    auto size = number(field);
    if (good() && (size < smallest || size > largest))
      fail(field, at,
           fmt::format("a length of {} is not within {} and {}", size, smallest,
                       largest));
    return raw(field, size);
  }

  std::string bytes_as_string(std::string_view field, std::size_t smallest,
                              std::size_t largest) {
    auto x = blob(field, smallest, largest);
    return std::string{reinterpret_cast<const char*>(x.data()), x.size()};
  }

  /// Something that goes into logs: no control characters.
  std::string text(std::string_view field, std::size_t smallest,
                   std::size_t largest) {
    auto at = pos_;
    auto result = bytes_as_string(field, smallest, largest);
    auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::any_of(result.begin(), result.end(), control))
      fail(field, at, "it has control characters");
    return result;
  }

  /// The length of a list whose elements take at least `each` bytes.
  std::size_t count(std::string_view field, std::size_t each,
                    std::size_t largest
                    = std::numeric_limits<std::size_t>::max()) {
    auto at = pos_;
    auto result = number(field, largest);
    if (good() && result > rest() / each) {
      fail(field, at,
           fmt::format("{} elements do not fit into the {} bytes left", result,
                       rest()));
    }
    return good() ? result : 0;
  }

  void end() {
    if (good() && rest() > 0)
      fail("end", pos_, fmt::format("{} bytes follow it", rest()));
  }

private:
  std::span<const std::byte> in_;
  std::string_view kind_;
  std::size_t pos_ = 0;
  std::optional<malformed> error_;
};

// -- parts of messages --------------------------------------------------------

void write(writer& out, node_slot x) {
  out.number(to_index(x));
}

node_slot read_slot(reader& in, std::string_view field) {
  return static_cast<node_slot>(in.number(field, max_nodes - 1));
}

void write(writer& out, const request_id& x) {
  write(out, x.home);
  out.number(x.serial);
}

void read(reader& in, request_id& x) {
  x.home = read_slot(in, "id.home");
  x.serial = in.number("id.serial");
}

void write(writer& out, const session_id& x) {
  write(out, x.home);
  out.number(x.serial);
}

void read(reader& in, session_id& x) {
  x.home = read_slot(in, "session.home");
  x.serial = in.number("session.serial");
}

/// A node, or none.
void write_place(writer& out, node_slot x) {
  out.number(x == no_node ? max_nodes : to_index(x));
}

node_slot read_place(reader& in, std::string_view field) {
  auto x = in.number(field, max_nodes);
  return x == max_nodes ? no_node : static_cast<node_slot>(x);
}

/// A session that holds nothing has age 0 on the wire: one byte, not ten.
void write(writer& out, const session_age& x) {
  out.number(x.lamport + 1);
  write_place(out, x.who.home);
  out.number(x.who.serial);
}

void read(reader& in, session_age& x) {
  x.lamport = in.number("age.lamport") - 1;
  x.who.home = read_place(in, "age.home");
  x.who.serial = in.number("age.serial");
}

template <class T>
void write_list(writer& out, const std::vector<T>& xs) {
  out.number(xs.size());
  for (const auto& x : xs)
    write(out, x);
}

/// Of elements that take at least `each` bytes.
template <class T>
void read_list(reader& in, std::string_view field, std::size_t each,
               std::vector<T>& xs) {
  auto n = in.count(field, each);
  // Not more than what the bytes themselves take, whatever they say.
  xs.reserve(std::min<std::size_t>(n, 16));
  for (std::size_t i = 0; i < n && in.good(); ++i)
    read(in, xs.emplace_back());
}

void write_term(writer& out, const term& what, lock_mode mode) {
  ensure(mode == shared || mode == exclusive, "a term without a mode");
  ensure(what.fits(), "a term that is too large to be asked for");
  out.byte(static_cast<std::uint8_t>(mode));
  out.number(what.bytes().size());
  out.raw(what.bytes());
}

void read_term(reader& in, term& what, lock_mode& mode) {
  mode = in.choice("term.mode", shared, exclusive);
  auto bytes = in.blob("term", 1, term::max_size);
  if (in.good())
    what = term::from_canonical(bytes);
}

void write(writer& out, const term_lock& x) {
  write_term(out, x.what, x.mode);
}

void read(reader& in, term_lock& x) {
  read_term(in, x.what, x.mode);
}

/// Of a list whose length both sides know.
void write_tokens(writer& out, const std::vector<fencing_token>& xs) {
  for (auto x : xs)
    out.fixed(x);
}

void read_tokens(reader& in, std::string_view field,
                 std::vector<fencing_token>& xs, std::size_t n) {
  if (in.good() && n > in.rest() / 8)
    in.fail(field, in.position(), "the frame ends within it");
  if (!in.good())
    return;
  xs.reserve(n);
  for (std::size_t i = 0; i < n; ++i)
    xs.push_back(in.fixed(field));
}

void write_token_list(writer& out, const std::vector<fencing_token>& xs) {
  out.number(xs.size());
  write_tokens(out, xs);
}

void read_token_list(reader& in, std::vector<fencing_token>& xs) {
  read_tokens(in, "tokens", xs, in.count("tokens", 8));
}

// -- messages -----------------------------------------------------------------

void write(writer& out, const request_message& x) {
  ensure(x.carried.size() == x.terms.size(), "a carried token for each term");
  write(out, x.id);
  out.number(x.attempt);
  write(out, x.session);
  write(out, x.age);
  out.byte(static_cast<std::uint8_t>((x.adopt ? 1 : 0) | (x.no_wait ? 2 : 0)
                                     | (x.elsewhere ? 4 : 0)
                                     | (x.patient ? 8 : 0)));
  write_list(out, x.terms);
  write_tokens(out, x.carried);
}

void read(reader& in, request_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
  read(in, x.session);
  read(in, x.age);
  auto flags = in.choice<std::uint8_t>("flags", 0, 15);
  x.adopt = (flags & 1) != 0;
  x.no_wait = (flags & 2) != 0;
  x.elsewhere = (flags & 4) != 0;
  x.patient = (flags & 8) != 0;
  read_list(in, "terms", 11, x.terms); // with a token of 8 bytes each
  read_tokens(in, "carried", x.carried, x.terms.size());
}

void write(writer& out, const granted_message& x) {
  write(out, x.id);
  out.number(x.attempt);
  write_token_list(out, x.tokens);
}

void read(reader& in, granted_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
  read_token_list(in, x.tokens);
}

void write(writer& out, const refused_message& x) {
  ensure(x.why > outcome::granted, "a refusal has a reason");
  write(out, x.id);
  out.number(x.attempt);
  out.byte(static_cast<std::uint8_t>(x.why));
}

void read(reader& in, refused_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
  x.why = in.choice("why", outcome::busy, last_outcome);
}

void write(writer& out, const abandon_message& x) {
  write(out, x.id);
  out.number(x.attempt);
}

void read(reader& in, abandon_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
}

void write(writer& out, const release_message& x) {
  write(out, x.id);
  out.number(x.which.size());
  for (auto i : x.which)
    out.number(i);
}

void read(reader& in, release_message& x) {
  read(in, x.id);
  auto n = in.count("which", 1);
  x.which.reserve(n);
  for (std::size_t i = 0; i < n && in.good(); ++i)
    x.which.push_back(in.small<std::uint16_t>("which"));
}

void write(writer& out, const downgrade_message& x) {
  write(out, x.id);
  out.number(x.which);
}

void read(reader& in, downgrade_message& x) {
  read(in, x.id);
  x.which = in.small<std::uint16_t>("which");
}

void write(writer& out, const raise_message& x) {
  write(out, x.id);
  out.number(x.attempt);
  write_token_list(out, x.tokens);
  out.flag(x.whole);
}

void read(reader& in, raise_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
  read_token_list(in, x.tokens);
  x.whole = in.flag("whole");
}

void write(writer& out, const raised_message& x) {
  write(out, x.id);
  out.number(x.attempt);
}

void read(reader& in, raised_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
}

void write(writer& out, const lost_message& x) {
  write(out, x.id);
  out.number(x.which);
  out.flag(x.if_partial);
}

void read(reader& in, lost_message& x) {
  read(in, x.id);
  x.which = in.small<std::uint16_t>("which");
  x.if_partial = in.flag("if_partial");
}

void write(writer& out, const scope_opened_message& x) {
  out.fixed(x.fingerprint);
}

void read(reader& in, scope_opened_message& x) {
  x.fingerprint = in.fixed("fingerprint");
}

void write(writer&, const scope_closed_ack_message&) {
  // nothing
}

void read(reader&, scope_closed_ack_message&) {
  // nothing
}

void write(writer&, const scope_closed_message&) {
  // nop
}

void read(reader&, scope_closed_message&) {
  // nop
}

void write(writer& out, const handed_over& x) {
  ensure(x.tokens.size() == x.terms.size(), "a token for each term");
  write(out, x.id);
  out.number(x.attempt);
  write(out, x.session);
  write(out, x.age);
  write_list(out, x.terms);
  write_tokens(out, x.tokens);
}

void read(reader& in, handed_over& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
  read(in, x.session);
  read(in, x.age);
  read_list(in, "terms", 11, x.terms); // with a token of 8 bytes each
  read_tokens(in, "tokens", x.tokens, x.terms.size());
}

void write(writer& out, const hand_over_message& x) {
  out.flag(x.open);
  out.fixed(x.floor);
  write_list(out, x.holds);
}

void read(reader& in, hand_over_message& x) {
  x.open = in.flag("open");
  x.floor = in.fixed("floor");
  read_list(in, "holds", 9, x.holds);
}

void write(writer& out, const hand_over_ack_message& x) {
  out.number(x.installed);
}

void read(reader& in, hand_over_ack_message& x) {
  x.installed = in.small<std::uint32_t>("installed");
}

void write(writer& out, const waits_elsewhere_message& x) {
  write(out, x.id);
  out.number(x.attempt);
}

void read(reader& in, waits_elsewhere_message& x) {
  read(in, x.id);
  x.attempt = in.small<attempt_number>("attempt");
}

void write(writer& out, const wait_name& x) {
  write(out, x.session);
  write_place(out, x.request.home);
  out.number(x.request.serial);
  out.number(x.attempt);
  write_place(out, x.node);
}

void read(reader& in, wait_name& x) {
  read(in, x.session);
  x.request.home = read_place(in, "wait.home");
  x.request.serial = in.number("wait.serial");
  x.attempt = in.small<attempt_number>("wait.attempt");
  x.node = read_place(in, "wait.node");
}

void write(writer& out, const attempt_name& x) {
  write(out, x.request);
  out.number(x.attempt);
}

void read(reader& in, attempt_name& x) {
  read(in, x.request);
  x.attempt = in.small<attempt_number>("except.attempt");
}

void write(writer& out, const blocker& x) {
  write(out, x.session);
  write(out, x.request);
  out.number(x.attempt);
  out.byte(static_cast<std::uint8_t>(x.how));
  out.flag(x.kept);
  out.byte(static_cast<std::uint8_t>(x.said));
  write(out, x.age);
}

void read(reader& in, blocker& x) {
  read(in, x.session);
  read(in, x.request);
  x.attempt = in.small<attempt_number>("blocker.attempt");
  x.how = in.choice("blocker.how", blocker::kind::direct_hold,
                    blocker::kind::queued);
  x.kept = in.flag("blocker.kept");
  x.said = in.choice("blocker.said", standing::none, standing::whole);
  read(in, x.age);
}

void write(writer& out, const wait_question& x) {
  write(out, x.wait);
  write_list(out, x.except);
}

void read(reader& in, wait_question& x) {
  read(in, x.wait);
  read_list(in, "except", 3, x.except);
}

void write(writer& out, const session_waits& x) {
  write(out, x.session);
  write_list(out, x.waits);
}

void read(reader& in, session_waits& x) {
  read(in, x.session);
  read_list(in, "waits", 6, x.waits);
}

void write(writer& out, const blocked_wait& x) {
  write(out, x.wait);
  write_term(out, x.what, x.mode);
  write_list(out, x.by);
}

void read(reader& in, blocked_wait& x) {
  read(in, x.wait);
  read_term(in, x.what, x.mode);
  read_list(in, "by", 11, x.by);
}

void write(writer& out, const walk_claim& x) {
  write(out, x.wait);
  write(out, x.by);
  write_term(out, x.what, x.mode);
  write_place(out, x.node);
}

void read(reader& in, walk_claim& x) {
  read(in, x.wait);
  read(in, x.by);
  read_term(in, x.what, x.mode);
  x.node = read_place(in, "claim.node");
}

void write(writer& out, const walk_standing& x) {
  out.flag(x.waits);
  out.byte(static_cast<std::uint8_t>(x.how));
  write(out, x.age);
}

void read(reader& in, walk_standing& x) {
  x.waits = in.flag("waits");
  x.how = in.choice("standing", standing::none, standing::whole);
  read(in, x.age);
}

void write(writer& out, const cycle_step& x) {
  write(out, x.session);
  write_term(out, x.what, x.mode);
  write_place(out, x.node);
}

void read(reader& in, cycle_step& x) {
  read(in, x.session);
  read_term(in, x.what, x.mode);
  x.node = read_place(in, "step.node");
}

void write(writer& out, const walk_question_message& x) {
  out.number(x.walk);
  out.number(x.step);
  out.number(x.budget);
  write(out, x.origin);
  write_list(out, x.sessions);
  write_list(out, x.waits);
  write_list(out, x.claims);
}

void read(reader& in, walk_question_message& x) {
  x.walk = in.number("walk");
  x.step = in.small<std::uint32_t>("step");
  x.budget = in.small<std::uint32_t>("budget");
  read(in, x.origin);
  read_list(in, "sessions", 2, x.sessions);
  read_list(in, "waits", 7, x.waits);
  read_list(in, "claims", 21, x.claims);
}

void write(writer& out, const walk_answer_message& x) {
  out.number(x.walk);
  out.number(x.step);
  out.flag(x.cut_short);
  out.number(x.own_ends);
  write_list(out, x.sessions);
  write_list(out, x.waits);
  write_list(out, x.standings);
}

void read(reader& in, walk_answer_message& x) {
  x.walk = in.number("walk");
  x.step = in.small<std::uint32_t>("step");
  x.cut_short = in.flag("cut_short");
  x.own_ends = in.number("own_ends");
  read_list(in, "sessions", 3, x.sessions);
  read_list(in, "waits", 10, x.waits);
  read_list(in, "standings", 5, x.standings);
}

void write(writer& out, const walk_verdict_message& x) {
  ensure(x.why == outcome::pending || x.why == outcome::deadlock
           || x.why == outcome::probe_limit,
         "a search comes to one of three verdicts");
  write(out, x.session);
  write(out, x.request);
  out.number(x.attempt);
  out.byte(x.why == outcome::pending    ? 0
           : x.why == outcome::deadlock ? 1
                                        : 2);
  write_list(out, x.cycle);
}

void read(reader& in, walk_verdict_message& x) {
  read(in, x.session);
  read(in, x.request);
  x.attempt = in.small<attempt_number>("attempt");
  constexpr std::array whys{outcome::pending, outcome::deadlock,
                            outcome::probe_limit};
  x.why = whys[in.choice<std::uint8_t>("why", 0, 2)];
  read_list(in, "cycle", 6, x.cycle);
}

void write(writer& out, const message& x) {
  out.byte(static_cast<std::uint8_t>(x.index()));
  std::visit([&](const auto& y) { write(out, y); }, x);
}

template <std::size_t I = 0>
void read_alternative(reader& in, std::size_t index, message& x) {
  if constexpr (I < std::variant_size_v<message>) {
    if (index == I) {
      in.kind(name_of(message{std::in_place_index<I>}));
      read(in, x.emplace<I>());
    } else {
      read_alternative<I + 1>(in, index, x);
    }
  }
}

void read(reader& in, message& x) {
  constexpr std::uint8_t last = std::variant_size_v<message> - 1;
  auto index = in.choice<std::uint8_t>("kind", 0, last);
  if (in.good())
    read_alternative(in, index, x);
}

// -- frames -------------------------------------------------------------------

/// What all versions begin with.
void write_start(writer& out, std::uint32_t version, std::string_view name,
                 std::uint64_t nonce) {
  ensure(!name.empty() && name.size() <= max_node_name, "a node has a name");
  out.raw(std::as_bytes(std::span{magic}));
  out.number(version);
  out.text(name);
  out.fixed(nonce);
}

void read_start(reader& in, std::uint32_t& version, std::string& name,
                std::uint64_t& nonce) {
  auto mark = in.raw("magic", magic.size());
  if (in.good() && !std::ranges::equal(mark, std::as_bytes(std::span{magic})))
    in.fail("magic", 1, "this is not pawl");
  version = in.small<std::uint32_t>("version");
  name = in.text("name", 1, max_node_name);
  nonce = in.fixed("nonce");
}

void write(writer& out, const introduction& x, std::uint64_t nonce) {
  ensure(x.names.size() <= max_nodes, "no more names than slots");
  write_start(out, x.version, x.name, nonce);
  out.fixed(x.fingerprint);
  out.text(x.called);
  out.number(x.names.size());
  for (const auto& name : x.names)
    out.text(name);
  out.fixed(x.who.hi);
  out.fixed(x.who.lo);
  out.text(x.address);
  out.number(x.node_timeout_ms);
  out.number(x.heartbeat_ms);
  out.number(x.window);
  out.fixed(x.floor);
  out.number(x.lamport);
}

/// False if the rest is of another version.
bool read(reader& in, introduction& x, std::uint64_t& nonce) {
  read_start(in, x.version, x.name, nonce);
  if (x.version != protocol_version)
    return false;
  x.fingerprint = in.fixed("fingerprint");
  x.called = in.text("called", 0, max_node_name);
  auto n = in.count("names", 2, max_nodes);
  for (std::size_t i = 0; i < n && in.good(); ++i)
    x.names.push_back(in.text("names", 1, max_node_name));
  x.who.hi = in.fixed("incarnation");
  x.who.lo = in.fixed("incarnation");
  x.address = in.text("address", 0, max_address);
  x.node_timeout_ms = in.small<std::uint32_t>("node-timeout");
  x.heartbeat_ms = in.small<std::uint32_t>("heartbeat-interval");
  x.window = in.small<std::uint32_t>("window");
  x.floor = in.fixed("floor");
  x.lamport = in.number("lamport");
  return true;
}

link_epoch read_epoch(reader& in) {
  auto at = in.position();
  auto result = in.fixed("epoch");
  if (in.good() && result == 0)
    in.fail("epoch", at, "0 is never drawn");
  return result;
}

void write(writer& out, const hello& x) {
  write(out, x.self, x.nonce);
}

void read(reader& in, hello& x) {
  if (read(in, x.self, x.nonce))
    in.end();
}

void write(writer& out, const welcome& x) {
  write(out, x.self, x.nonce);
  out.fixed(x.epoch);
}

void read(reader& in, welcome& x) {
  if (!read(in, x.self, x.nonce))
    return;
  x.epoch = read_epoch(in);
  in.end();
}

void write(writer& out, const reject& x) {
  write_start(out, x.version, x.name, x.nonce);
  out.byte(static_cast<std::uint8_t>(x.kind));
  out.text(x.why);
}

void read(reader& in, reject& x) {
  read_start(in, x.version, x.name, x.nonce);
  x.kind = in.choice("kind", reject_kind::mismatch, last_reject_kind);
  x.why = in.text("why", 0, max_sentence);
  if (x.version == protocol_version)
    in.end();
}

void write_batch_start(writer& out, link_epoch epoch, std::uint64_t seq,
                       std::uint64_t ack, std::uint64_t lamport,
                       const std::vector<std::string>& scopes,
                       std::size_t items) {
  out.byte(static_cast<std::uint8_t>(kind::batch));
  out.fixed(epoch);
  out.number(seq);
  out.number(ack);
  out.number(lamport);
  out.number(scopes.size());
  for (const auto& scope : scopes)
    out.text(scope);
  out.number(items);
}

void read(reader& in, batch& x) {
  x.epoch = read_epoch(in);
  x.seq = in.number("seq");
  x.ack = in.number("ack");
  x.lamport = in.number("lamport");
  auto scopes = in.count("scopes", 1, max_batch_messages);
  for (std::size_t i = 0; i < scopes && in.good(); ++i)
    x.scopes.push_back(in.bytes_as_string("scopes", 0, max_scope_name));
  auto items = in.count("items", 2, max_batch_messages);
  x.items.reserve(items);
  for (std::size_t i = 0; i < items && in.good(); ++i) {
    auto& item = x.items.emplace_back();
    in.kind("batch");
    auto at = in.position();
    auto place = in.number("scope");
    if (in.good() && place >= x.scopes.size())
      in.fail("scope", at, fmt::format("there is no scope {} in it", place));
    item.scope = static_cast<std::uint16_t>(place);
    read(in, item.what);
  }
  in.kind("batch");
  in.end();
}

void write(writer& out, const ack& x) {
  out.fixed(x.epoch);
  out.number(x.seq);
}

void read(reader& in, ack& x) {
  x.epoch = read_epoch(in);
  x.seq = in.number("seq");
  in.end();
}

void write(writer& out, const heartbeat& x) {
  out.fixed(x.epoch);
  out.number(x.ack);
  out.fixed(x.floor);
  out.number(x.lamport);
  out.number(x.stamp);
  out.number(x.echo);
  out.flag(x.ask);
}

void read(reader& in, heartbeat& x) {
  x.epoch = read_epoch(in);
  x.ack = in.number("ack");
  x.floor = in.fixed("floor");
  x.lamport = in.number("lamport");
  x.stamp = in.number("stamp");
  x.echo = in.number("echo");
  x.ask = in.flag("ask");
  in.end();
}

void write(writer& out, const goodbye& x) {
  out.fixed(x.epoch);
  out.text(x.why);
}

void read(reader& in, goodbye& x) {
  x.epoch = read_epoch(in);
  x.why = in.text("why", 0, max_sentence);
  in.end();
}

template <std::size_t I = 0>
void read_alternative(reader& in, std::size_t index, frame& x) {
  if constexpr (I < std::variant_size_v<frame>) {
    if (index == I)
      read(in, x.emplace<I>());
    else
      read_alternative<I + 1>(in, index, x);
  }
}

} // namespace

// -- public -------------------------------------------------------------------

std::string_view name_of(const frame& x) noexcept {
  return kind_names[x.index()];
}

std::string to_string(const malformed& x) {
  return fmt::format("{} at byte {}: {}", x.field, x.offset, x.why);
}

bytes encode(const frame& x) {
  if (const auto* whole = std::get_if<batch>(&x)) {
    bytes result;
    writer out{result};
    write_batch_start(out, whole->epoch, whole->seq, whole->ack, whole->lamport,
                      whole->scopes, whole->items.size());
    for (const auto& item : whole->items) {
      ensure(item.scope < whole->scopes.size(), "a message has a scope");
      out.number(item.scope);
      write(out, item.what);
    }
    return result;
  }
  bytes result;
  writer out{result};
  out.byte(static_cast<std::uint8_t>(x.index()));
  std::visit(
    [&](const auto& y) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(y)>, batch>)
        write(out, y);
    },
    x);
  return result;
}

decoded<frame> decode(std::span<const std::byte> in) {
  if (in.size() > max_frame_size)
    return malformed{
      "frame.size", 0,
      fmt::format("{} bytes are more than {}", in.size(), max_frame_size)};
  reader r{in, "frame"};
  constexpr std::uint8_t last = std::variant_size_v<frame> - 1;
  auto index = r.choice<std::uint8_t>("kind", 0, last);
  frame result;
  if (r.good()) {
    r.kind(kind_names[index]);
    read_alternative(r, index, result);
  }
  if (!r.good())
    return r.take_error();
  return result;
}

bytes encode_message(const message& x) {
  bytes result;
  writer out{result};
  write(out, x);
  return result;
}

decoded<message> decode_message(std::span<const std::byte> in) {
  reader r{in, "message"};
  message result;
  read(r, result);
  r.end();
  if (!r.good())
    return r.take_error();
  return result;
}

// -- batch_writer -------------------------------------------------------------

bool batch_writer::add(std::string_view scope, const message& what) {
  ensure(scope.size() <= max_scope_name, "the name of a scope is too long");
  auto before = body_.size();
  auto place = last_;
  if (place >= scopes_.size() || scopes_[place] != scope)
    place = static_cast<std::size_t>(
      std::find(scopes_.begin(), scopes_.end(), scope) - scopes_.begin());
  writer out{body_};
  out.number(place);
  write(out, what);
  if (body_.size() - before > max_message_size) {
    body_.resize(before);
    return false;
  }
  if (place == scopes_.size())
    scopes_.emplace_back(scope);
  last_ = place;
  ++count_;
  return true;
}

bytes batch_writer::finish(link_epoch epoch, std::uint64_t seq,
                           std::uint64_t ack, std::uint64_t lamport) {
  bytes result;
  result.reserve(body_.size() + 128);
  writer out{result};
  write_batch_start(out, epoch, seq, ack, lamport, scopes_, count_);
  out.raw(body_);
  scopes_.clear();
  last_ = 0;
  body_.clear();
  count_ = 0;
  return result;
}

} // namespace pawl::wire
