#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "isoloss/gate/probe_completeness.h"
#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate::l2_oracle_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OracleTest : public ::testing::Test {
 protected:
  /// Equal bits, so that only the probe can speak against the candidate.
  const TwoVersions versions_{1, /*equal=*/true};
  const compare::Pairing pairing_ = versions_.Pair();
  std::vector<Probe> probes_ = {SampleProbe(versions_.now[0])};
  Policy policy_ = Regression();

  Judgement Judged() const {
    return Judge({.pairing = &pairing_, .candidate_probes = probes_}, policy_);
  }
};

TEST_F(OracleTest, PassesAProbeThatTheOracleExplains) {
  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kPass);
  // Two cases of three rounded tensors; the FP32 one is judged by its noise.
  EXPECT_EQ(CheckNamed(judgement, "flips").value, 2 * 3);
}

TEST_F(OracleTest, FailsOnOneElementEvenIfTheRunIsBitEqual) {
  auto& oracle = probes_[0].log.oracle;
  // Of case hot_row dgrad and of case plain wgrad: the former comes first in
  // the order of computation, the latter is further off.
  for (const size_t row : {size_t{2}, kHotRow + 1}) {
    --oracle.equal[row];
    ++oracle.other[row];
    oracle.worst_ratio[row] = row == 2 ? 900 : 30;
  }

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  const Check& check = CheckNamed(judgement, "elements");
  EXPECT_EQ(check.value, 2);
  EXPECT_THAT(check.evidence,
              AllOf(HasSubstr("layers.0.wq_wgrad in case plain, step 3"),
                    HasSubstr("row 7, column 8 is 1.5, the oracle has 1.25"),
                    HasSubstr("900 times the bound")));
  EXPECT_THAT(check.next, HasSubstr("layers.0.wq_dgrad in case hot_row"));
  EXPECT_EQ(check.findings.size(), 2);
}

// 2 flips are expected of this tensor: mean 1 + 4 * 2 = 9, and with a third of
// 0.001 over 27 hypotheses P(N > 24) = 8.7e-6 <= 1.2e-5 < P(N > 23) = 2.5e-5.
TEST_F(OracleTest, CountsFlipsAgainstAPoissonLimit) {
  policy_.flip_factor = 4;
  auto& oracle = probes_[0].log.oracle;
  const auto judge_flips = [&](int64_t flips) {
    oracle.flips[0] = flips - oracle.flips[kHotRow];
    oracle.equal[0] = 1000 - oracle.flips[0];
    return CheckNamed(Judged(), "flips");
  };

  EXPECT_EQ(judge_flips(24).outcome, Outcome::kPass);
  const Check check = judge_flips(25);
  EXPECT_EQ(check.outcome, Outcome::kFail);
  EXPECT_THAT(check.evidence, HasSubstr("layers.0.wq_output: 25 flips, 2 "
                                        "expected, limit 24"));
}

TEST_F(OracleTest, FailsOnNoiseBeyondFp32) {
  auto& oracle = probes_[0].log.oracle;
  // Chance explains a factor of at most 8.17, the rest is 0.98 and more.
  oracle.noise_ratio[kHotRow + 2] = 8;
  EXPECT_EQ(CheckNamed(Judged(), "noise").outcome, Outcome::kPass);

  // The probe allowed for chance at 1e-12; 0.001 / 3 shared by some 400
  // tensors is less strict.
  oracle.tensor_noise_ratio[kHotRow + 2] = 4.01;

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_GT(CheckNamed(judgement, "noise").value, 4);
  EXPECT_THAT(CheckNamed(judgement, "noise").next,
              HasSubstr("layers.0.wq_wgrad"));
}

