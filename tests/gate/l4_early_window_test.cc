#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate::l4_early_window_test {
namespace {

using ::testing::HasSubstr;

/// One seed of a re-run that drifts as benign changes do.
struct EarlyCase {
  TwoVersions versions{1};
  NullEnsemble benign = BenignEnsemble(20);

  Judgement Judged(const Policy& policy = Regression()) const {
    const compare::Pairing pairing = versions.Pair();
    return Judge({.pairing = &pairing, .benign = &benign}, policy);
  }
};

TEST(EarlyWindow, PassesADriftLikeThatOfGoodRuns) {
  const Judgement judgement = EarlyCase().Judged();

  EXPECT_EQ(LevelOf(judgement, "L4"), Outcome::kPass);
  const Check& check = CheckNamed(judgement, "early_window");
  EXPECT_LT(check.value.value(), check.limit.value());
  // 20 steps of loss, gradient norm and two figures of two parameters.
  EXPECT_THAT(check.evidence, HasSubstr("120 statistics, 20 good runs"));
}

TEST(EarlyWindow, FailsOnOneParameterOfOneStep) {
  EarlyCase early;
  // 1000 times the drift of step 5, of which the whole gradient sees 1e-6.
  auto& log = early.versions.now[0].log;
  log.parameters.grad_norm[2 * 4 + 1] *= 1 + 1000 * BenignDrift(5);
  AddUpNorms(log.parameters, log.steps);

  const Judgement judgement = early.Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  const Check& check = CheckNamed(judgement, "early_window");
  EXPECT_THAT(check.next, HasSubstr("gradient norm of router at step 5"));
}

TEST(EarlyWindow, NamesTheEarliestExcess) {
  EarlyCase early;
  auto& steps = early.versions.now[0].log.steps;
  steps.loss_nats[2] *= 1 + 500 * BenignDrift(3);
  steps.loss_nats[9] *= 1 + 5000 * BenignDrift(10);

  const Check check = CheckNamed(early.Judged(), "early_window");

  EXPECT_THAT(check.evidence, HasSubstr("loss at step 10"));
  EXPECT_THAT(check.next, HasSubstr("loss at step 3"));
  EXPECT_EQ(check.findings.size(), 2);
}

/// Good runs that agree to the last bit, and a re-run that differs in its final
/// weights alone.
EarlyCase WithoutDrift() {
  EarlyCase early;
  early.versions = TwoVersions(1, /*equal=*/true);
  for (auto& member : early.benign.ensemble.members) {
    member.steps = member.reference_steps;
    member.parameters = member.reference_parameters;
  }
  early.versions.now[0].log.provenance.final_weights_digest = "other";
  return early;
}

/// Good runs that agree to the last bit still leave room for one flip.
TEST(EarlyWindow, AllowsAFlipWhereGoodRunsAgree) {
  EarlyCase early = WithoutDrift();
  auto& run = early.versions.now[0].log;
  const double loss = run.steps.loss_nats[0];
  const auto outcome = [&](double roundings) {
    run.steps.loss_nats[0] = loss * (1 + roundings * 0x1p-24);
    return CheckNamed(early.Judged(), "early_window").outcome;
  };

  // The floor is 256 roundings and the threshold then 1.
  EXPECT_EQ(outcome(255.9), Outcome::kPass);
  EXPECT_EQ(outcome(256.1), Outcome::kFail);
}

/// WithoutDrift, but for one figure of the second parameter in step 1.
struct SmallParameter {
  /// `parameter` is its name in run logs.
  explicit SmallParameter(const std::string& parameter) {
    for (auto& member : early.benign.ensemble.members) {
      member.reference_parameters.names[1] = parameter;
      member.parameters.names[1] = parameter;
    }
    for (compare::Run* run :
         {&early.versions.approved[0], &early.versions.now[0]}) {
      run->log.parameters.names[1] = parameter;
      // The graph's parameter with an update is the second one of the log.
      auto& names = run->log.provenance.graph.tensors.parameter;
      std::ranges::replace(names, "wq", parameter);
      std::ranges::replace(names, "router", "wq");
    }
    probe = SampleProbe(early.versions.now[0]);
  }

