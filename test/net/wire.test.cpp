#include "pawl/net/wire.hpp"

#include <gtest/gtest.h>

#include <random>

using namespace pawl;
using namespace pawl::wire;

namespace {

// -- generators: values of all shapes from a seed -----------------------------

class maker {
public:
  explicit maker(std::uint64_t seed) : random_(seed) {
    // nop
  }

  std::uint64_t below(std::uint64_t n) {
    return random_() % n;
  }

  /// Numbers of all lengths, small ones often.
  std::uint64_t number() {
    return random_() >> below(64);
  }

  std::string word(std::size_t longest) {
    std::string result(1 + below(longest), 'x');
    for (auto& c : result)
      c = static_cast<char>('a' + below(26));
    return result;
  }

  node_slot slot() {
    return static_cast<node_slot>(below(max_nodes));
  }

  request_id request() {
    return {slot(), number()};
  }

  session_id session() {
    return {slot(), number()};
  }

  session_age age() {
    if (below(2) == 0)
      return {};
    return {number(), session()};
  }

  attempt_number attempt() {
    return static_cast<attempt_number>(number());
  }

  pawl::term term() {
    if (below(2) == 0)
      return pawl::term{number()};
    std::string text(below(200), '\0');
    for (auto& c : text)
      c = static_cast<char>(below(256));
    return pawl::term{text};
  }

  std::vector<fencing_token> tokens(std::size_t n) {
    std::vector<fencing_token> result(n);
    for (auto& x : result)
      x = number();
    return result;
  }

  std::vector<term_lock> terms() {
    std::vector<term_lock> result;
    for (auto n = below(5); n > 0; --n)
      result.push_back({term(), below(2) == 0 ? shared : exclusive});
    return result;
  }

  handed_over hold() {
    handed_over x;
    x.id = request();
    x.attempt = attempt();
    x.session = session();
    x.age = age();
    x.terms = terms();
    x.tokens = tokens(x.terms.size());
    return x;
  }

  node_slot place() {
    return below(5) == 0 ? no_node : slot();
  }

  wait_name wait() {
    auto id = request();
    if (below(5) == 0)
      id.home = no_node;
    return {session(), id, attempt(), place()};
  }

  lock_mode mode() {
    return below(2) == 0 ? shared : exclusive;
  }

  pawl::standing how() {
    return static_cast<pawl::standing>(below(3));
  }

  pawl::blocker blocker() {
    return {session(),       request(), attempt(),
            static_cast<pawl::blocker::kind>(below(3)),
            below(2) == 0, how(), age()};
  }

  template <class F>
  auto some(F f) {
    std::vector<decltype(f())> result;
    for (auto n = below(4); n > 0; --n)
      result.push_back(f());
    return result;
  }

  pawl::message message(std::size_t kind) {
    switch (kind) {
      case 0: {
        request_message x;
        x.id = request();
        x.attempt = attempt();
        x.session = session();
        x.age = age();
        x.terms = terms();
        x.carried = tokens(x.terms.size());
        x.adopt = below(2) == 0;
        x.no_wait = below(2) == 0;
        x.elsewhere = below(2) == 0;
        x.patient = below(2) == 0;
        return x;
      }
      case 1:
        return granted_message{request(), attempt(), tokens(below(5))};
      case 2: {
        auto why = 2 + below(static_cast<std::uint64_t>(last_outcome) - 1);
        return refused_message{request(), attempt(), static_cast<outcome>(why)};
      }
      case 3:
        return abandon_message{request(), attempt()};
      case 4: {
        release_message x{request(), {}};
        for (auto n = below(4); n > 0; --n)
          x.which.push_back(static_cast<std::uint16_t>(number()));
        return x;
      }
      case 5:
        return downgrade_message{request(),
                                 static_cast<std::uint16_t>(number())};
      case 6:
        return raise_message{request(), attempt(), tokens(below(5)),
                             below(2) == 1};
      case 7:
        return raised_message{request(), attempt()};
      case 8:
        return lost_message{request(), static_cast<std::uint16_t>(number()),
                            below(2) == 0};
      case 9:
        return scope_opened_message{number()};
      case 10:
        return scope_closed_message{};
      case 11: {
        hand_over_message x;
        x.open = below(2) == 0;
        for (auto n = below(4); n > 0; --n)
          x.holds.push_back(hold());
        x.floor = number();
        return x;
      }
      case 13:
        return waits_elsewhere_message{request(), attempt()};
      case 14: {
        walk_question_message x;
        x.walk = number();
        x.step = static_cast<std::uint32_t>(number());
        x.budget = static_cast<std::uint32_t>(number());
        x.origin = wait();
        x.sessions = some([this] { return session(); });
        x.waits = some([this] {
          return wait_question{wait(), some([this] {
                                 return attempt_name{request(), attempt()};
                               })};
        });
        x.claims = some([this] {
          return walk_claim{wait(), blocker(), term(), mode(), place()};
        });
        return x;
      }
      case 15: {
        walk_answer_message x;
        x.walk = number();
        x.step = static_cast<std::uint32_t>(number());
        x.cut_short = below(2) == 0;
        x.own_ends = number();
        x.sessions = some([this] {
          return session_waits{session(), some([this] { return wait(); })};
        });
        x.waits = some([this] {
          return blocked_wait{wait(), term(), mode(),
                              some([this] { return blocker(); })};
        });
        x.standings = some([this] {
          return walk_standing{below(2) == 0, how(), age()};
        });
        return x;
      }
      case 16: {
        outcome whys[]{outcome::pending, outcome::deadlock,
                       outcome::probe_limit};
        return walk_verdict_message{
          session(), request(), attempt(), whys[below(3)], some([this] {
            return cycle_step{session(), term(), mode(), place()};
          })};
      }
      case 17:
        return scope_closed_ack_message{};
      default:
        return hand_over_ack_message{static_cast<std::uint32_t>(number())};
    }
  }

