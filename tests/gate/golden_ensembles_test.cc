// The ensembles that this repository ships.
#include <gtest/gtest.h>

#include <string>

#include "isoloss/gate/judge.h"
#include "isoloss/runlog/reader.h"
#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate {
namespace {

class GoldenEnsembles : public ::testing::TestWithParam<const char*> {};

// A run within a threshold above the ceiling is inconclusive, so that a benign
// change of this arm could not pass.
TEST_P(GoldenEnsembles, LetABenignChangePass) {
  const std::string arm = GetParam();
  const std::string golden = ISOLOSS_SOURCE_DIR "/golden/";
  const std::string file = golden + "ensembles/nano-" + arm + ".h5";
  const NullEnsemble benign = {file, runlog::ReadEnsemble(file)};
  const std::string log = golden + "curves/nano/" + arm + "-seed1.h5";
  const compare::Run approved = {log, runlog::ReadRunLog(log)};
  compare::Run judged = approved;
  judged.log.steps.loss_nats.back() *= 1 + 1e-7;
  const compare::Pairing pairing =
      compare::PairBySeed(arm, {&approved}, arm, {&judged});

  const Judgement judgement =
      Judge({.pairing = &pairing, .benign = &benign}, Regression());

  EXPECT_EQ(LevelOf(judgement, "L4"), Outcome::kPass);
}

INSTANTIATE_TEST_SUITE_P(Arms, GoldenEnsembles,
                         ::testing::Values("bf16", "mxfp8"));

}  // namespace
}  // namespace isoloss::gate
