// The checker finds what it is there to find: planted faults in an otherwise
// good run, and the same run through a journal that breaks off.

#include "checker.hpp"
#include "journal_reader.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace scada {
namespace {

// One device with two inputs and one setpoint, hence: tags 0 and 1 are inputs,
// 2 is the setpoint, 3-6 belong to calc1 and 7-10 to balance.
const plant& small_plant() {
  static plant layout{{.devices = {{"127.0.0.1", 1}},
                       .inputs = 2,
                       .setpoints = 1,
                       .operators = 1}};
  return layout;
}

enum : service_id { dev1, calc1, balance, archive, operator1 };

constexpr time_ns ended = 1000;
constexpr time_ns patience = 500;

/// dev1 moves from n1 to n2 at 300; operator1 sets the setpoint at 500.
history good_run() {
  history run;
  run.leaderships
    = {{dev1, 10, "n1", 0, 250},     {dev1, 20, "n2", 300, 1100},
       {calc1, 10, "n1", 0, 1100},   {balance, 10, "n1", 0, 1100},
       {archive, 10, "n2", 0, 1100}, {operator1, 10, "n2", 0, 1100}};
  run.sections = {{dev1, 10, pawl::shared, 100, 110, {{0, 1}, {1, 1}, {2, 1}}},
                  {dev1, 20, pawl::shared, 400, 410, {{0, 1}, {1, 1}, {2, 1}}},
                  {operator1, 10, pawl::exclusive, 500, 520, {{2, 5}}},
                  {dev1, 20, pawl::shared, 530, 540, {{0, 1}, {1, 1}, {2, 5}}},
                  {operator1, 10, pawl::exclusive, 700, 720, {{2, 6}}},
                  {dev1, 20, pawl::shared, 900, 910, {{0, 1}, {1, 1}, {2, 6}}},
                  {calc1, 10, pawl::shared, 900, 910, {{3, 1}}},
                  {balance, 10, pawl::shared, 900, 910, {{7, 1}}}};
  return run;
}

std::string complaints(const history& run) {
  std::string all;
  for (auto& sentence : check(run, small_plant(), ended, patience).sentences)
    all += sentence + "\n";
  return all;
}

TEST(checker, has_nothing_to_say_about_a_good_run) {
  auto judged = check(good_run(), small_plant(), ended, patience);
  EXPECT_EQ(judged.violations, 0u);
  EXPECT_EQ(judged.leaderships, 6u);
  EXPECT_EQ(judged.sections, 8u);
  EXPECT_EQ(judged.tags, 5u);
  EXPECT_EQ(judged.contended_tags, 1u);
}

TEST(checker, finds_two_leaders_at_once) {
  auto run = good_run();
  run.leaderships[0].stop = 301;
  EXPECT_EQ(complaints(run),
            "dev1 had two leaders for 0.000000 s: n1 (epoch 10) and n2 (epoch "
            "20)\n");
}

TEST(checker, finds_a_leader_inside_the_time_of_an_earlier_one) {
  auto run = good_run();
  run.leaderships[2].stop = 2000;
  run.leaderships.push_back({calc1, 11, "n2", 100, 200});
  run.leaderships.push_back({calc1, 12, "n3", 300, 400});
  EXPECT_EQ(check(run, small_plant(), ended, patience).violations, 2u);
}

TEST(checker, finds_an_epoch_that_does_not_grow) {
  auto run = good_run();
  run.leaderships[1].epoch = 10;
  run.sections[1].epoch = run.sections[3].epoch = run.sections[5].epoch = 10;
  EXPECT_NE(complaints(run).find("dev1: the epoch went from 10 on n1 to 10"),
            std::string::npos);
}

TEST(checker, finds_an_operator_inside_the_section_of_the_device_connection) {
  auto run = good_run();
  run.sections[3].start = 519;
  EXPECT_EQ(complaints(run),
            "dev1.sp01 had two writers for 0.000000 s: operator1 (epoch 10, "
            "exclusive, token 5) and dev1 (epoch 20, shared, token 5)\n");
}

TEST(checker, finds_an_overlap_that_spans_several_sections) {
  auto run = good_run();
  run.sections[1].rights[2].token = 5;
  run.sections[2].start = 395;
  run.sections[2].stop = 545;
  EXPECT_EQ(check(run, small_plant(), ended, patience).violations, 2u);
}

TEST(checker, finds_two_heavy_services_on_one_tag_though_both_are_shared) {
  auto run = good_run();
  run.sections[6].rights.push_back({7, 1});
  EXPECT_EQ(complaints(run),
            "balance.mean had two writers for 0.000000 s: calc1 (epoch 10, "
            "shared, token 1) and balance (epoch 10, shared, token 1)\n");
}

TEST(checker, finds_two_epochs_of_a_service_in_one_tag) {
  auto run = good_run();
  run.leaderships[0].stop = 450;
  run.sections[0].stop = 405;
  EXPECT_NE(complaints(run).find("dev1.in01 had two writers"),
            std::string::npos);
}

TEST(checker, finds_a_token_that_went_back) {
  auto run = good_run();
  run.sections[5].rights[2].token = 5;
  EXPECT_NE(complaints(run).find("dev1.sp01: the lock token went back"),
            std::string::npos);
}

TEST(checker, finds_an_exclusive_token_that_was_given_twice) {
  auto run = good_run();
  run.sections[4].rights[0].token = 5;
  EXPECT_NE(complaints(run).find("dev1.sp01: the lock token went back"),
            std::string::npos);
}

TEST(checker, finds_a_write_after_the_leader_had_stopped) {
  auto run = good_run();
  run.sections[0].start = 251;
  run.sections[0].stop = 252;
  EXPECT_EQ(complaints(run), "dev1 wrote outside its epoch 10 on n1\n");
}

TEST(checker, finds_a_write_in_an_epoch_that_nobody_led) {
  auto run = good_run();
  run.sections[0].epoch = 11;
  EXPECT_EQ(complaints(run), "dev1 wrote in epoch 11, which nobody led\n");
}

TEST(checker, finds_a_service_that_nobody_led_at_the_end) {
  auto run = good_run();
  run.leaderships[4].stop = 999;
  EXPECT_EQ(complaints(run), "nobody led archive at the end\n");
}

TEST(checker, finds_a_service_that_had_gone_silent) {
  auto run = good_run();
  run.sections[6].start = 100;
  run.sections[6].stop = 110;
  EXPECT_EQ(complaints(run),
            "calc1 was led at the end but had stopped writing\n");
}

TEST(checker, counts_what_it_does_not_spell_out) {
  auto run = good_run();
  for (int i = 0; i < 100; ++i)
    run.sections.push_back({dev1, 99, pawl::shared, 600, 600, {}});
  auto judged = check(run, small_plant(), ended, patience);
  EXPECT_EQ(judged.violations, 100u);
  EXPECT_EQ(judged.sentences.size(), report::max_sentences);
}

// -- journals -----------------------------------------------------------------

history read(const std::string& text, std::optional<time_ns> killed) {
  history run;
  std::istringstream in{text};
  EXPECT_TRUE(read_journal(in, "n1", killed, run).empty());
  return run;
}

constexpr const char* journal_text = "B n1 5\n"
                                     "L 0 10 20\n"
                                     "T 0 10 7 0 1\n"
                                     "T 0 10 8 2\n"
                                     "O 0 10 shared 30 0 3\n"
                                     "C 0 10 40\n"
                                     "T 0 10 9 2\n"
                                     "O 0 10 shared 50 0 3\n";

TEST(journal_reader, knows_the_token_of_each_tag_in_each_section) {
  auto run = read(std::string{journal_text} + "C 0 10 60\nE 0 10 70\nZ 80\n",
                  std::nullopt);
  ASSERT_EQ(run.sections.size(), 2u);
  using rights = std::vector<tag_right>;
  EXPECT_EQ(run.sections[0].rights, (rights{{0, 7}, {1, 7}, {2, 8}}));
  EXPECT_EQ(run.sections[1].rights, (rights{{0, 7}, {1, 7}, {2, 9}}));
  EXPECT_EQ(run.sections[1].start, 50);
  EXPECT_EQ(run.sections[1].stop, 60);
  ASSERT_EQ(run.leaderships.size(), 1u);
  EXPECT_EQ(run.leaderships[0].start, 20);
  EXPECT_EQ(run.leaderships[0].stop, 70);
  EXPECT_TRUE(run.broken_off.empty());
}

TEST(journal_reader, lets_what_was_open_last_until_the_kill) {
  auto run = read(std::string{journal_text} + "C 0 1", 200);
  ASSERT_EQ(run.sections.size(), 2u);
  EXPECT_EQ(run.sections[1].stop, 200);
  ASSERT_EQ(run.leaderships.size(), 1u);
  EXPECT_EQ(run.leaderships[0].stop, 200);
  EXPECT_TRUE(run.broken_off.empty());
}

TEST(journal_reader, believes_a_record_from_after_the_kill) {
  auto run = read(std::string{journal_text} + "C 0 10 210\n", 200);
  EXPECT_EQ(run.leaderships[0].stop, 210);
}

TEST(journal_reader, names_a_node_that_broke_off_by_itself) {
  auto run = read(journal_text, std::nullopt);
  EXPECT_EQ(run.broken_off, std::vector<std::string>{"n1"});
}

TEST(journal_reader, names_the_line_that_it_cannot_read) {
  history run;
  std::istringstream in{"B n1 5\nL 0 ten 20\nC 0 10 30\n"};
  EXPECT_EQ(read_journal(in, "n1", 40, run).size(), 2u);
}

} // namespace
} // namespace scada