  pawl::message message() {
    return message(below(std::variant_size_v<pawl::message>));
  }

  introduction self() {
    introduction x;
    x.name = word(20);
    x.fingerprint = number();
    x.called = word(20);
    for (auto n = below(10); n > 0; --n)
      x.names.push_back(word(max_node_name));
    x.who = {number(), number()};
    x.address = word(40);
    x.node_timeout_ms = static_cast<std::uint32_t>(number());
    x.heartbeat_ms = static_cast<std::uint32_t>(number());
    x.window = static_cast<std::uint32_t>(number());
    x.floor = number();
    x.lamport = number();
    return x;
  }

  link_epoch epoch() {
    return 1 + number() / 2;
  }

  wire::frame frame() {
    switch (below(std::variant_size_v<wire::frame>)) {
      case 0:
        return hello{self(), number()};
      case 1:
        return welcome{self(), number(), epoch()};
      case 2:
        return reject{protocol_version, word(20), number(),
                      static_cast<reject_kind>(below(3)), word(100)};
      case 3: {
        batch x{epoch(), number(), number(), number(), {}, {}};
        for (auto n = 1 + below(3); n > 0; --n)
          x.scopes.push_back(word(30));
        for (auto n = below(20); n > 0; --n)
          x.items.push_back(
            {static_cast<std::uint16_t>(below(x.scopes.size())), message()});
        return x;
      }
      case 4:
        return ack{epoch(), number()};
      case 5:
        return heartbeat{epoch(),  number(), number(),     number(),
                         number(), number(), below(2) == 0};
      default:
        return goodbye{epoch(), word(100)};
    }
  }

private:
  std::mt19937_64 random_;
};

template <class T>
std::string error_of(const decoded<T>& x) {
  auto* error = std::get_if<malformed>(&x);
  return error != nullptr ? to_string(*error) : "none";
}

/// A heartbeat's bytes, as an example to spoil: kind, epoch (8), ack, ...
bytes example() {
  return encode(heartbeat{7, 1, 2, 3, 4, 5, true});
}

} // namespace

// -- what is written is read --------------------------------------------------

TEST(wire, every_kind_of_message_survives_the_way) {
  maker make{1};
  for (std::size_t kind = 0; kind < std::variant_size_v<message>; ++kind) {
    for (int i = 0; i < 200; ++i) {
      auto x = make.message(kind);
      auto y = decode_message(encode_message(x));
      ASSERT_TRUE(std::holds_alternative<message>(y))
        << name_of(x) << ": " << error_of(y);
      ASSERT_EQ(std::get<message>(y), x) << name_of(x);
    }
  }
}

TEST(wire, every_kind_of_frame_survives_the_way) {
  maker make{2};
  for (int i = 0; i < 2000; ++i) {
    auto x = make.frame();
    auto y = decode(encode(x));
    ASSERT_TRUE(std::holds_alternative<frame>(y))
      << name_of(x) << ": " << error_of(y);
    ASSERT_EQ(std::get<frame>(y), x) << name_of(x);
  }
}

