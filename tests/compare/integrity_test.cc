#include "isoloss/compare/integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

namespace isoloss::compare {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Two runs of one arm; the candidate's may be changed.
struct Two {
  Run baseline;
  Run candidate;

  std::vector<Finding> Check(std::string_view rule) const {
    const Pairing pairing =
        PairBySeed("mxfp8", {&baseline}, "mxfp8", {&candidate});
    for (const IntegrityRule& known : IntegrityRules()) {
      if (known.name == rule) {
        return known.check(pairing, Question::kRegression);
      }
    }
    ADD_FAILURE() << "no rule " << rule;
    return {};
  }
};

runlog::RunLog Log() {
  runlog::RunLog log;
  log.provenance.arm = "mxfp8";
  log.provenance.seed = 1;
  log.steps.step = {1, 2, 3};
  log.steps.lr = {1e-3, 2e-3, 3e-3};
  log.tensors.step = {1};
  log.tensors.count = 1;
  log.tensors.names = {"norm_weight"};
  // Values 1, 2, 3, 6: mean 3, sample variance 14 / 3, sum of squares 50.
  log.tensors.statistics[runlog::kStat_numel] = {4};
  log.tensors.statistics[runlog::kStat_nonfinite_num] = {0};
  log.tensors.statistics[runlog::kStat_mean] = {3};
  log.tensors.statistics[runlog::kStat_variance] = {14.0 / 3};
  log.tensors.statistics[runlog::kStat_l2_norm] = {std::sqrt(50.0)};
  return log;
}

Two Same() { return {{"a.h5", Log()}, {"b.h5", Log()}}; }

TEST(Integrity, FindsNothingInEqualRuns) {
  for (const char* rule : {"seeds", "schedule", "statistics"}) {
    Two two = Same();
    two.candidate.log.provenance.final_weights_digest = "other";
    two.candidate.log.steps.loss_nats = {1, 2, 3};
    EXPECT_THAT(two.Check(rule), IsEmpty()) << rule;
  }
}

// Two halves 1, 2 and 3, 6 have variances 0.5 and 4.5 and means 1.5 off the
// mean: merged with the wrong sign their squares are taken off.
TEST(Integrity, FindsAVarianceThatWasMergedWithTheWrongSign) {
  Two two = Same();
  two.candidate.log.tensors.statistics[runlog::kStat_variance] = {
      (0.5 + 4.5 - 4 * 1.5 * 1.5) / 3};

  const auto findings = two.Check("statistics");

  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kBad);
  EXPECT_THAT(findings[0].message, HasSubstr("b.h5: norm_weight in step 1"));
}

TEST(Integrity, AsksForNoLoadOfExpertsThatAreNotThere) {
  Two two = Same();
  two.candidate.log.steps.expert_load_max_over_mean = {NAN, NAN, NAN};
  EXPECT_THAT(two.Check("finite"), IsEmpty());

  two.candidate.log.steps.expert_load_max_over_mean[1] = 1.5;
  EXPECT_THAT(two.Check("finite"), SizeIs(1));

  two.candidate.log.steps.expert_load_max_over_mean[1] = NAN;
  two.candidate.log.moe.layers = 1;
  EXPECT_THAT(two.Check("finite"), SizeIs(1));
}

TEST(Integrity, PassesOverStatisticsThatWereNotLogged) {
  Two two = Same();
  two.candidate.log.tensors.statistics[runlog::kStat_l2_norm].clear();

  EXPECT_THAT(two.Check("statistics"), IsEmpty());
}

TEST(Integrity, FindsAnotherLearningRate) {
  Two two = Same();
  two.candidate.log.steps.lr[1] *= 1 + 1e-13;
  EXPECT_THAT(two.Check("schedule"), IsEmpty());

  two.candidate.log.steps.lr[1] *= 1 + 1e-11;
  const auto findings = two.Check("schedule");

  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kBad);
  EXPECT_THAT(findings[0].message, HasSubstr("learning rate of step 2"));
}

TEST(Integrity, FindsALogUnderAnotherArmsName) {
  Two two = Same();
  two.candidate.log.provenance.arm = "bf16";

  const auto findings = two.Check("seeds");

  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].severity, Severity::kIncomparable);
  EXPECT_THAT(findings[0].message, HasSubstr("it says that it is of arm bf16"));
}

}  // namespace
}  // namespace isoloss::compare
