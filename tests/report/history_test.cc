#include "isoloss/report/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/report/history_file.h"

namespace isoloss::report {
namespace {

using compare::FigureRecord;
using ::testing::HasSubstr;
using ::testing::Not;

FigureRecord Record() {
  FigureRecord record = {.commit = "0123456789abcdef",
                         .date = "2026-11-24T12:00:00+01:00",
                         .experiment = "tiny",
                         .arm = "mxfp8 \"<b>\"",
                         .seed = 3,
                         .program = "isoloss 0.1.0",
                         .config = "c1",
                         .recipe = "mxfp8_rceil",
                         .numerics = "n1",
                         .content = "00ff",
                         .steps = 20,
                         .window = 4,
                         .outcome = "PASS"};
  record.figures = {0.1 + 0.2, 5e-324, -std::numeric_limits<double>::infinity(),
                    std::nullopt};
  return record;
}

void ExpectRefused(const std::string& text, const std::string& words) {
  try {
    ParseHistory(text, "history.jsonl");
    ADD_FAILURE() << "taken: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(HistoryFile, ReadsEveryBitThatItWrote) {
  FigureRecord other = Record();
  other.seed = 4;
  other.figures[0] = -0.0;
  other.figures[1] = std::nan("");
  const std::string text =
      HistoryLine(Record()) + "\n" + HistoryLine(other) + "\n";

  const auto records = ParseHistory(text, "history.jsonl");

  ASSERT_EQ(records.size(), 2);
  EXPECT_TRUE(records[0] == Record());
  EXPECT_TRUE(records[1] == other);
  EXPECT_THAT(text, HasSubstr("\"loss\":0.30000000000000004,"));
}

TEST(HistoryFile, TakesWhatAUnionOfTwoBranchesLeaves) {
  FigureRecord other = Record();
  other.commit = "fedcba9876543210";
  const std::string ours = HistoryLine(Record());
  const std::string theirs = HistoryLine(other);

  EXPECT_EQ(ParseHistory(ours + "\n\n" + theirs + "\r\n" + ours, "f").size(),
            2);
}

TEST(HistoryFile, NamesBothLinesOfAContradiction) {
  FigureRecord other = Record();
  other.figures[0] = std::nextafter(*other.figures[0], 1.0);

  ExpectRefused(HistoryLine(Record()) + "\n" + HistoryLine(other),
                "history.jsonl:2: the line contradicts line 1: both are of "
                "commit 0123456789abcdef, arm mxfp8 \"<b>\", seed 3");
}

TEST(HistoryFile, RefusesWhatItWouldNotWrite) {
  const std::string line = HistoryLine(Record());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    return changed;
  };
  ExpectRefused("<<<<<<< HEAD\n" + line, ":1: the line is git's mark");
  ExpectRefused(with("\"PASS\"", "\"\\u001b[2J\""), "control a terminal");
  ExpectRefused(with("\"PASS\"", "[[[[1]]]]"), "`outcome`");
  ExpectRefused(with("\"seed\":3", "\"seed\":3.5"), "`seed`");
  ExpectRefused(with("\"seed\":3", "\"seed\":18446744073709551615"), "`seed`");
  ExpectRefused(with("\"steps\":20,", ""), "`steps`");
  ExpectRefused(with("\"history\":1", "\"history\":2"), "another version");
  ExpectRefused(with("\"steps\":20", "\"steps\":20,\"new\":1"), "keys");
  ExpectRefused(with("0123456789abcdef", "HEAD"), "`commit`");
  ExpectRefused(with("\"-inf\"", "\"big\""), "`grad_norm_text`");
  ExpectRefused(with("\"tiny\"", "\"" + std::string(201, 'x') + "\""), "201");
  ExpectRefused(std::string(4097, '['), "4097 bytes");
  ExpectRefused(line + "\n" + with("\"seed\":3", "\"seed\":4") + "\n" +
                    with("\"tiny\"", "\"other\""),
                "contradicts line 1");
}

/// One arm whose loss grows by 10 % at the third of four commits.
History Moved() {
  std::vector<FigureRecord> records;
  History history;
  history.experiment = "tiny <x>";
  for (int i = 0; i < 4; ++i) {
    history.commits.push_back(std::string(40, static_cast<char>('a' + i)));
    for (int64_t seed = 1; seed <= 3; ++seed) {
      FigureRecord record = Record();
      record.commit = history.commits.back();
      record.seed = seed;
      record.figures = {
          static_cast<double>(seed) * (i < 2 ? 1 : 1.125), {}, {}, {}};
      records.push_back(record);
    }
  }
  history.series.push_back(compare::FollowFigure(
      records, history.commits, Record().arm, compare::kLossFigure, {}));
  history.subjects[history.commits[2]] = "Sum <in> another order";
  return history;
}

TEST(History, NamesTheCommitInTextOf80Columns) {
  const std::string text = RenderHistory(Moved(), true, {.width = 80});

  EXPECT_THAT(text, HasSubstr("MOVED  cccccccccccc  2026-11-24  Sum <in> "
                              "another order\n"));
  EXPECT_THAT(text, HasSubstr("loss: +12.5 % [+12.5, +12.5] to 2.25 since"));
  EXPECT_THAT(text, HasSubstr("1 commit with the same bits"));
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos;
       begin = end + 1) {
    // A character of the chart has three bytes.
    if (text.substr(begin, end - begin).find('\xe2') != text.npos) continue;
    EXPECT_LE(end - begin, 80) << text.substr(begin, end - begin);
  }
}

TEST(History, PointsToCommitsThatNobodyRecorded) {
  History history = Moved();
  EXPECT_THAT(RenderHistory(history, false, {}), Not(HasSubstr("bisect")));
  history.places = {{history.commits[1], 4}, {history.commits[2], 7}};

  EXPECT_THAT(RenderHistory(history, false, {.width = 300}),
              HasSubstr("next: 2 commits lie between bbbbbbbbbbbb and it: "
                        "isoloss lab history bisect --good bbbbbbbbbbbb --bad "
                        "cccccccccccc -- COMMAND"));
}

TEST(History, DrawsEachPointAndEscapesNames) {
  const std::string svg = RenderHistorySvg(Moved());

  EXPECT_THAT(svg, HasSubstr("History of tiny &lt;x&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  const auto count = [&](const std::string& word) {
    size_t found = 0;
    for (size_t at = svg.find(word); at != svg.npos;
         at = svg.find(word, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("<circle"), 3);
  EXPECT_EQ(count("</title></path>"), 1);  // the diamond
}

TEST(History, DrawsWhatIsNotFiniteOrAlone) {
  History history = Moved();
  history.series[0].points[3].mean = std::nan("");
  EXPECT_THAT(RenderHistorySvg(history), HasSubstr("not finite"));
  EXPECT_THAT(RenderHistorySvg(history), Not(HasSubstr("nan ")));
  history.commits.resize(1);
  history.series[0].points.resize(1);
  EXPECT_THAT(RenderHistorySvg(history), HasSubstr("<circle"));
}

}  // namespace
}  // namespace isoloss::report