TEST(wire, the_largest_term_survives_and_a_larger_one_is_refused) {
  request_message x;
  x.id = {node_slot{1}, 1};
  x.session = {node_slot{1}, 1};
  x.terms.push_back({term{std::string(term::max_size - 1, 'x')}, exclusive});
  x.carried.push_back(0);
  auto good = encode_message(x);
  EXPECT_EQ(std::get<message>(decode_message(good)), message{x});
  // kind, id (2), attempt, session (2), age (4), flags, terms, mode: 13 bytes.
  auto bad = good;
  ASSERT_EQ(bad[13], std::byte{0x80});
  bad[13] = std::byte{0x81};
  bad.push_back(std::byte{0});
  EXPECT_EQ(error_of(decode_message(bad)),
            "request.term at byte 13: a length of 65537 is not within 1 and "
            "65536");
}

TEST(wire, a_session_that_holds_nothing_takes_one_byte_of_age) {
  session_age oldest{0, {node_slot{1}, 1}};
  request_message young{{node_slot{1}, 1}, 0, {node_slot{1}, 1}, {}, {}, {}};
  request_message old = young;
  old.age = oldest;
  EXPECT_EQ(encode_message(young).size(), encode_message(old).size() + 1);
  EXPECT_EQ(std::get<message>(decode_message(encode_message(old))),
            message{old});
}

TEST(wire, a_batch_is_the_same_whether_written_at_once_or_piece_by_piece) {
  maker make{3};
  for (int round = 0; round < 100; ++round) {
    batch_writer pieces;
    batch whole{make.epoch(), 5, 6, 7, {}, {}};
    for (auto n = make.below(30); n > 0; --n) {
      auto scope = make.word(2);
      auto what = make.message();
      ASSERT_TRUE(pieces.add(scope, what));
      auto i = std::find(whole.scopes.begin(), whole.scopes.end(), scope);
      auto place = static_cast<std::uint16_t>(i - whole.scopes.begin());
      if (i == whole.scopes.end())
        whole.scopes.push_back(scope);
      whole.items.push_back({place, what});
    }
    EXPECT_EQ(pieces.finish(whole.epoch, 5, 6, 7), encode(frame{whole}));
    EXPECT_TRUE(pieces.empty());
  }
}

TEST(wire, a_message_that_is_too_large_leaves_its_batch_as_it_was) {
  batch_writer out;
  ASSERT_TRUE(out.add("a", scope_closed_message{}));
  granted_message large{{node_slot{1}, 1}, 0, {}};
  large.tokens.resize(max_message_size / 8);
  EXPECT_FALSE(out.add("b", large));
  auto x = std::get<frame>(decode(out.finish(1, 1, 0, 0)));
  EXPECT_EQ(std::get<batch>(x).scopes, std::vector<std::string>{"a"});
}

// -- what is not ours is refused ----------------------------------------------

TEST(wire, an_error_names_the_field_and_where_it_begins) {
  auto cut = example();
  cut.resize(5);
  EXPECT_EQ(error_of(decode(cut)),
            "heartbeat.epoch at byte 1: the frame ends within it");
  auto longer = example();
  longer.push_back(std::byte{0});
  EXPECT_EQ(error_of(decode(longer)),
            "heartbeat.end at byte 22: 1 bytes follow it");
  auto flag = example();
  flag.back() = std::byte{2};
  EXPECT_EQ(error_of(decode(flag)),
            "heartbeat.ask at byte 21: 2 is neither 0 nor 1");
  auto kind = example();
  kind[0] = std::byte{7};
  EXPECT_EQ(error_of(decode(kind)),
            "frame.kind at byte 0: 7 is not one of its values");
  EXPECT_EQ(error_of(decode({})),
            "frame.kind at byte 0: the frame ends within it");
  auto epoch = example();
  epoch[1] = std::byte{0};
  EXPECT_EQ(error_of(decode(epoch)),
            "heartbeat.epoch at byte 1: 0 is never drawn");
}

TEST(wire, a_number_has_one_form_only) {
  bytes overlong{std::byte{4}, std::byte{1},    std::byte{0}, std::byte{0},
                 std::byte{0}, std::byte{0},    std::byte{0}, std::byte{0},
                 std::byte{0}, std::byte{0x81}, std::byte{0}};
  EXPECT_EQ(error_of(decode(overlong)),
            "ack.seq at byte 9: the number is not in its shortest form");
  bytes wide(9, std::byte{0});
  wide[0] = std::byte{4};
  wide[1] = std::byte{1};
  wide.insert(wide.end(), 10, std::byte{0xff});
  EXPECT_EQ(error_of(decode(wide)),
            "ack.seq at byte 9: the number has more than 64 bits");
}