  /// With that figure times e^`logarithm`.
  Outcome Judged(std::vector<double> runlog::ParameterColumns::*figure,
                 double logarithm, bool probed = true) const {
    TwoVersions versions = early.versions;
    auto& log = versions.now[0].log;
    (log.parameters.*figure)[1] *= std::exp(logarithm);
    AddUpNorms(log.parameters, log.steps);
    const compare::Pairing pairing = versions.Pair();
    const Judgement judgement =
        Judge({.pairing = &pairing,
               .candidate_probes = std::span(&probe, probed ? 1 : 0),
               .benign = &early.benign},
              Regression(), {.climb_all = true});
    return CheckNamed(judgement, "early_window").outcome;
  }

  EarlyCase early = WithoutDrift();
  Probe probe;
};

/// One element of a small tensor moves its norms by more than 256 roundings.
TEST(EarlyWindow, AllowsASmallParameterWhatOneElementDoes) {
  for (const char* parameter :
       {"wq.weight", "routed_experts.inner_experts.w1_EFD"}) {
    const SmallParameter small(parameter);
    constexpr double kElements = 1000;  // of each tensor of SampleProbe
    const auto gradient = &runlog::ParameterColumns::grad_norm;
    const auto update = &runlog::ParameterColumns::update_ratio;

    // Floors are 2^-4 / n and 1 / (2 n), and the threshold is 1. Figures near 1
    // leave errors of some 1e-16 in logarithms of 1e-4, far below 0.1 %.
    constexpr double kBelow = 0.999 / kElements;
    constexpr double kAbove = 1.001 / kElements;
    EXPECT_EQ(small.Judged(gradient, kBelow / 16), Outcome::kPass);
    EXPECT_EQ(small.Judged(gradient, kAbove / 16), Outcome::kFail);
    EXPECT_EQ(small.Judged(update, kBelow / 2), Outcome::kPass);
    EXPECT_EQ(small.Judged(update, kAbove / 2), Outcome::kFail);
    EXPECT_EQ(small.Judged(update, kBelow / 2, /*probed=*/false),
              Outcome::kFail);
  }
}

TEST(EarlyWindow, JudgesEverySeed) {
  EarlyCase early;
  early.versions = TwoVersions(3);
  ScaleGradients(early.versions.now[2].log, 6, 1.1);

  const Judgement judgement = early.Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "early_window").evidence,
              HasSubstr("seed 3, gradient norm of wq at step 7"));
}

TEST(EarlyWindow, IsInconclusiveWithFewGoodRuns) {
  EarlyCase early;
  early.benign = BenignEnsemble(11);

  const Judgement judgement = early.Judged();

  EXPECT_EQ(LevelOf(judgement, "L4"), Outcome::kInconclusive);
  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_EQ(CheckNamed(judgement, "members").value, 11);
}

/// 20 good runs of which one is far out: the limit is wider than any bug.
TEST(EarlyWindow, IsInconclusiveIfTheLimitIsAboveTheCeiling) {
  EarlyCase early;
  early.benign.ensemble.members[0].steps.loss_nats[0] *= 3;
  const Judgement wide = early.Judged();
  early.versions.now[0].log.steps.loss_nats[4] *= 1e12;
  const Judgement beyond = early.Judged();

  const Check check = CheckNamed(wide, "early_window");
  EXPECT_EQ(check.outcome, Outcome::kInconclusive);
  EXPECT_GT(check.limit.value(), Policy().null_limit_ceiling);
  EXPECT_THAT(check.next, HasSubstr("--out FILE --runs 40"));
  EXPECT_EQ(wide.outcome, Outcome::kInconclusive);
  EXPECT_EQ(CheckNamed(beyond, "early_window").outcome, Outcome::kFail);
}

TEST(EarlyWindow, AskedForPrecisionComparesWithApprovedPairs) {
  TwoArms arms(2);
  const NullEnsemble seeds = SeedsEnsemble(16);
  const auto judged = [&] {
    const compare::Pairing pairing = arms.Pair();
    return Judge({.pairing = &pairing, .seeds = &seeds}, FewMembers());
  };

  const Judgement good = judged();
  arms.Candidate(1).log.parameters.update_ratio[7] *= 1.01;
  const Judgement bad = judged();

  EXPECT_EQ(good.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(good, "L4"), Outcome::kPass);
  EXPECT_EQ(bad.outcome, Outcome::kFail);
  EXPECT_THAT(CheckNamed(bad, "early_window").next,
              HasSubstr("update of router at step 4"));
}