// A probe of layout 2 tells no variances, so all elements are taken for equal.
// Of a single element chance explains a factor of at least
// sqrt(1 + 2 sqrt(x) + 2 x) = 4.5, x >= ln(1 / 0.001).
TEST_F(OracleTest, LeavesRoomForChanceInFewElements) {
  auto& oracle = probes_[0].log.oracle;
  // The norm of the gradient, in the row that has it first.
  const size_t row = static_cast<size_t>(std::ranges::find(oracle.tensor, 14) -
                                         oracle.tensor.begin());
  probes_[0].log.schema_version = 2;
  oracle.elements[row] = 1;
  oracle.equal[row] = 0;
  oracle.flips[row] = 1;
  oracle.noise_ratio[row] = 4.5 * 3.9;
  oracle.row_noise_ratio[row] = 1;

  EXPECT_EQ(CheckNamed(Judged(), "noise").outcome, Outcome::kPass);

  oracle.noise_ratio[row] = 1000;
  EXPECT_EQ(CheckNamed(Judged(), "noise").outcome, Outcome::kFail);
}

// What each of these finds, and what it lets through, is measured in
// tests/oracle/oracle_statistics_test.cc.
TEST_F(OracleTest, RunsEveryStatisticOfFlipsAndNoise) {
  auto& oracle = probes_[0].log.oracle;
  const auto outcome_of = [&](const char* name) {
    return CheckNamed(Judged(), name).outcome;
  };
  oracle.flips[0] = oracle.flips_toward_zero[0] = 50;
  oracle.equal[0] = 950;
  EXPECT_EQ(outcome_of("bursts"), Outcome::kFail);
  EXPECT_EQ(outcome_of("flip_sides"), Outcome::kPass);

  oracle.row_noise_ratio[kHotRow + 2] = 5;
  EXPECT_EQ(outcome_of("row_noise"), Outcome::kFail);

  // 980 elements in case plain, at step 3.
  oracle.signed_error[2] = -1;
  EXPECT_EQ(outcome_of("signed_error"), Outcome::kFail);
  EXPECT_EQ(outcome_of("noise"), Outcome::kPass);
}

TEST_F(OracleTest, FailsOnAProbeThatItsOwnNumbersEnded) {
  probes_[0].log.provenance.complete = false;
  probes_[0].log.oracle.other[0] = 1;
  probes_[0].log.oracle.equal[0] -= 1;

  EXPECT_EQ(Judged().outcome, Outcome::kFail);
}

TEST_F(OracleTest, FailsOnATokenThatWentElsewhere) {
  probes_[0].log.routing.other[2] = 1;

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "routing").evidence,
              HasSubstr("MoE layer 0 in case hot_row, step 3 of "
                        "probe_seed1.h5: 1 of 500 tokens"));
}

// 1 is allowed for; P(Poisson(1) > 5) = 6e-4 < 0.001 <= P(Poisson(1) > 4).
TEST_F(OracleTest, FailsOnManyChoicesWithinRounding) {
  probes_[0].log.routing.flips[2] = 5;
  EXPECT_EQ(Judged().outcome, Outcome::kPass);

  probes_[0].log.routing.flips[1] = 1;
  const Judgement judgement = Judged();
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "routing").evidence,
              HasSubstr("6 chosen within rounding, at most 5"));
}

TEST_F(OracleTest, NeedsEveryCaseForTwoSteps) {
  const auto oracle = probes_[0].log.oracle;
  policy_.probe_cases = {"plain", "tails"};
  EXPECT_EQ(Judged().outcome, Outcome::kPass);
  EXPECT_THAT(CheckNamed(Judged(), "elements").evidence,
              HasSubstr(" elements of cases plain, tails"));

  policy_ = Regression();
  EXPECT_THAT(CheckNamed(Judged(), "elements").evidence,
              ::testing::Not(HasSubstr("of cases")));
  probes_[0].log.cases[6] = "sizes";
  EXPECT_EQ(Judged().outcome, Outcome::kInconclusive);
  const Check check = CheckNamed(Judged(), "cases");
  EXPECT_THAT(check.quantity, HasSubstr("case tails was not probed"));
  EXPECT_THAT(check.next, HasSubstr("isoloss lab probe without --case"));

  probes_[0].log.cases[6] = "tails";
  for (size_t i = 0; i < oracle.step.size(); ++i) {
    if (oracle.probe_case[i] == 5) probes_[0].log.oracle.step[i] = 3;
    if (oracle.probe_case[i] == 5 && oracle.step[i] == 4) {
      probes_[0].log.oracle.probe_case[i] = 6;
      probes_[0].log.oracle.step[i] = 5;
    }
  }
  EXPECT_NE(Judged().outcome, Outcome::kPass);
}

