#include "qualification/kill_matrix.h"

#include <gtest/gtest.h>

#include <cmath>

namespace isoloss::qualification::kill_matrix_test {
namespace {

/// Level 0 passes, level 1 says `one`, level 2 was not judged; the peer takes
/// it or not.
KillCell Cell(gate::Outcome one, gate::Outcome verdict,
              bool peer_accepts = true) {
  return {.levels = {gate::Outcome::kPass, one, std::nullopt},
          .verdict = verdict,
          .peer_accepts = {peer_accepts}};
}

KillRow Row(Class kind, std::vector<KillCell> cells) {
  KillRow row;
  row.kind = kind;
  row.cells = std::move(cells);
  return row;
}

const KillCell kCaught =
    Cell(gate::Outcome::kFail, gate::Outcome::kFail, false);
const KillCell kMissed = Cell(gate::Outcome::kPass, gate::Outcome::kPass);

TEST(KillMatrix, ABugIsCaughtOnlyInEverySeed) {
  KillMatrix matrix{.levels = {"L0", "L1", "L2"}, .peers = {"peer"}};
  matrix.rows = {Row(Class::kBug, {kCaught, kCaught}),
                 Row(Class::kBug, {kCaught, kMissed}),
                 Row(Class::kBug, {kMissed, kMissed})};

  EXPECT_EQ(matrix.Score().count, 1);
  EXPECT_EQ(matrix.Score().of, 3);
  EXPECT_EQ(matrix.ScoreOfLevel(0).count, 0);
  EXPECT_EQ(matrix.ScoreOfLevel(1).count, 1);
  EXPECT_EQ(matrix.ScoreOfLevel(2).count, 0);
  EXPECT_EQ(matrix.ScoreOfPeer(0).count, 1);
}

TEST(KillMatrix, InvalidStopsAJobTooAndInconclusiveDoesNot) {
  KillMatrix matrix;
  matrix.rows = {
      Row(Class::kBug, {Cell(gate::Outcome::kPass, gate::Outcome::kInvalid)}),
      Row(Class::kBug,
          {Cell(gate::Outcome::kPass, gate::Outcome::kInconclusive)})};

  EXPECT_EQ(matrix.Score().count, 1);
}

TEST(KillMatrix, OnlyBugsAreScored) {
  KillMatrix matrix;
  matrix.rows = {Row(Class::kSpecificationChange, {kCaught}),
                 Row(Class::kBenign, {kMissed}),
                 Row(Class::kEquivalent, {kMissed}), Row(Class::kBug, {})};

  EXPECT_EQ(matrix.Score().of, 0);
  EXPECT_EQ(matrix.Score().lower, 0);
  EXPECT_EQ(matrix.Score().upper, 1);
}

TEST(KillMatrix, WhateverABenignRunGetsButAPassIsAnAlarm) {
  KillMatrix matrix{.levels = {"L0", "L1", "L2"}, .peers = {"peer"}};
  matrix.benign = {kMissed,
                   Cell(gate::Outcome::kPass, gate::Outcome::kInconclusive),
                   Cell(gate::Outcome::kFail, gate::Outcome::kFail)};
  matrix.rows = {Row(Class::kBenign, {kCaught})};

  EXPECT_EQ(matrix.FalseAlarms().count, 2);
  EXPECT_EQ(matrix.FalseAlarms().of, 3);
  EXPECT_EQ(matrix.FalseAlarmsOfLevel(1).count, 1);
  EXPECT_EQ(matrix.FalseAlarmsOfPeer(0).count, 0);
}

TEST(KillMatrix, ThreeHundredQuietRunsBoundTheRateBelowOnePercent) {
  KillMatrix matrix;
  matrix.benign.assign(300, kMissed);

  // Nothing in n runs: the bound is 1 - 0.05^(1/n) (Clopper and Pearson).
  EXPECT_NEAR(matrix.FalseAlarms().upper_one_sided,
              1 - std::pow(0.05, 1.0 / 300), 1e-12);
  EXPECT_LT(matrix.FalseAlarms().upper_one_sided, 0.01);
}

}  // namespace
}  // namespace isoloss::qualification::kill_matrix_test
