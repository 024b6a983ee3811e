#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "judged_runs.h"
#include "sample_evidence.h"

namespace isoloss::gate::l3_precision_test {
namespace {

using ::testing::HasSubstr;

class PrecisionTest : public ::testing::Test {
 protected:
  const TwoArms arms_{2};
  const compare::Pairing pairing_ = arms_.Pair();
  std::vector<Probe> probes_ = {PrecisionProbe(arms_.Candidate(0))};
  NullEnsemble seeds_ = SeedsEnsemble(16);

  Judgement Judged() const {
    return Judge(
        {.pairing = &pairing_, .candidate_probes = probes_, .seeds = &seeds_},
        FewMembers());
  }
};

TEST_F(PrecisionTest, PassesAProbeLikeThoseOfApprovedPairs) {
  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L3"), Outcome::kPass);
  // 3 tensors with 5 statistics, one with 3, and one share of routing flips.
  EXPECT_THAT(CheckNamed(judgement, "precision_probe").evidence,
              HasSubstr("19 statistics, 16 good runs"));
}

struct Fault {
  const char* name;
  std::function<void(runlog::ProbeLog&)> plant;
  const char* where;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }
template <typename T>
std::string NameOf(const ::testing::TestParamInfo<T>& info) {
  return info.param.name;
}

class PrecisionFaultTest : public PrecisionTest,
                           public ::testing::WithParamInterface<Fault> {};

TEST_P(PrecisionFaultTest, FailsAndNamesTheTensor) {
  GetParam().plant(probes_[0].log);

  const Judgement judgement = Judged();

  if (EndsByDomains(judgement)) return;
  EXPECT_EQ(judgement.outcome, Outcome::kFail);
  EXPECT_EQ(LevelOf(judgement, "L3"), Outcome::kFail);
  EXPECT_THAT(CheckNamed(judgement, "precision_probe").next,
              HasSubstr(GetParam().where));
  ASSERT_FALSE(judgement.tensors.empty());
  EXPECT_THAT(judgement.tensors[0].statistic, HasSubstr(GetParam().where));
}

const Fault kFaults[] = {
    {"LargerError", [](auto& log) { log.precision.relative_error[1] *= 3; },
     "relative error of layers.0.wq_dgrad"},
    {"SmallerError", [](auto& log) { log.precision.relative_error[1] /= 3; },
     "relative error of layers.0.wq_dgrad"},
    {"Gain", [](auto& log) { log.precision.gain[2] = 0.05; },
     "gain of layers.0.wq_wgrad"},
    {"OneGroup", [](auto& log) { log.precision.worst_group_error[0] = 1; },
     "error of the worst group of layers.0.wq_output"},
    {"Saturation", [](auto& log) { log.precision.saturated[0] = 3; },
     "share of saturated elements of layers.0.wq_output"},
    {"Underflows", [](auto& log) { log.precision.underflows[0] = 0; },
     "share of underflows of layers.0.wq_output"},
    {"RoutingFlips", [](auto& log) { log.routing_flips.flip_share[0] = 0.3; },
     "share of routing flips of MoE layer 0"},
    {"NotFinite", [](auto& log) { log.precision.gain[2] = std::nan(""); },
     "gain of layers.0.wq_wgrad"},
};

INSTANTIATE_TEST_SUITE_P(Faults, PrecisionFaultTest,
                         ::testing::ValuesIn(kFaults), NameOf<Fault>);

TEST_F(PrecisionTest, CountsSmallSharesInElements) {
  for (auto& member : seeds_.ensemble.members) {
    member.precision.underflows[0] = 0;
  }
  const auto one =
      100.0 / static_cast<double>(probes_[0].log.oracle.elements[0]);

  probes_[0].log.precision.underflows[0] = one;
  EXPECT_EQ(Judged().outcome, Outcome::kPass);

  probes_[0].log.precision.underflows[0] = 100 * one;
  EXPECT_EQ(Judged().outcome, Outcome::kFail);
}

TEST_F(PrecisionTest, IsAMeasureWithoutAnEnsemble) {
  const Judgement judgement =
      Judge({.pairing = &pairing_, .candidate_probes = probes_}, {});

  EXPECT_EQ(judgement.outcome, Outcome::kPass);
  EXPECT_EQ(LevelOf(judgement, "L3"), std::nullopt);
  const auto measure = std::find_if(
      judgement.measures.begin(), judgement.measures.end(),
      [](const Measure& m) { return m.name == "largest_relative_error"; });
  ASSERT_NE(measure, judgement.measures.end());
  EXPECT_THAT(measure->evidence,
              HasSubstr("isoloss lab ensemble build --kind seeds"));
}

TEST_F(PrecisionTest, IsInconclusiveWithFewPairs) {
  seeds_ = SeedsEnsemble(11);

  const Judgement judgement = Judged();

  EXPECT_EQ(judgement.outcome, Outcome::kInconclusive);
  EXPECT_EQ(LevelOf(judgement, "L3"), Outcome::kInconclusive);
}

struct BadInput {
  const char* name;
  std::function<void(Probe&, runlog::Ensemble&)> spoil;
  const char* message;
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

class BadPrecisionTest : public PrecisionTest,
                         public ::testing::WithParamInterface<BadInput> {};

TEST_P(BadPrecisionTest, IsInvalid) {
  GetParam().spoil(probes_[0], seeds_.ensemble);

  const Judgement judgement = Judged();

  if (EndsByDomains(judgement)) return;
  EXPECT_EQ(judgement.outcome, Outcome::kInvalid);
  EXPECT_THAT(CheckNamed(judgement, "evidence").quantity,
              HasSubstr(GetParam().message));
}

const BadInput kBadInputs[] = {
    {"OtherReference",
     [](Probe& probe, auto&) { probe.log.reference_recipe = "fp32"; },
     "was probed against recipe 'fp32', but the baseline's is 'bf16'"},
    {"NoRows", [](Probe& probe, auto&) { probe.log.precision = {}; },
     "holds no comparison with a reference"},
    {"OtherTensors",
     [](Probe&, auto& ensemble) { ensemble.tensors[3] = "x_output"; },
     "was probed at other steps or tensors"},
    {"OtherSteps",
     [](Probe&, auto& ensemble) { ensemble.members[2].precision.step[0] = 4; },
     "seed 103 was probed at other steps or tensors"},
    {"MemberNotFinite",
     [](Probe&, auto& ensemble) {
       ensemble.members[2].precision.gain[0] = std::nan("");
     },
     "seed 103 has a value that is not finite"},
    {"OtherConfig",
     [](Probe&, auto& ensemble) { ensemble.provenance.config_digest = "c2"; },
     "config_digest is 'c2'"},
    {"OtherCandidate",
     [](Probe&, auto& ensemble) { ensemble.provenance.recipe = "mxfp8_floor"; },
     "recipe is 'mxfp8_floor'"},
    {"OtherBaseline",
     [](Probe&, auto& ensemble) {
       ensemble.reference_provenance.recipe = "fp32";
     },
     "reference: recipe is 'fp32'"},
};

INSTANTIATE_TEST_SUITE_P(Damages, BadPrecisionTest,
                         ::testing::ValuesIn(kBadInputs), NameOf<BadInput>);

}  // namespace
}  // namespace isoloss::gate::l3_precision_test
