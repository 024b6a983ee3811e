// Integrity rule `declared_change`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "isoloss/compare/integrity.h"
#include "support/findings.h"
#include "support/foreign_runs.h"
#include "support/synthetic_runs.h"

namespace isoloss::compare::declared_change_test {
namespace {

using test_support::Finds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<Finding> DeclaredChangeOf(const compare::Run& baseline,
                                      const compare::Run& candidate) {
  const Pairing pairing = PairBySeed("a", {&baseline}, "b", {&candidate});
  for (const IntegrityRule& rule : IntegrityRules()) {
    if (rule.name != "declared_change") continue;
    return rule.check(pairing, Question::kPrecision);
  }
  return {};
}

TEST(DeclaredChange, ActsInHalfOfTheSteps) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("b", 1, 0.001);
  const auto equal_up_to = [&](size_t row) {
    std::ranges::copy_n(baseline.log.steps.loss_nats.begin(),
                        static_cast<std::ptrdiff_t>(row),
                        candidate.log.steps.loss_nats.begin());
    return DeclaredChangeOf(baseline, candidate);
  };
  EXPECT_THAT(equal_up_to(50), IsEmpty());
  EXPECT_THAT(equal_up_to(51),
              ElementsAre(Finds(Severity::kUnverified, "at 51 of 100 steps")));
  // Losses of 2 and more with 4 decimals differ, where the change acts.
  for (compare::Run* run : {&baseline, &candidate}) {
    run->log.provenance.origin.loss_half_unit = 5e-5;
  }
  EXPECT_THAT(equal_up_to(51), SizeIs(1));
  // Few digits are equal by chance.
  for (compare::Run* run : {&baseline, &candidate}) {
    run->log.provenance.origin.loss_half_unit = 0.005;
  }
  EXPECT_THAT(equal_up_to(99), IsEmpty());
}

TEST(DeclaredChange, IsNoneBetweenTwoRecordsOfOneRun) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("b", 1, 0);
  baseline.log.provenance.origin.loss_half_unit = 5e-7;
  candidate.log.provenance.origin.loss_half_unit = 5e-5;
  for (double& loss : candidate.log.steps.loss_nats) {
    loss = std::round(loss * 1e4) / 1e4;
  }
  EXPECT_THAT(DeclaredChangeOf(baseline, candidate),
              ElementsAre(Finds(Severity::kBad, "identical")));
  // Two programs that write all digits, one of them in FP32.
  candidate = test_support::ForeignRunOf("b", 1, 0);
  candidate.log.provenance.origin.format = "tensorboard";
  baseline.log.provenance.origin.loss_half_unit = 0;
  for (double& loss : candidate.log.steps.loss_nats) {
    loss = static_cast<double>(static_cast<float>(loss));
  }
  EXPECT_THAT(DeclaredChangeOf(baseline, candidate),
              ElementsAre(Finds(Severity::kBad, "identical")));
  // Of one program, one bit is a change that acted.
  candidate.log.provenance.origin.format =
      baseline.log.provenance.origin.format;
  EXPECT_THAT(DeclaredChangeOf(baseline, candidate), IsEmpty());
}

/// What rule declared_change finds in two seeds of arms 0.1 % apart, once
/// `edit` has changed the first candidate, given the runs of the baseline.
std::vector<Finding> FindingsOfEdited(
    const std::function<void(runlog::RunLog&, const std::vector<Run>&)>& edit) {
  const auto arm = [](const char* name, double percent) {
    std::vector<Run> runs;
    for (const int64_t seed : {1, 2}) {
      runs.push_back(test_support::ForeignRunOf(name, seed, percent));
      runlog::RunLog& log = runs.back().log;
      log.eval.step = {0, 100};
      log.eval.loss_nats = {log.steps.loss_nats[0] + 0.01,
                            log.steps.loss_nats[99] + 0.01};
      log.provenance.final_weights_digest =
          name + std::to_string(log.provenance.seed);
    }
    return runs;
  };
  const std::vector<Run> baseline = arm("a", 0);
  std::vector<Run> candidate = arm("b", 0.1);
  edit(candidate[0].log, baseline);
  const Pairing pairing = PairBySeed("a", {&baseline[0], &baseline[1]}, "b",
                                     {&candidate[0], &candidate[1]});
  const auto rules = IntegrityRules();
  const auto rule =
      std::ranges::find(rules, "declared_change", &IntegrityRule::name);
  return rule->check(pairing, Question::kPrecision);
}

