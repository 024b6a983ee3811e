#include "isoloss/goldens/golden_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "support/temporary_folder.h"

namespace isoloss::goldens::golden_history_test {
namespace {

HistoryEntry Entry(const std::string& reason, const std::string& after) {
  return {.tool = "isoloss 0.9.0",
          .commit = "0123456789ab",
          .reason = reason,
          .changes = {{"bf16-seed1", "", after, "new"}}};
}

class GoldenHistory : public ::testing::Test {
 protected:
  void Write(const std::string& text) const { std::ofstream(file_) << text; }
  std::string Written() const {
    History history;
    history.Append(Entry("The first goldens of a test", "00000000000000aa"));
    history.Append(Entry("A \"second\" reason\\", "00000000000000bb"));
    return history.Text();
  }

  test_support::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_.path() / "history.toml";
};

TEST_F(GoldenHistory, ReadsWhatItWrites) {
  Write(Written());
  const History read = History::Read(file_);
  ASSERT_EQ(read.entries().size(), 2);
  EXPECT_EQ(read.entries()[1].reason, "A \"second\" reason\\");
  EXPECT_EQ(read.ContentOf("bf16-seed1"), "00000000000000bb");
  EXPECT_EQ(read.LastOf("bf16-seed1"), &read.entries()[1]);
  EXPECT_EQ(read.ContentOf("mxfp8-seed1"), "");
  EXPECT_EQ(read.Text(), Written());
}

TEST_F(GoldenHistory, NoWordOfItCanBeChanged) {
  const std::string whole = Written();
  for (const std::string word : {"first", "0123456789ab", "00000000000000aa",
                                 "new", "bf16-seed1", "isoloss 0.9.0"}) {
    std::string text = whole;
    // Behind the comment at the top, which is nobody's word.
    const size_t at = text.find(word, text.find("[[entry]]"));
    ASSERT_NE(at, std::string::npos) << word;
    text[at] = text[at] == 'x' ? 'y' : 'x';
    Write(text);
    EXPECT_THROW(History::Read(file_), Error) << word;
  }
}

// The text by which the chains of golden/ were computed.
TEST_F(GoldenHistory, ItsTextStaysAsItIs) {
  EXPECT_THAT(
      Written(),
      ::testing::StartsWith(
          "# Why the goldens of this folder are what they are, oldest first. "
          "Written by\n# `isoloss golden update`; each chain is a digest of "
          "its entry and of all before.\n\n[[entry]]\nchain = \""));
  EXPECT_THAT(Written(),
              ::testing::EndsWith(
                  "\"\ntool = \"isoloss 0.9.0\"\ncommit = "
                  "\"0123456789ab\"\nreason = \"A \\\"second\\\" "
                  "reason\\\\\"\naccepted = []\n[[entry.golden]]\nname = "
                  "\"bf16-seed1\"\nbefore = \"\"\nafter = "
                  "\"00000000000000bb\"\nverdict = \"new\"\n"));
}

TEST_F(GoldenHistory, NamesPlaceAndRuleOfWhatItDoesNotWrite) {
  const auto expect = [&](const std::string& text, const std::string& words) {
    Write(text);
    try {
      History::Read(file_);
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(words)) << text;
      EXPECT_THAT(error.what(), ::testing::EndsWith(": restore it."));
    }
  };
  expect("entry = 1\n", "history.toml:1:9: `entry` is 1, but must be a list");
  expect("[[entry]]\ntool = 5\n", "history.toml:2:8: `entry.tool` is 5");
  expect("[[entry]]\ntols = ''\n", "unknown key `entry.tols`");
  expect("[[entry]\n", "history.toml:1:");
}

TEST_F(GoldenHistory, NoEntryCanBeTakenOut) {
  std::string text = Written();
  const size_t second = text.find("[[entry]]", text.find("[[entry]]") + 1);
  const size_t first = text.find("[[entry]]");
  text.erase(first, second - first);
  Write(text);
  EXPECT_THROW(History::Read(file_), Error);
}

}  // namespace
}  // namespace isoloss::goldens::golden_history_test
