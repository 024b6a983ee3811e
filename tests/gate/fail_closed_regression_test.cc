// No damage of a run or its evidence may pass a regression.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bad_inputs.h"

namespace isoloss::gate::fail_closed_regression_test {
namespace {

/// Four seeds of an approved arm, under the name bf16, and of its re-run, whose
/// probe and early window pass.
struct SoundRegression {
  Runs runs;
  std::vector<Probe> probes;
  NullEnsemble benign = BenignEnsemble(20);

  SoundRegression() {
    const TwoVersions versions(4);
    runs = versions.approved;
    for (auto& run : runs) {
      auto& provenance = run.log.provenance;
      provenance.arm = "bf16";
      std::string& text = provenance.experiment_text;
      text.replace(text.find("\"bf16\""), 6, "\"mxfp8_rceil\"");
      test_support::FillAttributes(provenance);
      run.file = "approved_" + run.file;
    }
    runs.insert(runs.end(), versions.now.begin(), versions.now.end());
    probes.push_back(SampleProbe(versions.now[0]));
  }

  Judgement Judged() const {
    const compare::Pairing pairing =
        compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "mxfp8",
                            compare::RunsOfArm(runs, "mxfp8"));
    return Judge(
        {.pairing = &pairing, .candidate_probes = probes, .benign = &benign},
        Regression());
  }
};

/// What a regression allows: another build, and either order of two versions.
/// One seed is enough for the early window; its evaluations then decide
/// nothing.
const std::set<std::string_view> kAllowed = {
    "OtherCommit", "OtherVersion",    "SwappedArms",
    "OneSeed",     "EarlyEvaluation", "EarlyEvaluationOutsideTheMargin"};

void ExpectNoPass(std::span<const BadInput> inputs) {
  for (const BadInput& input : inputs) {
    if (kAllowed.contains(input.name)) continue;
    SCOPED_TRACE(input.name);
    SoundRegression regression;
    input.spoil(regression.runs);

    const Outcome outcome = regression.Judged().outcome;

    EXPECT_GE(outcome, Outcome::kFail) << OutcomeName(outcome);
  }
}

TEST(FailClosedRegression, NoDamageOfARunPassesWhateverTheOtherEvidence) {
  ASSERT_EQ(SoundRegression().Judged().outcome, Outcome::kPass);

  ExpectNoPass(kNotFinite);
  ExpectNoPass(kWrongSteps);
  ExpectNoPass(kWrongSeeds);
  ExpectNoPass(kWrongConfiguration);
}

TEST(FailClosedRegression, NoDamageOfTheEvidencePasses) {
  const auto outcome = [](const auto& spoil) {
    SoundRegression regression;
    spoil(regression);
    return regression.Judged().outcome;
  };

  EXPECT_EQ(outcome([](auto& r) { r.probes[0].log = {}; }), Outcome::kInvalid);
  EXPECT_EQ(outcome([](auto& r) {
              for (double& x : r.probes[0].log.oracle.expected_flips) x = kNan;
            }),
            Outcome::kInvalid);
  EXPECT_EQ(outcome([](auto& r) {
              auto& oracle = r.probes[0].log.oracle;
              for (double& x : oracle.noise_ratio) x = kInf;
              for (double& x : oracle.row_noise_ratio) x = kInf;
              for (double& x : oracle.tensor_noise_ratio) x = kInf;
            }),
            Outcome::kFail);
  EXPECT_EQ(outcome([](auto& r) { r.benign.ensemble = {}; }),
            Outcome::kInvalid);
  EXPECT_EQ(outcome([](auto& r) {
              for (auto& member : r.benign.ensemble.members) {
                member.steps.loss_nats.assign(50, kNan);
              }
            }),
            Outcome::kInvalid);
}

}  // namespace
}  // namespace isoloss::gate::fail_closed_regression_test
