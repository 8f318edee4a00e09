// Terms: what is the same term, what is another, and in which order.

#include "pawl/core/term.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace {

using pawl::term;

std::string bytes_of(const term& x) {
  auto all = x.bytes();
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

/// Terms of every kind and of lengths on both sides of the inline limit.
std::vector<term> zoo() {
  std::vector<term> all{term{""},
                        term{std::string(1, '\0')},
                        term{std::string(2, '\0')},
                        term{std::string("a\0b", 3)},
                        term{"a"},
                        term{"ab"},
                        term{"b"},
                        term{"\xff\xfe"},
                        term{"\xc3\xbc"},
                        term{0},
                        term{1},
                        term{-1},
                        term{255},
                        term{256},
                        term{-256},
                        term{-257},
                        term{std::numeric_limits<std::int64_t>::min()},
                        term{std::numeric_limits<std::int64_t>::max()},
                        term{std::numeric_limits<std::uint64_t>::max()},
                        term{"1"},
                        term{"-1"}};
  for (std::size_t n = 29; n <= 34; ++n)
    all.emplace_back(std::string(n, 'x'));
  all.emplace_back(std::string(1000, 'x'));
  return all;
}

TEST(term, an_integer_is_the_same_term_in_every_width) {
  EXPECT_EQ(term{std::int8_t{7}}, term{std::uint64_t{7}});
  EXPECT_EQ(term{std::int16_t{-300}}, term{std::int64_t{-300}});
  EXPECT_EQ(term{std::uint32_t{4'000'000'000}},
            term{std::int64_t{4'000'000'000}});
  EXPECT_EQ(term{std::int8_t{7}}.hash(), term{std::uint64_t{7}}.hash());
  EXPECT_NE(term{-1}, term{std::numeric_limits<std::uint64_t>::max()});
  EXPECT_NE(term{-1}, term{std::numeric_limits<std::uint32_t>::max()});
  EXPECT_NE(term{0}, term{-1});
}

TEST(term, integers_have_the_documented_bytes) {
  EXPECT_EQ(bytes_of(term{0}), std::string("\x01", 1));
  EXPECT_EQ(bytes_of(term{1}), "\x01\x01");
  EXPECT_EQ(bytes_of(term{256}), std::string("\x01\x01\x00", 3));
  EXPECT_EQ(bytes_of(term{-1}), std::string("\x02", 1));
  EXPECT_EQ(bytes_of(term{-256}), "\x02\xff");
  EXPECT_EQ(bytes_of(term{-257}), std::string("\x02\x01\x00", 3));
}

TEST(term, different_kinds_are_never_the_same) {
  EXPECT_NE(term{1}, term{"1"});
  EXPECT_NE(term{0}, term{""});
  EXPECT_NE(term{0}, term{std::string(1, '\0')});
  EXPECT_NE(term{'a'}, term{"a"});
}

TEST(term, empty_nul_and_what_is_not_utf8_are_terms_of_their_own) {
  auto all = zoo();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j)
      EXPECT_EQ(all[i] == all[j], i == j)
        << to_string(all[i]) << " and " << to_string(all[j]);
}

TEST(term, a_default_one_is_the_empty_string) {
  EXPECT_EQ(term{}, term{""});
  EXPECT_EQ(term{}.hash(), term{""}.hash());
}

TEST(term, all_kinds_of_strings_make_the_same_term) {
  const char* pointer = "tag";
  std::string string = "tag";
  std::string_view view = "tag";
  EXPECT_EQ(term{pointer}, term{string});
  EXPECT_EQ(term{view}, term{"tag"});
}

TEST(term, canonical_bytes_give_the_term_back) {
  for (auto& x : zoo()) {
    auto again = term::from_canonical(x.bytes());
    EXPECT_EQ(again, x);
    EXPECT_EQ(again.hash(), x.hash());
  }
  EXPECT_TRUE(term::from_canonical({}).bytes().empty());
}

TEST(term, the_order_is_that_of_the_bytes) {
  auto all = zoo();
  for (auto& a : all) {
    for (auto& b : all) {
      auto expected = bytes_of(a).compare(bytes_of(b));
      EXPECT_EQ(a < b, expected < 0);
      EXPECT_EQ(a == b, expected == 0);
    }
  }
}

TEST(term, the_order_does_not_depend_on_where_one_starts) {
  auto all = zoo();
  std::sort(all.begin(), all.end());
  std::mt19937 random{1};
  for (int i = 0; i < 20; ++i) {
    auto other = all;
    std::shuffle(other.begin(), other.end(), random);
    std::sort(other.begin(), other.end());
    EXPECT_EQ(other, all);
  }
}

TEST(term, copies_and_moves_keep_value_and_hash) {
  for (const auto& x : zoo()) {
    term copy{x};
    EXPECT_EQ(copy, x);
    term moved{std::move(copy)};
    EXPECT_EQ(moved, x);
    EXPECT_EQ(moved.hash(), x.hash());
    term assigned{"something else, long enough to be allocated on its own"};
    assigned = x;
    EXPECT_EQ(assigned, x);
    assigned = std::move(moved);
    EXPECT_EQ(assigned, x);
    auto& self = assigned;
    assigned = self;
    EXPECT_EQ(assigned, x);
  }
}

TEST(term, what_was_moved_from_can_be_assigned_and_destroyed) {
  term a{std::string(100, 'a')};
  term b{std::move(a)};
  a = term{"again"}; // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(a, term{"again"});
  EXPECT_EQ(b, term{std::string(100, 'a')});
}

TEST(term, swap_exchanges_short_and_long) {
  term a{"short"};
  term b{std::string(100, 'b')};
  a.swap(b);
  EXPECT_EQ(a, term{std::string(100, 'b')});
  EXPECT_EQ(b, term{"short"});
}

TEST(term, the_largest_has_65536_canonical_bytes) {
  EXPECT_TRUE(term{std::string(term::max_size - 1, 'x')}.fits());
  EXPECT_FALSE(term{std::string(term::max_size, 'x')}.fits());
}

TEST(term, hashes_spread) {
  std::unordered_set<std::uint64_t> hashes;
  std::set<std::uint64_t> buckets;
  for (int i = 0; i < 10'000; ++i) {
    hashes.insert(term{i}.hash());
    buckets.insert(term{i}.hash() % 1024);
  }
  EXPECT_EQ(hashes.size(), 10'000u);
  EXPECT_EQ(buckets.size(), 1024u);
}

TEST(term, reads_as_what_it_is) {
  EXPECT_EQ(to_string(term{"tag.1"}), "tag.1");
  EXPECT_EQ(to_string(term{""}), "");
  EXPECT_EQ(to_string(term{42}), "42");
  EXPECT_EQ(to_string(term{-42}), "-42");
  EXPECT_EQ(to_string(term{0}), "0");
  EXPECT_EQ(to_string(term{std::numeric_limits<std::int64_t>::min()}),
            "-9223372036854775808");
  EXPECT_EQ(to_string(term{std::numeric_limits<std::uint64_t>::max()}),
            "18446744073709551615");
  EXPECT_EQ(to_string(term{std::string("a\0b\n", 4)}), "a\\x00b\\x0a");
  EXPECT_EQ(to_string(term::from_canonical({})), "(no bytes)");
}

TEST(term, other_kinds_read_as_hex_and_long_ones_are_cut) {
  const std::byte odd[] = {std::byte{0x09}, std::byte{0xab}};
  EXPECT_EQ(to_string(term::from_canonical(odd)), "0x09ab");
  auto text = to_string(term{std::string(500, 'x')});
  EXPECT_EQ(text, std::string(80, 'x').append("..."));
}

} // namespace