void CopyRows(const std::vector<double>& from, size_t first, size_t count,
              double factor, std::vector<double>& to) {
  for (size_t i = first; i < first + count; ++i) to[i] = factor * from[i];
}

TEST(DeclaredChange, HasNoPartOfTheOtherArm) {
  EXPECT_THAT(FindingsOfEdited([](auto&, auto&) {}), IsEmpty());
  // At the end, in the middle, moved by a millionth of the distance, and of
  // another seed.
  for (const auto& [first, factor, seed] :
       {std::tuple(90, 1.0, 0), std::tuple(40, 1.0, 0),
        std::tuple(90, 1 + 1e-9, 0), std::tuple(90, 1.0, 1)}) {
    const auto splice = [&](size_t count) {
      return FindingsOfEdited([&](auto& log, const auto& baseline) {
        CopyRows(baseline[static_cast<size_t>(seed)].log.steps.loss_nats,
                 static_cast<size_t>(first), count, factor,
                 log.steps.loss_nats);
      });
    };
    EXPECT_THAT(splice(10),
                ElementsAre(Finds(Severity::kUnverified,
                                  "at 10 steps, " + std::to_string(first + 1) +
                                      " to " + std::to_string(first + 10) +
                                      ", its loss is that of a-seed")))
        << first << ' ' << factor << ' ' << seed;
    EXPECT_THAT(splice(9), IsEmpty());  // less than a tenth
  }
  EXPECT_THAT(FindingsOfEdited([](auto& log, const auto& baseline) {
                log.eval.loss_nats[1] = baseline[0].log.eval.loss_nats[1];
              }),
              ElementsAre(Finds(Severity::kUnverified, "last held-out loss")));
  EXPECT_THAT(FindingsOfEdited([](auto& log, const auto&) {
                log.provenance.final_weights_digest = "a1";
              }),
              ElementsAre(Finds(Severity::kIncomparable, "final weights")));
}

// isoloss logs the norm of each run's own gradient, in all bits.
TEST(DeclaredChange, MovesGradientNorms) {
  compare::Run baseline{"a.h5", test_support::SyntheticRun(false, 1, 0).log};
  compare::Run candidate{"b.h5", test_support::SyntheticRun(true, 1, 0.1).log};
  const auto findings = [&] {
    return IntegrityRules().back().check(
        PairBySeed("bf16", {&baseline}, "mxfp8", {&candidate}),
        Question::kPrecision);
  };
  EXPECT_THAT(findings(), IsEmpty());
  candidate.log.steps.grad_norm = baseline.log.steps.grad_norm;
  EXPECT_THAT(findings(), ElementsAre(Finds(Severity::kUnverified,
                                            "its gradient norm is that of")));
  for (compare::Run* run : {&baseline, &candidate}) {
    run->log.steps.grad_norm.assign(50, 1);
  }
  EXPECT_THAT(findings(), IsEmpty());
}

// Losses of 2 to 6 nats that are 0.1 % apart are equal in two decimals.
TEST(DeclaredChange, MayBeBelowTheDigits) {
  EXPECT_THAT(FindingsOfEdited([](auto& log, const auto& baseline) {
                log.provenance.origin.loss_half_unit = 0.005;
                CopyRows(baseline[0].log.steps.loss_nats, 50, 50, 1,
                         log.steps.loss_nats);
                log.eval.loss_nats = baseline[0].log.eval.loss_nats;
              }),
              IsEmpty());
}

}  // namespace
}  // namespace isoloss::compare::declared_change_test