/// Runs that are not bit-equal, 50 steps long, and a probe of the new one.
class PartingTest : public ::testing::Test {
 protected:
  TwoVersions versions_{1};
  std::vector<Probe> probes_;
  Policy policy_ = Regression();

  void ProbeUpTo(size_t steps) {
    probes_ = {SampleProbe(versions_.now[0])};
    KeepPlainSteps(steps, probes_[0]);
  }
  std::vector<std::string> Partings() const {
    const compare::Pairing pairing = versions_.Pair();
    const Judgement judgement =
        Judge({.pairing = &pairing, .candidate_probes = probes_}, policy_);
    std::vector<std::string> found;
    for (const Check& check : judgement.checks) {
      if (check.name == "parting") found.push_back(check.next);
    }
    return found;
  }
};

TEST_F(PartingTest, NeedsAProbeOfAllSteps) {
  ProbeUpTo(50);
  EXPECT_THAT(Partings(), IsEmpty());

  ProbeUpTo(49);
  EXPECT_THAT(Partings(), ElementsAre("isoloss lab probe --plain-steps 50"));
}

TEST_F(PartingTest, NeedsNoMoreThanThePolicyAsks) {
  policy_.parted_steps = 30;
  ProbeUpTo(30);
  EXPECT_THAT(Partings(), IsEmpty());

  ProbeUpTo(29);
  EXPECT_THAT(Partings(), ElementsAre("isoloss lab probe --plain-steps 30"));
}

TEST_F(PartingTest, NeedsTheStepInWhichTheRunsPart) {
  versions_ = TwoVersions(1, /*equal=*/true);
  versions_.now[0].log.steps.loss_nats[39] *= 1.01;
  policy_.parted_steps = 1;
  ProbeUpTo(39);
  EXPECT_THAT(Partings(), ElementsAre("isoloss lab probe --plain-steps 40"));
}

TEST_F(PartingTest, NeedsAllStepsWhereTheLastUpdateDiffers) {
  versions_ = TwoVersions(1, /*equal=*/true);
  policy_.parted_steps = 1;
  ProbeUpTo(3);
  EXPECT_THAT(Partings(), IsEmpty());

  versions_.now[0].log.provenance.final_weights_digest = "other";
  EXPECT_THAT(Partings(), ElementsAre("isoloss lab probe --plain-steps 50"));
}

TEST_F(OracleTest, JudgesTheBaselinesProbeToo) {
  std::vector<Probe> approved = {SampleProbe(versions_.approved[0])};
  approved[0].log.oracle.other[0] = 1;
  approved[0].log.oracle.equal[0] -= 1;
  const Evidence evidence{.pairing = &pairing_,
                          .candidate_probes = probes_,
                          .baseline_probes = approved};

  EXPECT_EQ(Judge(evidence, Regression()).outcome, Outcome::kFail);
}

TEST_F(OracleTest, IsInconclusiveIfOnlyTheBaselineWasProbed) {
  const std::vector<Probe> approved = {SampleProbe(versions_.approved[0])};

  const Judgement judgement =
      Judge({.pairing = &pairing_, .baseline_probes = approved}, Regression());

  EXPECT_EQ(LevelOf(judgement, "L2"), Outcome::kInconclusive);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
}

struct BadProbe {
  const char* name;
  std::function<void(runlog::ProbeLog&)> spoil;
  const char* message;
  const char* check = "probe";
};

void PrintTo(const BadProbe& bad, std::ostream* out) { *out << bad.name; }
std::string NameOf(const ::testing::TestParamInfo<BadProbe>& info) {
  return info.param.name;
}

