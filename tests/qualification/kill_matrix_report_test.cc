#include "qualification/kill_matrix_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/base/error.h"

namespace isoloss::qualification::kill_matrix_report_test {
namespace {

using gate::Outcome;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

KillCell Cell(Outcome level, bool peer_accepts) {
  return {.seed = 7,
          .levels = {Outcome::kPass, level, std::nullopt},
          .verdict = level,
          .finding = level == Outcome::kFail ? "L1 rule: 3 < 4 & worse" : "",
          .peer_accepts = {peer_accepts},
          .loss_nats = {2.5, 1.25},
          .first_different_step = 2,
          .seconds = 0.5};
}

KillRow Row(const char* name, Class kind, std::vector<KillCell> cells) {
  KillRow row{.name = name, .group = "scale", .kind = kind};
  row.cells = std::move(cells);
  return row;
}

KillMatrix Matrix() {
  KillMatrix matrix{.levels = {"L0", "L1", "L2"}, .peers = {"other"}};
  const auto caught = Cell(Outcome::kFail, false);
  const auto missed = Cell(Outcome::kPass, true);
  matrix.rows = {Row("other_order", Class::kBenign, {missed}),
                 Row("lost_row", Class::kBug, {caught, caught}),
                 Row("half_seen", Class::kBug, {caught, missed})};
  matrix.benign = {missed, missed};
  return matrix;
}

TEST(KillTable, GroupsByClassAndMarksSeeds) {
  const KillTable table = MakeKillTable(Matrix());

  ASSERT_EQ(table.columns.size(), 6U);  // 3 levels, gate, peer, MLPerf
  EXPECT_EQ(table.columns[3].title, "gate");
  EXPECT_EQ(table.columns[4].rule, "other");
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.rows[0].name, "lost_row");
  EXPECT_THAT(table.rows[0].marks,
              testing::ElementsAre(KillMark::kNone, KillMark::kAll,
                                   KillMark::kNotJudged, KillMark::kAll,
                                   KillMark::kAll, KillMark::kNone));
  EXPECT_EQ(table.rows[1].marks[1], KillMark::kSome);
  EXPECT_EQ(table.rows[2].name, "other_order");
}

TEST(RenderKillMatrix, ShowsMarksScoresAndAlarms) {
  const std::string text = RenderKillMatrix(Matrix());

  EXPECT_THAT(text, HasSubstr("lost_row      .    #         #    #    ."));
  EXPECT_THAT(text, HasSubstr("half_seen     .    +         +    +    ."));
  EXPECT_THAT(text, HasSubstr("bugs caught: 1 of 2"));
  EXPECT_THAT(text, HasSubstr("false alarms: 0 in 2 benign runs"));
  EXPECT_THAT(text, HasSubstr("a  other"));
}

TEST(KillCell, ComesBackFromItsText) {
  KillCell cell = Cell(Outcome::kFail, false);
  cell.loss_nats[1] = std::numeric_limits<double>::quiet_NaN();

  const KillCell back =
      ParseKillCell(RenderKillCell(cell, "a-seed7"), "a-seed7", "cell");

  EXPECT_EQ(back.seed, cell.seed);
  EXPECT_EQ(back.levels, cell.levels);
  EXPECT_EQ(back.verdict, cell.verdict);
  EXPECT_EQ(back.finding, cell.finding);
  EXPECT_EQ(back.peer_accepts, cell.peer_accepts);
  EXPECT_EQ(back.loss_nats[0], 2.5);
  EXPECT_TRUE(std::isnan(back.loss_nats[1]));
  EXPECT_EQ(back.first_different_step, 2);
  EXPECT_EQ(back.seconds, 0.5);
}

TEST(KillCell, DamageIsAnErrorThatNamesTheFile) {
  EXPECT_THAT([] { ParseKillCell("{\"seed\": 1", "a", "cells/a.json"); },
              ThrowsMessage<Error>(HasSubstr("cells/a.json: it is no cell")));
}

TEST(KillCell, OfAnotherMutantIsRefused) {
  const std::string other = RenderKillCell(Cell(Outcome::kFail, false), "b");

  EXPECT_THAT([&] { ParseKillCell(other, "a", "cells/a.json"); },
              ThrowsMessage<Error>(HasSubstr("it is cell b, not a")));
}

TEST(RenderKillMatrix, LeavesOutWhatNobodyJudged) {
  EXPECT_THAT(RenderKillMatrix(Matrix()),
              HasSubstr("bugs caught   0    1    -    1"));
}

TEST(RenderKillMatrixJson, HoldsEverythingAndTheRates) {
  const auto json = nlohmann::json::parse(RenderKillMatrixJson(Matrix()));

  EXPECT_EQ(json["score"]["count"], 1);
  EXPECT_EQ(json["mutants"].size(), 3U);
  EXPECT_EQ(json["benign"].size(), 2U);
  EXPECT_EQ(json["mutants"][1]["cells"][0]["levels"][1], "FAIL");
  EXPECT_TRUE(json["mutants"][1]["cells"][0]["levels"][2].is_null());
}

}  // namespace
}  // namespace isoloss::qualification::kill_matrix_report_test