TEST(EarlyWindow, NeverMeasuresAPairAgainstItself) {
  const TwoArms arms(2);
  NullEnsemble seeds = SeedsEnsemble(12);
  seeds.ensemble.members[3].seed = 2;  // a seed of the judged pairs
  const compare::Pairing pairing = arms.Pair();

  const Judgement judgement =
      Judge({.pairing = &pairing, .seeds = &seeds}, FewMembers());

  EXPECT_EQ(CheckNamed(judgement, "members").value, 11);
}

struct BadEnsemble {
  const char* name;
  std::function<void(runlog::Ensemble&)> spoil;
  const char* message;
};

void PrintTo(const BadEnsemble& bad, std::ostream* out) { *out << bad.name; }
std::string NameOf(const ::testing::TestParamInfo<BadEnsemble>& info) {
  return info.param.name;
}

class BadEnsembleTest : public ::testing::TestWithParam<BadEnsemble> {};

/// No file can say so: its members share their names.
TEST(BadEnsemble, WithOtherParametersInOneMemberIsNone) {
  EarlyCase early;
  early.benign.ensemble.members[7].parameters.names[0] = "wk";

  EXPECT_THROW(early.Judged(), std::exception);
}

TEST_P(BadEnsembleTest, IsInvalid) {
  EarlyCase early;
  GetParam().spoil(early.benign.ensemble);

  const Judgement judgement = early.Judged();

  if (EndsByDomains(judgement)) return;
  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "ensemble").quantity,
              HasSubstr(GetParam().message));
}

const BadEnsemble kBadEnsembles[] = {
    {"OtherKind", [](auto& e) { e.kind = runlog::EnsembleKind::kSeeds; },
     "holds members of kind seeds, but this level needs benign"},
    {"OtherConfig", [](auto& e) { e.provenance.config_digest = "c2"; },
     "benign.h5: config_digest is 'c2'"},
    {"OtherCorpus", [](auto& e) { e.provenance.corpus_digest = "d2"; },
     "corpus_digest is 'd2'"},
    {"OtherRecipe", [](auto& e) { e.provenance.recipe = "bf16"; },
     "recipe is 'bf16'"},
    {"OtherNumerics", [](auto& e) { e.provenance.numerics_digest = "n9"; },
     "numerics_digest is 'n9', but mxfp8_seed1.h5 has 'n1'"},
    {"MemberTwice", [](auto& e) { e.members[3].perturbation = "order_1"; },
     "seed 1 with order_1 occurs twice"},
    {"Nan", [](auto& e) { e.members[5].steps.loss_nats[4] = std::nan(""); },
     "seed 1, order_5 has a value that is not finite"},
    {"Truncated",
     [](auto& e) {
       e.members[5].steps.step.resize(19);
       e.members[5].steps.loss_nats.resize(19);
       e.members[5].steps.grad_norm.resize(19);
     },
     "order_5 does not hold loss and gradient norm of steps 1 to 20"},
    {"Shuffled",
     [](auto& e) {
       std::swap(e.members[0].steps.step[2], e.members[0].steps.step[3]);
     },
     "does not hold loss"},
    {"RunsWithoutThoseParameters",
     [](auto& e) {
       for (auto& member : e.members) {
         member.parameters.names[1] = "gate";
         member.reference_parameters.names[1] = "gate";
       }
     },
     "mxfp8_seed1.h5 or new_seed1.h5 does not hold"},
};

INSTANTIATE_TEST_SUITE_P(Damages, BadEnsembleTest,
                         ::testing::ValuesIn(kBadEnsembles), NameOf);

TEST(EarlyWindow, RefusesAnEnsembleWithoutMembers) {
  EarlyCase early;
  early.benign.ensemble.members.clear();

  EXPECT_EQ(early.Judged().outcome, Outcome::kInconclusive);
}

TEST(EarlyWindow, RefusesSeedsOfAnotherBaseline) {
  const TwoArms arms(2);
  NullEnsemble seeds = SeedsEnsemble(12);
  seeds.ensemble.reference_provenance.numerics_digest = "n9";
  const compare::Pairing pairing = arms.Pair();

  const Judgement judgement =
      Judge({.pairing = &pairing, .seeds = &seeds}, FewMembers());

  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "ensemble").quantity,
              HasSubstr("reference: numerics_digest is 'n9'"));
}

}  // namespace
}  // namespace isoloss::gate::l4_early_window_test