class BadProbeTest : public OracleTest,
                     public ::testing::WithParamInterface<BadProbe> {};

TEST_P(BadProbeTest, IsInvalid) {
  GetParam().spoil(probes_[0].log);

  const Judgement judgement = Judged();

  ASSERT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, GetParam().check).findings,
              ::testing::Contains(HasSubstr(GetParam().message)));
}

// With as many steps as rows, and as many tensors, a list of all that is absent
// would take all memory.
TEST_F(OracleTest, NamesOneAbsentTensorOfEachStep) {
  for (std::string& name : probes_[0].log.tensors) name += "x";

  int absent = 0;
  for (const std::string& gap : ProbeGaps(probes_[0].log)) {
    absent += gap.find(" has no row in step ") != std::string::npos ? 1 : 0;
  }

  // Eight cases of two steps and the evaluation.
  EXPECT_EQ(absent, 8 * 2 + 1);
}

const BadProbe kBadProbes[] = {
    {"Empty",
     [](auto& log) {
       log.oracle = {};
       log.routing = {};
     },
     "it holds no comparison with the oracle"},
    {"NotComplete", [](auto& log) { log.provenance.complete = false; },
     "it is not marked as complete"},
    {"NoPlainCase", [](auto& log) { log.cases[0] = "other"; },
     "case plain is missing"},
    {"CaseWithoutRows", [](auto& log) { log.cases.push_back("ties"); },
     "case ties has no row"},
    {"TensorWithoutRows", [](auto& log) { log.tensors.push_back("x_output"); },
     "tensor x_output has no row"},
    {"SiteNotProbed", [](auto& log) { log.tensors[1] = "layers.0.wk_dgrad"; },
     "layers.0.wq_dgrad has no row in step 3 of case plain"},
    {"StepsUnlike",
     [](auto& log) {
       for (size_t i = 0; i < kRowsOfStep; ++i) {
         log.oracle.step[kHotRow + kRowsOfStep + i] = 5;
       }
     },
     "/routing has 0 rows in step 5 of case hot_row"},
    {"TensorOnlyInOneCase",
     [](auto& log) { log.oracle.tensor[kHotRow] = kRowsOfStep; },
     "layers.0.wq_output has no row in step 3 of case hot_row"},
    {"NormNotProbed", [](auto& log) { log.tensors[12] = "x_output"; },
     "loss_output has no row in step 3 of case plain"},
    {"RouterNotProbed", [](auto& log) { log.tensors[7] = "x_output"; },
     "layers.0.moe.router.scores_output has no row in step 4 of case hot_row"},
    {"ParameterNotProbed", [](auto& log) { log.tensors[5] = "x_output"; },
     "layers.0.wq_parameter has no row in step 3 of case plain"},
    {"RoutingRowMissing",
     [](auto& log) {
       runlog::OracleRoutingColumns& routing = log.routing;
       for (auto* column : {&routing.probe_case, &routing.step, &routing.layer,
                            &routing.tokens, &routing.flips, &routing.other,
                            &routing.digest}) {
         column->pop_back();
       }
     },
     "/routing has 0 rows in step 4 of case branches, but there are 1 routers"},
    {"FewElements",
     [](auto& log) {
       log.oracle.elements[2] = log.oracle.flips[2] = 1;
       log.oracle.noisy_elements[2] = 1;
       log.oracle.equal[2] = 0;
       log.oracle.expected_flips[2] = 1;
     },
     "layers.0.wq_wgrad has 1 elements in step 3 of case plain, but wq has "
     "1000"},
    {"OtherModelsSize", [](auto& log) { log.provenance.parameters = 3000; },
     "have 2000 elements in step 3 of case plain, but the model has 3000"},
    {"FigureNotProbed", [](auto& log) { log.tensors[13] = "x"; },
     "loss_mean has no row in step 3 of case plain"},
    {"BiasNotProbed", [](auto& log) { log.tensors[9] = "x"; },
     "layers.0.moe.router_expert_bias has no row in step 3 of case plain"},
    {"NothingExchanged", [](auto& log) { log.oracle.tensor[5 * kHotRow] = 2; },
     "layers.0.moe.routed_experts_output has no row in step 3 of case "
     "exchange"},
    {"NoGraph", [](auto& log) { log.provenance.graph = {}; },
     "/graph is missing, but it must say which tensors a step has"},
    {"OtherGraph",
     [](auto& log) { log.provenance.graph.tensors.columns[2] = 3; },
     "graph or recipe is not that of new_seed1.h5"},
    {"NoNoise",
     [](auto& log) {
       for (double& ratio : log.oracle.noise_ratio) ratio = std::nan("");
       for (double& ratio : log.oracle.row_noise_ratio) ratio = std::nan("");
       for (double& x : log.oracle.tensor_noise_ratio) x = std::nan("");
     },
     "layers.0.wq_wgrad in step 3 has no noise_ratio"},
    {"NoInitialWeights",
     [](auto& log) { log.provenance.initial_weights_digest.clear(); },
     "initial_weights_digest is empty"},
    {"LossOfAnotherRun",
     [](auto& log) { log.plain_steps.loss_nats[1] += 1e-12; },
     "the probe is not of this run (new_seed1.h5): loss of step 2"},
    {"GradientOfAnotherRun",
     [](auto& log) { log.plain_steps.grad_norm[0] *= 2; },
     "gradient norm of step 1"},
    {"NoLoss", [](auto& log) { log.plain_steps = {}; },
     "they have no step in common"},
    {"NoRouting", [](auto& log) { log.routing = {}; },
     "/routing has 0 rows in step 3 of case plain, but there are 1 routers"},
    {"OtherConfig", [](auto& log) { log.provenance.config_digest = "c2"; },
     "config_digest is 'c2', but new_seed1.h5 has 'c1'"},
    {"OtherCorpus", [](auto& log) { log.provenance.corpus_digest = "d2"; },
     "corpus_digest is 'd2'"},
    {"OtherRecipe", [](auto& log) { log.provenance.recipe = "bf16"; },
     "recipe is 'bf16'"},
    {"OtherNumerics", [](auto& log) { log.provenance.numerics_digest = "n9"; },
     "numerics_digest is 'n9'"},
    {"OtherBuild", [](auto& log) { log.provenance.commit = "9"; },
     "commit is '9'"},
    {"OtherExchange", [](auto& log) { log.provenance.exchange = "node"; },
     "exchange is 'node'"},
    {"OtherWeights",
     [](auto& log) { log.provenance.initial_weights_digest = "w9"; },
     "initial_weights_digest is 'w9'"},
    {"OtherSeed", [](auto& log) { log.provenance.seed = 9; },
     "seed 9 is none of the arm's 1 runs"},
};

