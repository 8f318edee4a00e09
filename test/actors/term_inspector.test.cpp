#include "pawl/actors/term_inspector.hpp"

#include "pawl/core/term.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>

namespace term_inspector_test {

enum class mark : std::uint8_t { red, green };

enum class temperature : int { cold = -5 };

struct spot {
  int x = 0;
  int y = 0;
};

PAWL_INSPECT(spot, x, y)

struct line {
  spot from;
  spot to;
  std::string name;
};

PAWL_INSPECT(line, from, to, name)

struct other_line {
  spot a;
  spot b;
  std::string c;
};

PAWL_INSPECT(other_line, a, b, c)

struct bag {
  std::vector<spot> points;
  std::optional<std::string> note;
  std::map<std::string, int> counts;
};

PAWL_INSPECT(bag, points, note, counts)

} // namespace term_inspector_test

// Apart from those of pawl's own actors and of other tests of the program.
CAF_BEGIN_TYPE_ID_BLOCK(term_inspector_test, pawl::compat::next_type_id + 100)

CAF_ADD_ATOM(term_inspector_test, term_inspector_test, this_atom, "this")
CAF_ADD_ATOM(term_inspector_test, term_inspector_test, that_atom, "that")

CAF_END_TYPE_ID_BLOCK(term_inspector_test)