TEST(wire, a_mode_or_an_outcome_that_does_not_exist_is_refused) {
  auto refused
    = encode_message(refused_message{{node_slot{1}, 1}, 0, outcome::busy});
  for (int why : {0, 1, static_cast<int>(last_outcome) + 1, 255}) {
    refused.back() = static_cast<std::byte>(why);
    EXPECT_NE(error_of(decode_message(refused)), "none") << why;
  }
  request_message x{{node_slot{1}, 1}, 0, {node_slot{1}, 1}, {}, {}, {}};
  x.terms.push_back({term{1}, shared});
  x.carried.push_back(0);
  auto request = encode_message(x);
  auto mode = request.size() - 8 - 2 - 1 - 1;
  ASSERT_EQ(request[mode], std::byte{1});
  for (int bad : {0, 3, 255}) {
    request[mode] = static_cast<std::byte>(bad);
    EXPECT_NE(error_of(decode_message(request)), "none") << bad;
  }
}

TEST(wire, a_slot_beyond_all_nodes_is_refused) {
  auto x = encode_message(abandon_message{{node_slot{127}, 1}, 0});
  EXPECT_EQ(error_of(decode_message(x)), "none");
  auto y = encode_message(abandon_message{{node_slot{128}, 1}, 0});
  EXPECT_EQ(error_of(decode_message(y)),
            "abandon.id.home at byte 1: 128 is larger than 127");
}

TEST(wire, a_length_that_lies_costs_no_memory) {
  // A hand-over that claims 2^60 holds.
  bytes lie{std::byte{11}, std::byte{1}};
  lie.insert(lie.end(), 8, std::byte{0});
  lie.insert(lie.end(), 8, std::byte{0x80});
  lie.push_back(std::byte{0x10});
  EXPECT_EQ(error_of(decode_message(lie)),
            "hand_over.holds at byte 10: 1152921504606846976 elements do not "
            "fit into the 0 bytes left");
}

TEST(wire, a_hello_of_another_version_says_at_least_version_and_name) {
  hello x;
  x.self.name = "alpha";
  x.self.version = protocol_version + 1;
  x.nonce = 9;
  auto raw = encode(frame{x});
  // Whatever that version puts behind, we do not know it.
  raw.resize(1 + 4 + 1 + 6 + 8);
  raw.push_back(std::byte{0xee});
  auto y = std::get<hello>(std::get<frame>(decode(raw)));
  EXPECT_EQ(y.self.version, protocol_version + 1);
  EXPECT_EQ(y.self.name, "alpha");
  EXPECT_EQ(y.nonce, 9u);
}

TEST(wire, a_name_with_control_characters_does_not_reach_a_log) {
  hello x;
  x.self.name = "al\npha";
  EXPECT_EQ(error_of(decode(encode(frame{x}))),
            "hello.name at byte 6: it has control characters");
}

// -- whatever comes -----------------------------------------------------------

TEST(wire, no_prefix_of_a_frame_is_a_frame) {
  maker make{4};
  for (int i = 0; i < 300; ++i) {
    auto whole = encode(make.frame());
    for (std::size_t size = 0; size < whole.size(); ++size) {
      auto cut = decode(std::span{whole}.first(size));
      ASSERT_TRUE(std::holds_alternative<malformed>(cut))
        << "seed 4, frame " << i << ", " << size << " bytes";
    }
  }
}

TEST(wire, what_decodes_after_damage_encodes_to_the_same_bytes) {
  maker make{5};
  std::size_t intact = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto raw = encode(make.frame());
    for (auto n = 1 + make.below(4); n > 0; --n)
      raw[make.below(raw.size())] = static_cast<std::byte>(make.below(256));
    auto x = decode(raw);
    if (auto* y = std::get_if<frame>(&x)) {
      const auto* h = std::get_if<hello>(y);
      const auto* w = std::get_if<welcome>(y);
      const auto* r = std::get_if<reject>(y);
      if ((h != nullptr && h->self.version != protocol_version)
          || (w != nullptr && w->self.version != protocol_version)
          || (r != nullptr && r->version != protocol_version))
        continue;
      ASSERT_EQ(encode(*y), raw) << "seed 5, frame " << i;
      ++intact;
    }
  }
  EXPECT_GT(intact, 1000u);
}

TEST(wire, random_bytes_never_do_harm) {
  maker make{6};
  for (int i = 0; i < 50'000; ++i) {
    bytes raw(make.below(100));
    for (auto& x : raw)
      x = static_cast<std::byte>(make.below(256));
    if (!raw.empty())
      raw[0] = static_cast<std::byte>(make.below(8));
    (void) decode(raw);
    (void) decode_message(raw);
  }
}