// What its columns' domains refuse, before the probe is looked at as a whole.
const BadProbe kWrongCounts[] = {
    {"Duplicated", [](auto& log) { log.oracle.tensor[1] = 0; },
     "in row 1 case 0, step 3 and tensor 0", "evidence_domains"},
    {"OutOfOrder", [](auto& log) { log.oracle.step[4] = 5; },
     "in row 5 case 0, step 3 and tensor 5", "evidence_domains"},
    {"NoTokens",
     [](auto& log) { log.routing.tokens[0] = log.routing.flips[0] = 0; },
     "/routing/tokens", "evidence_domains"},
    {"NegativeNoise", [](auto& log) { log.oracle.noise_ratio[2] = -1; },
     "/oracle/noise_ratio", "evidence_domains"},
    {"ExpectedHuge", [](auto& log) { log.oracle.expected_flips[0] = 1e300; },
     "expected_flips", "evidence_domains"},
    {"CountsDoNotAddUp", [](auto& log) { ++log.oracle.flips[3]; },
     "they must sum to", "evidence_domains"},
    {"NegativeCount",
     [](auto& log) {
       log.oracle.other[0] = -1;
       ++log.oracle.equal[0];
     },
     "/oracle/other", "evidence_domains"},
    {"ExpectedNan",
     [](auto& log) { log.oracle.expected_flips[0] = std::nan(""); },
     "/oracle/expected_flips", "evidence_domains"},
    {"WorstRatioNan",
     [](auto& log) { log.oracle.worst_ratio[0] = std::nan(""); },
     "/oracle/worst_ratio", "evidence_domains"},
    {"FarOffButNotCounted", [](auto& log) { log.oracle.worst_ratio[0] = 2; },
     "worst_ratio 2", "evidence_domains"},
    {"MoreFlipsOnOneSideThanInAll",
     [](auto& log) { log.oracle.flips_toward_zero[0] = 2; },
     "2 flips_toward_zero, but 1 flips", "evidence_domains"},
    {"RowsWithoutNoise",
     [](auto& log) { log.oracle.row_noise_ratio[2] = std::nan(""); },
     "both must be NaN or neither", "evidence_domains"},
    {"TensorNoiseBeyondNoise",
     [](auto& log) { log.oracle.tensor_noise_ratio[2] = 1.11; },
     "noise_ratio 1.1 and tensor_noise_ratio 1.11", "evidence_domains"},
    // Of a single element chance explains sqrt(1 + 2 sqrt(x) + 2 x) = 8.172 for
    // x = ln(1e12), so at least 1.1 / 8.172 = 0.1346 is left.
    {"TensorNoiseExplainedAway",
     [](auto& log) { log.oracle.tensor_noise_ratio[2] = 0.1345; },
     "the second must lie between 0.1346 and the first", "evidence_domains"},
    {"NoiseHiddenByTheTensor",
     [](auto& log) { log.oracle.noise_ratio[2] = 1e6; },
     "noise_ratio 1000000 and tensor_noise_ratio 1", "evidence_domains"},
    {"InfiniteNoiseHiddenByTheTensor",
     [](auto& log) { log.oracle.noise_ratio[2] = HUGE_VAL; },
     "noise_ratio inf and tensor_noise_ratio 1", "evidence_domains"},
    {"TensorNoiseNan",
     [](auto& log) { log.oracle.tensor_noise_ratio[2] = std::nan(""); },
     "both must be NaN, or", "evidence_domains"},
    {"NegativeTensorNoise",
     [](auto& log) { log.oracle.tensor_noise_ratio[2] = -1; },
     "/oracle/tensor_noise_ratio", "evidence_domains"},
    {"NegativeRowNoise", [](auto& log) { log.oracle.row_noise_ratio[2] = -1; },
     "/oracle/row_noise_ratio", "evidence_domains"},
    {"SignWithoutElements", [](auto& log) { log.oracle.noisy_elements[2] = 0; },
     "0 noisy_elements", "evidence_domains"},
    {"RoutingCounts", [](auto& log) { log.routing.flips[0] = 501; },
     "501 flips", "evidence_domains"},
};

INSTANTIATE_TEST_SUITE_P(Counts, BadProbeTest,
                         ::testing::ValuesIn(kWrongCounts), NameOf);
INSTANTIATE_TEST_SUITE_P(Damages, BadProbeTest, ::testing::ValuesIn(kBadProbes),
                         NameOf);

TEST_F(OracleTest, RefusesProbesThatAskedUnlikeThings) {
  const TwoVersions versions(2, /*equal=*/true);
  const compare::Pairing pairing = versions.Pair();
  std::vector<Probe> probes = {SampleProbe(versions.now[0]),
                               SampleProbe(versions.now[1])};
  probes[1].log.cases[1] = "ties";

  const Judgement judgement =
      Judge({.pairing = &pairing, .candidate_probes = probes}, Regression());

  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "probe").quantity,
              HasSubstr("cases are not those of probe_seed1.h5"));
}

}  // namespace
}  // namespace isoloss::gate::l2_oracle_test
