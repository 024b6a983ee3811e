// The ensembles that this repository ships.
#include <gtest/gtest.h>

#include <string>

#include "isoloss/gate/level.h"
#include "isoloss/runlog/reader.h"
#include "judged_runs.h"

namespace isoloss::gate {
extern const Level kLevel_l4_early_window;
}

namespace isoloss::gate::golden_ensembles_test {
namespace {

struct GoldenArm {
  const char* golden;
  const char* arm;
};

std::string Name(const ::testing::TestParamInfo<GoldenArm>& info) {
  return std::string(info.param.golden) + "_" + info.param.arm;
}

/// What L4 takes of the probe that `golden check` makes: sizes of parameters.
Probe SizesOf(const runlog::RunLog& log) {
  Probe probe;
  probe.log.provenance = log.provenance;
  probe.log.cases = {"plain"};
  const runlog::GraphColumns& graph = log.provenance.graph.tensors;
  probe.log.tensors = graph.name;
  for (size_t i = 0; i < graph.name.size(); ++i) {
    if (graph.kind[i] != "update") continue;
    probe.log.oracle.Append({.probe_case = 0,
                             .step = 1,
                             .tensor = static_cast<int64_t>(i),
                             .elements = graph.rows[i] * graph.columns[i]});
  }
  return probe;
}

class GoldenEnsembles : public ::testing::TestWithParam<GoldenArm> {};

// A run within a threshold above the ceiling is inconclusive, so that a benign
// change of this arm could not pass.
TEST_P(GoldenEnsembles, LetABenignChangePass) {
  const std::string arm = GetParam().arm;
  const std::string name = GetParam().golden;
  const std::string golden = ISOLOSS_SOURCE_DIR "/golden/";
  const std::string file = golden + "ensembles/" + name + "-" + arm + ".h5";
  const NullEnsemble benign = {file, runlog::ReadEnsemble(file)};
  const std::string log = golden + "curves/" + name + "/" + arm + "-seed1.h5";
  const compare::Run approved = {log, runlog::ReadRunLog(log)};
  compare::Run judged = approved;
  judged.log.steps.loss_nats.back() *= 1 + 1e-7;
  const compare::Pairing pairing =
      compare::PairBySeed(arm, {&approved}, arm, {&judged});
  const std::vector<Probe> probes = {SizesOf(judged.log)};
  Policy policy;
  policy.question = compare::Question::kRegression;

  const LevelFindings found = kLevel_l4_early_window.run(
      {.pairing = &pairing, .candidate_probes = probes, .benign = &benign},
      policy);

  ASSERT_EQ(found.checks.size(), 2);
  for (const Check& check : found.checks) {
    EXPECT_EQ(check.outcome, Outcome::kPass) << check.quantity;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Arms, GoldenEnsembles,
    ::testing::Values(GoldenArm{"nano", "bf16"}, GoldenArm{"nano", "mxfp8"},
                      GoldenArm{"dsv3_nano", "bf16"},
                      GoldenArm{"dsv3_nano", "mxfp8"},
                      GoldenArm{"dsv3_small", "bf16"},
                      GoldenArm{"dsv3_small", "mxfp8"},
                      GoldenArm{"torchtitan_debug", "mxfp8"}),
    &Name);

}  // namespace
}  // namespace isoloss::gate::golden_ensembles_test