namespace {

using namespace std::literals;
using namespace term_inspector_test;

using bytes = std::vector<std::byte>;

template <class T>
bytes canonical(const T& x) {
  bytes result;
  pawl::to_canonical(result, x);
  return result;
}

template <class... Ts>
bytes raw(Ts... xs) {
  return {static_cast<std::byte>(xs)...};
}

template <class T>
bytes core(const T& x) {
  pawl::term result{x};
  auto span = result.bytes();
  return {span.begin(), span.end()};
}

TEST(term_inspector, integers_are_their_minimal_big_endian_bytes) {
  EXPECT_EQ(canonical(0), raw(1));
  EXPECT_EQ(canonical(1), raw(1, 1));
  EXPECT_EQ(canonical(255), raw(1, 255));
  EXPECT_EQ(canonical(256), raw(1, 1, 0));
  EXPECT_EQ(canonical(-1), raw(2));
  EXPECT_EQ(canonical(-2), raw(2, 1));
  EXPECT_EQ(canonical(-257), raw(2, 1, 0));
  EXPECT_EQ(canonical(std::numeric_limits<std::uint64_t>::max()),
            raw(1, 255, 255, 255, 255, 255, 255, 255, 255));
  EXPECT_EQ(canonical(std::numeric_limits<std::int64_t>::min()),
            raw(2, 127, 255, 255, 255, 255, 255, 255, 255));
}

TEST(term_inspector, integers_of_any_width_and_sign_are_equal_by_value) {
  EXPECT_EQ(canonical(std::int8_t{5}), canonical(std::uint64_t{5}));
  EXPECT_EQ(canonical(short{-5}), canonical(-5ll));
  EXPECT_EQ(canonical('A'), canonical(65));
  EXPECT_EQ(canonical(mark::green), canonical(1));
  EXPECT_EQ(canonical(temperature::cold), canonical(-5));
  EXPECT_NE(canonical(std::uint32_t(-1)), canonical(-1));
}

TEST(term_inspector, integers_and_strings_are_what_core_makes_of_them) {
  EXPECT_EQ(canonical(0), core(0));
  EXPECT_EQ(canonical(70000), core(70000));
  EXPECT_EQ(canonical(-70000), core(-70000));
  EXPECT_EQ(canonical("tag"), core("tag"));
  EXPECT_EQ(canonical(std::string(100, 'x')), core(std::string(100, 'x')));
  EXPECT_EQ(canonical("\0\xff"sv), core("\0\xff"sv));
}

TEST(term_inspector, strings_of_any_type_are_their_bytes) {
  auto expected = raw(3, 't', 'a', 'g');
  const char* ptr = "tag";
  const char array[8] = "tag";
  const char unterminated[3] = {'t', 'a', 'g'};
  EXPECT_EQ(canonical("tag"), expected);
  EXPECT_EQ(canonical("tag"s), expected);
  EXPECT_EQ(canonical("tag"sv), expected);
  EXPECT_EQ(canonical(ptr), expected);
  EXPECT_EQ(canonical(array), expected);
  EXPECT_EQ(canonical(unterminated), expected);
  EXPECT_EQ(canonical(pawl::compat::string_view{"tag", 3}), expected);
  EXPECT_EQ(canonical(""), raw(3));
  EXPECT_EQ(canonical("a\0b"sv), raw(3, 'a', 0, 'b'));
  EXPECT_EQ(canonical("\xff\xfe"sv), raw(3, 0xff, 0xfe));
}

TEST(term_inspector, a_bool_is_no_integer) {
  EXPECT_EQ(canonical(true), raw(4, 1));
  EXPECT_EQ(canonical(false), raw(4, 0));
}

TEST(term_inspector, floating_point_numbers_have_one_zero_and_one_nan) {
  EXPECT_EQ(canonical(1.0), raw(5, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(canonical(0.5f), canonical(0.5));
  EXPECT_EQ(canonical(-0.0), canonical(0.0));
  EXPECT_EQ(canonical(-0.0f), canonical(0.0));
  EXPECT_EQ(canonical(std::numeric_limits<float>::signaling_NaN()),
            canonical(-std::numeric_limits<double>::quiet_NaN()));
  EXPECT_NE(canonical(1.0), canonical(1));
}

TEST(term_inspector, a_sequence_is_its_elements_in_order) {
  auto expected = raw(6, 2, 1, 1, 7, 3, 1, 'x');
  EXPECT_EQ(canonical(std::vector<int>{1, 2}), raw(6, 2, 1, 1, 1, 1, 1, 2));
  EXPECT_EQ(canonical(std::list<int>{1, 2}), canonical(std::vector{1, 2}));
  EXPECT_EQ(canonical(std::deque<int>{1, 2}), canonical(std::vector{1, 2}));
  EXPECT_EQ(canonical(std::array<int, 2>{1, 2}), canonical(std::vector{1, 2}));
  int array[] = {1, 2};
  EXPECT_EQ(canonical(array), canonical(std::vector{1, 2}));
  EXPECT_EQ(canonical(std::vector<bool>{true}), raw(6, 1, 4, 1, 1));
  EXPECT_NE(canonical(std::vector{1, 2}), canonical(std::vector{2, 1}));
  EXPECT_EQ(canonical(std::vector<std::string>{}), raw(6, 0));
}

TEST(term_inspector, elements_do_not_run_into_each_other) {
  using strings = std::vector<std::string>;
  EXPECT_NE(canonical(strings{"ab", "c"}), canonical(strings{"a", "bc"}));
  EXPECT_NE(canonical(strings{"", "a"}), canonical(strings{"a", ""}));
  EXPECT_NE(canonical(std::pair{"a"s, "b"s}), canonical(std::pair{"ab"s, ""s}));
  using nested = std::vector<std::vector<int>>;
  EXPECT_NE(canonical(nested{{1}, {2}}), canonical(nested{{1, 2}}));
  EXPECT_NE(canonical(nested{{}, {1}}), canonical(nested{{1}, {}}));
}

TEST(term_inspector, the_order_in_a_set_or_map_does_not_matter) {
  std::set<std::string> ordered{"one", "two", "three", "a long fourth one"};
  std::unordered_set<std::string> unordered{ordered.begin(), ordered.end()};
  std::set<std::string, std::greater<>> reversed{ordered.begin(),
                                                 ordered.end()};
  EXPECT_EQ(canonical(ordered), canonical(unordered));
  EXPECT_EQ(canonical(ordered), canonical(reversed));
  std::map<int, std::string> map{{-1, "x"}, {2, "y"}, {300, "z"}};
  std::unordered_map<int, std::string> hash_map{map.begin(), map.end()};
  EXPECT_EQ(canonical(map), canonical(hash_map));
  std::vector<std::string> sequence{ordered.begin(), ordered.end()};
  EXPECT_NE(canonical(ordered), canonical(sequence));
  EXPECT_EQ(canonical(std::set<int>{1}), raw(7, 1, 1, 1, 1));
  EXPECT_EQ(canonical(std::map<int, int>{{1, 2}}),
            raw(7, 1, 8, 6, 1, 1, 1, 1, 1, 2));
}

TEST(term_inspector, an_object_is_its_fields_without_names) {
  EXPECT_EQ(canonical(spot{1, -1}), raw(8, 1, 1, 1, 2, 0));
  EXPECT_EQ(canonical(spot{1, 2}), canonical(std::pair{1, 2}));
  EXPECT_EQ(canonical(spot{1, 2}), canonical(std::tuple{1u, 2ll}));
  line x{{1, 2}, {3, 4}, "l"};
  other_line y{{1, 2}, {3, 4}, "l"};
  EXPECT_EQ(canonical(x), canonical(y));
  EXPECT_EQ(canonical(x),
            canonical(std::tuple{std::pair{1, 2}, std::pair{3, 4}, "l"}));
  y.b.y = 5;
  EXPECT_NE(canonical(x), canonical(y));
}

TEST(term_inspector, objects_nest_in_containers_and_containers_in_objects) {
  bag x{{{1, 2}, {3, 4}}, "note", {{"a", 1}, {"b", 2}}};
  std::tuple y{std::vector<std::pair<int, int>>{{1, 2}, {3, 4}},
               std::optional<std::string>{"note"},
               std::unordered_map<std::string, int>{{"b", 2}, {"a", 1}}};
  EXPECT_EQ(canonical(x), canonical(y));
  auto z = x;
  z.note = std::nullopt;
  EXPECT_NE(canonical(x), canonical(z));
}

TEST(term_inspector, an_optional_is_nothing_or_a_tuple_of_one) {
  using inner = std::optional<int>;
  using outer = std::optional<inner>;
  EXPECT_EQ(canonical(inner{}), raw(9));
  EXPECT_EQ(canonical(inner{5}), raw(8, 1, 1, 5));
  EXPECT_NE(canonical(inner{5}), canonical(5));
  EXPECT_NE(canonical(outer{}), canonical(outer{inner{}}));
  EXPECT_EQ(canonical(outer{inner{}}), raw(8, 9, 0));
  EXPECT_EQ(canonical(std::make_unique<int>(5)), canonical(inner{5}));
}

TEST(term_inspector, a_variant_is_its_index_and_its_value) {
  using variant = std::variant<int, std::string, int, std::monostate>;
  EXPECT_EQ(canonical(variant{std::in_place_index<0>, 5}),
            canonical(std::pair{0, 5}));
  EXPECT_NE(canonical(variant{std::in_place_index<0>, 5}),
            canonical(variant{std::in_place_index<2>, 5}));
  EXPECT_EQ(canonical(variant{"x"}), canonical(std::pair{1, "x"}));
  EXPECT_EQ(canonical(variant{std::monostate{}}),
            canonical(std::pair{3, std::nullopt}));
}

TEST(term_inspector, bytes_are_a_kind_of_their_own) {
  auto x = raw(1, 2, 3);
  EXPECT_EQ(canonical(x), raw(10, 1, 2, 3));
  EXPECT_EQ(canonical(pawl::compat::byte_vector{x}), canonical(x));
  EXPECT_EQ(canonical(std::array{std::byte{1}, std::byte{2}, std::byte{3}}),
            canonical(x));
  EXPECT_NE(canonical(x), canonical(std::vector<int>{1, 2, 3}));
  EXPECT_NE(canonical(x), canonical("\1\2\3"));
}

TEST(term_inspector, durations_are_equal_in_any_unit) {
  EXPECT_EQ(canonical(1s), canonical(1000ms));
  EXPECT_NE(canonical(1s), canonical(1'000'000'000));
  auto now = std::chrono::system_clock::now();
  EXPECT_EQ(canonical(now), canonical(now.time_since_epoch()));
}

TEST(term_inspector, values_of_different_kinds_never_collide) {
  std::set<bytes> all{
    canonical(1),
    canonical("1"),
    canonical(true),
    canonical(1.0),
    canonical(std::vector{1}),
    canonical(std::set{1}),
    canonical(std::tuple{1}),
    canonical(raw(1)),
    canonical(std::optional<int>{}),
    canonical(std::map<int, int>{{1, 1}}),
    canonical(std::vector<std::vector<int>>{{1}}),
    canonical(1s),
  };
  EXPECT_EQ(all.size(), 12u);
  std::set<bytes> empty{
    canonical(0),
    canonical(-1),
    canonical(""),
    canonical(false),
    canonical(0.0),
    canonical(std::vector<int>{}),
    canonical(std::set<int>{}),
    canonical(bytes{}),
    canonical(std::optional<int>{}),
  };
  EXPECT_EQ(empty.size(), 9u);
}

TEST(term_inspector, long_payloads_have_long_lengths) {
  std::string text(300, 'x');
  auto x = canonical(std::vector{text});
  ASSERT_EQ(x.size(), 1 + 1 + 1 + 2 + 300u);
  EXPECT_EQ(bytes(x.begin(), x.begin() + 5), raw(6, 1, 3, 0xac, 0x02));
  // A composite whose length needs two bytes.
  auto y = canonical(std::tuple{std::vector{text}, 1});
  ASSERT_EQ(y.size(), 1 + 1 + 2 + 304 + 3u);
  EXPECT_EQ(bytes(y.begin(), y.begin() + 8),
            raw(8, 6, 0xb0, 0x02, 1, 3, 0xac, 0x02));
  EXPECT_EQ(bytes(y.end() - 3, y.end()), raw(1, 1, 1));
}

TEST(term_inspector, the_bytes_are_appended) {
  auto out = raw(42);
  pawl::to_canonical(out, std::pair{1, 2});
  EXPECT_EQ(out, raw(42, 8, 1, 1, 1, 1, 1, 2));
}

TEST(term_inspector, atoms_are_told_apart_by_their_text) {
  EXPECT_EQ(canonical(this_atom_v), canonical(std::tuple{"this"}));
  EXPECT_NE(canonical(this_atom_v), canonical(that_atom_v));
  EXPECT_NE(canonical(std::pair{this_atom_v, 1}),
            canonical(std::pair{that_atom_v, 1}));
}

TEST(term_inspector, a_handle_is_its_actor_id_and_its_node) {
  pawl::compat::init_meta<caf::id_block::term_inspector_test>();
  caf::actor_system_config cfg;
  caf::actor_system sys{cfg};
  auto f = [](caf::event_based_actor*) { return caf::behavior{[](int) {}}; };
  auto a = sys.spawn(f);
  auto b = sys.spawn(f);
  EXPECT_EQ(canonical(a), canonical(std::tuple{a.id(), to_string(a.node())}));
  EXPECT_EQ(canonical(a), canonical(a.address()));
  EXPECT_EQ(canonical(a), canonical(caf::actor_cast<caf::strong_actor_ptr>(a)));
  EXPECT_NE(canonical(a), canonical(b));
  EXPECT_EQ(canonical(caf::actor{}), raw(9));
  EXPECT_EQ(canonical(sys.node()),
            canonical(std::tuple{to_string(sys.node())}));
  // Looking at a handle does not pin the actor.
  auto addr = a.address();
  a = nullptr;
  for (int i = 0; i < 1000 && caf::actor_cast<caf::actor>(addr); ++i)
    std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(caf::actor_cast<caf::actor>(addr));
}

} // namespace
