#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/config/reader.h"
#include "isoloss/config/writer.h"

namespace isoloss::config::fields_test {

struct Part {
  std::string name;
  std::vector<uint64_t> steps = {1};
};

struct Whole {
  double share = 0.5;
  int64_t count = 3;
  std::vector<std::string> words = {};
  std::string text = {};
  std::vector<Part> parts = {};
};

const std::vector<std::string> kWords = {"north", "south", "east"};

template <typename Fields>
void Visit(Fields& fields, Part& part) {
  fields.Text("name", part.name);
  fields.Numbers("steps", part.steps);
}

template <typename Fields>
void Visit(Fields& fields, Whole& whole) {
  fields.Real("share", whole.share, Open(0, 1), "of all");
  fields.Integer("count", whole.count, 2, kMaxInt, "pairs");
  fields.Words("words", whole.words, kWords, "none");
  fields.Text("text", whole.text);
  fields.Tables("part", whole.parts);
}

namespace {

using ::testing::ElementsAre;

Whole Read(const std::string& text) {
  return ReadAll<Whole>(Document(text, "file"));
}

std::string ErrorOf(const std::string& text) {
  try {
    Read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(Reader, ReadsWhatTheWriterPrints) {
  Whole whole{.share = 3e-4,
              .count = kMaxInt,
              .words = {"east", "north"},
              .text = "a\"\\\x01\t\n\x7f \xc3\xa9",
              .parts = {{"x", {5, 3}}, {"y", {0}}}};

  const std::string text = TextOf(whole);
  const Whole read = Read(text);

  EXPECT_EQ(TextOf(read), text);
  EXPECT_EQ(read.share, whole.share);
  EXPECT_EQ(read.text, whole.text);
  EXPECT_THAT(read.words, ElementsAre("east", "north"));
  ASSERT_EQ(read.parts.size(), 2u);
  EXPECT_THAT(read.parts[0].steps, ElementsAre(5u, 3u));
}

// Digests in logs, power records and histories are of this text.
TEST(Writer, KeepsTheOrderOfKeysAndTheShortestNumbers) {
  EXPECT_EQ(TextOf(Whole{.share = 3e-4, .parts = {{"x", {5, 3}}}}),
            "share = 0.0003\ncount = 3\nwords = \"none\"\ntext = \"\"\n\n"
            "[[part]]\nname = \"x\"\nsteps = [5, 3]\n");
  EXPECT_EQ(RealText(4), "4.0");
  EXPECT_EQ(RealText(1e-8), "1e-08");
  EXPECT_EQ(RealText(1e9), "1000000000.0");
  EXPECT_EQ(RealText(1.0 / 0.0), "inf");
}

TEST(Reader, NamesPlaceValueRuleAndUnit) {
  EXPECT_EQ(ErrorOf("\nshare = 1"),
            "file:2:9: `share` is 1, but must be a number in (0, 1) (of all). "
            "Correct it or leave it out for 0.5.");
  EXPECT_EQ(ErrorOf("count = 1"),
            "file:1:9: `count` is 1, but must be an integer from 2 (pairs). "
            "Correct it or leave it out for 3.");
}

TEST(Reader, TakesSomeOfAListOfWordsEachOnce) {
  EXPECT_TRUE(Read("words = 'none'").words.empty());
  const std::string rule =
      "but must be \"none\" or a list of some of north, south, east, each "
      "once.";
  EXPECT_EQ(ErrorOf("words = 'all'"), "file:1:9: `words` is \"all\", " + rule);
  EXPECT_EQ(ErrorOf("words = []"), "file:1:9: `words` is [], " + rule);
  EXPECT_EQ(ErrorOf("words = [2]"), "file:1:9: `words` holds 2, " + rule);
  EXPECT_EQ(ErrorOf("words = ['east', 'east']"),
            "file:1:9: `words` holds \"east\" twice, " + rule);
  EXPECT_EQ(ErrorOf("words = ['nort']"), "file:1:9: `words` holds \"nort\", " +
                                             rule + " Did you mean `north`?");
}

TEST(Reader, TakesDistinctNumbers) {
  const std::string rule =
      "but must be a list of one or more distinct integers from 0. Write for "
      "example [1, 2, 3, 4].";
  const auto error = [](const std::string& steps) {
    return ErrorOf("part = [{steps = " + steps + "}]");
  };
  EXPECT_EQ(error("[]"), "file:1:18: `part.steps` is [], " + rule);
  EXPECT_EQ(error("7"), "file:1:18: `part.steps` is 7, " + rule);
  EXPECT_EQ(error("[-1]"), "file:1:18: `part.steps` holds -1, " + rule);
  EXPECT_EQ(error("[1, 2, 1]"),
            "file:1:18: `part.steps` holds 1 twice, " + rule);
}

TEST(Reader, ReadsAListOfTablesStrictly) {
  EXPECT_EQ(Read("part = [{name = 'x'}]").parts.at(0).name, "x");
  EXPECT_EQ(ErrorOf("part = 1"),
            "file:1:8: `part` is 1, but must be a list of tables. Write "
            "[[part]].");
  EXPECT_EQ(ErrorOf("part = [1]"),
            "file:1:8: `part` holds 1, but must be a list of tables. Write "
            "[[part]].");
  EXPECT_EQ(ErrorOf("[[part]]\nnam = 'x'\n"),
            "file:2:1: unknown key `part.nam`. Known keys of part: name, "
            "steps. Did you mean `name`?");
}

TEST(Reader, ASectionOfFreeNamesHasThemInTheirOrder) {
  Document document("[arms.z]\n[arms.a]\n", "file");
  document.Override("arms.m.x=1");
  Reader top(document);

  std::vector<std::string> names;
  for (auto& [name, fields] : top.Section("arms").Sections()) {
    names.push_back(name + (fields.Has("x") ? "x" : ""));
  }

  EXPECT_THAT(names, ElementsAre("z", "a", "mx"));
}

}  // namespace
}  // namespace isoloss::config::fields_test
