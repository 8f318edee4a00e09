// Outcomes: each has a word, a sentence and a cause.

#include "pawl/core/outcome.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace {

using pawl::cause;
using pawl::outcome;

std::vector<outcome> all_outcomes() {
  std::vector<outcome> all;
  for (auto i = 0; i <= static_cast<int>(pawl::last_outcome); ++i)
    all.push_back(static_cast<outcome>(i));
  return all;
}

TEST(outcome, each_has_a_word_and_a_sentence_of_its_own) {
  std::set<std::string> words;
  std::set<std::string> sentences;
  for (auto x : all_outcomes()) {
    auto word = std::string{to_string(x)};
    auto text = std::string{sentence(x)};
    EXPECT_FALSE(word.empty());
    EXPECT_EQ(word.find(' '), std::string::npos) << word;
    EXPECT_GT(text.size(), word.size()) << word;
    EXPECT_NE(text.back(), '.') << "the log writes its own full stop: " << word;
    EXPECT_TRUE(words.insert(word).second) << word;
    EXPECT_TRUE(sentences.insert(text).second) << word;
  }
}

TEST(outcome, the_words_are_the_documented_ones) {
  EXPECT_EQ(to_string(outcome::granted), "granted");
  EXPECT_EQ(to_string(outcome::busy), "busy");
  EXPECT_EQ(to_string(outcome::timeout), "timeout");
  EXPECT_EQ(to_string(outcome::deadlock), "deadlock");
  EXPECT_EQ(to_string(outcome::probe_limit), "probe_limit");
  EXPECT_EQ(to_string(outcome::node_down), "node_down");
  EXPECT_EQ(to_string(outcome::scope_closed), "scope_closed");
  EXPECT_EQ(to_string(outcome::cancelled), "cancelled");
  EXPECT_EQ(to_string(outcome::session_ended), "session_ended");
  EXPECT_EQ(to_string(outcome::too_many_waiters), "too_many_waiters");
  EXPECT_EQ(to_string(outcome::term_too_large), "term_too_large");
  EXPECT_EQ(to_string(outcome::shutting_down), "shutting_down");
}

TEST(outcome, each_that_fails_has_a_cause) {
  for (auto x : all_outcomes()) {
    auto fails = x != outcome::pending && x != outcome::granted;
    EXPECT_EQ(cause_of(x) != cause::nobody, fails) << to_string(x);
  }
  EXPECT_EQ(cause_of(outcome::timeout), cause::time);
  EXPECT_EQ(cause_of(outcome::node_down), cause::peer);
  EXPECT_EQ(cause_of(outcome::cancelled), cause::caller);
  EXPECT_EQ(cause_of(outcome::probe_limit), cause::us);
}

TEST(outcome, a_value_that_is_none_of_them_is_no_crash) {
  auto odd = static_cast<outcome>(200);
  EXPECT_FALSE(to_string(odd).empty());
  EXPECT_FALSE(sentence(odd).empty());
}

TEST(outcome, releases_have_words) {
  EXPECT_EQ(to_string(pawl::release_result::released), "released");
  EXPECT_EQ(to_string(pawl::release_result::already_released),
            "already_released");
  EXPECT_EQ(to_string(pawl::release_result::lost), "lost");
}

TEST(outcome, a_failure_explains_itself_and_names_the_node) {
  auto x = pawl::make_failure(outcome::node_down, "plant-2");
  EXPECT_EQ(x.why, outcome::node_down);
  EXPECT_EQ(x.node, "plant-2");
  EXPECT_NE(x.message.find("plant-2"), std::string::npos);
  EXPECT_EQ(to_string(x).rfind("node_down: ", 0), 0u);
  auto y = pawl::make_failure(outcome::timeout);
  EXPECT_EQ(y.message, sentence(outcome::timeout));
  EXPECT_TRUE(y.node.empty());
}

TEST(outcome, a_deadlock_reads_with_its_whole_cycle) {
  auto x = pawl::make_failure(outcome::deadlock);
  x.cycle = {{{static_cast<pawl::node_slot>(0), 1}, "a", "n1",
              pawl::exclusive},
             {{static_cast<pawl::node_slot>(1), 2}, "b", "n2", pawl::shared}};
  auto text = to_string(x);
  EXPECT_NE(text.find("session 0/1 waits for a on n1 (exclusive)"),
            std::string::npos);
  EXPECT_NE(text.find("session 1/2 waits for b on n2 (shared)"),
            std::string::npos);
}

} // namespace
