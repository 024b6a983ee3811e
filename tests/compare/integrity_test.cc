#include "isoloss/compare/integrity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "support/findings.h"
#include "support/foreign_runs.h"
#include "support/synthetic_runs.h"

namespace isoloss::compare::integrity_test {
namespace {

using test_support::Finds;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
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

/// Of a program that records little, with warm-up in all steps.
runlog::RunLog Log() {
  runlog::RunLog log = test_support::SyntheticRun(true, 1, 0).log;
  log.provenance.experiment_text =
      "[train]\nsteps = 50\nlr = 0.05\nwarmup_steps = 50\n"
      "decay_type = \"linear\"\nmin_lr_factor = 0.0\n";
  for (size_t i = 0; i < log.steps.lr.size(); ++i) {
    log.steps.lr[i] = 0.05 * (static_cast<double>(i + 1) / 50);
  }
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
  for (const char* rule : {"seeds", "schedule"}) {
    Two two = Same();
    two.candidate.log.provenance.final_weights_digest = "other";
    two.candidate.log.steps.loss_nats[0] *= 2;
    EXPECT_THAT(two.Check(rule), IsEmpty()) << rule;
  }
}

// Two halves 1, 2 and 3, 6 have variances 0.5 and 4.5 and means 1.5 off the
// mean, whose squares this merge forgets.
TEST(Integrity, FindsAVarianceThatWasMergedWrongly) {
  const auto wrongly_merged =
      Contains(Field(&Finding::message, HasSubstr("were merged wrongly")));
  Two two = Same();
  EXPECT_THAT(two.Check("domains"), Not(wrongly_merged));

  auto& statistics = two.candidate.log.tensors.statistics;
  statistics[runlog::kStat_variance] = {(0.5 + 4.5) / 3};
  EXPECT_THAT(two.Check("domains"), wrongly_merged);

  statistics[runlog::kStat_l2_norm].clear();
  EXPECT_THAT(two.Check("domains"), Not(wrongly_merged));
}

TEST(Integrity, AsksForNoLoadOfExpertsThatAreNotThere) {
  Two two = Same();
  const auto load = Contains(
      Field(&Finding::message, HasSubstr("expert_load_max_over_mean")));
  two.candidate.log.steps.expert_load_max_over_mean.assign(50, NAN);
  EXPECT_THAT(two.Check("domains"), Not(load));

  two.candidate.log.steps.expert_load_max_over_mean[1] = 1.5;
  EXPECT_THAT(two.Check("domains"), load);

  two.candidate.log.steps.expert_load_max_over_mean[1] = NAN;
  two.candidate.log.moe.layers = 1;
  EXPECT_THAT(two.Check("domains"), load);
}

// Two layers of four experts, two of them for each of the step's tokens.
TEST(Integrity, AddsUpTheLoadsOfOtherPrograms) {
  const auto findings = [](int64_t top_k, const auto& spoil) {
    Two two = Same();
    for (compare::Run* run : {&two.baseline, &two.candidate}) {
      runlog::RunLog& log = run->log;
      log.provenance.origin.format = "isoloss-recorder";
      log.provenance.origin.top_k = top_k;
      const size_t steps = log.steps.step.size();
      log.moe.step = log.steps.step;
      log.moe.layers = 2;
      log.moe.experts = 4;
      log.steps.tokens_seen.resize(steps);
      for (size_t i = 0; i < steps; ++i) {
        log.steps.tokens_seen[i] = 16 * static_cast<int64_t>(i + 1);
        for (const int64_t load : {9, 8, 5, 10, 6, 9, 9, 8}) {
          log.moe.tokens_per_expert.push_back(load);
        }
      }
    }
    spoil(two.candidate.log.moe);
    std::vector<Severity> found;
    for (const Finding& finding : two.Check("domains")) {
      if (finding.message.find("loads of MoE") != std::string::npos) {
        found.push_back(finding.severity);
      }
    }
    return found;
  };
  const auto layer_twice = [](auto& moe) {
    for (size_t i = 4; i < 8; ++i) moe.tokens_per_expert[i] *= 2;
  };
  const auto some_missing = [](auto& moe) {
    moe.tokens_per_expert[8] -= 7;
    moe.tokens_per_expert[13] -= 7;
  };
  const auto half_more = [](auto& moe) {
    for (int64_t& load : moe.tokens_per_expert) load += load / 2 + load % 2;
  };
  EXPECT_THAT(findings(2, [](auto&) {}), IsEmpty());
  EXPECT_THAT(findings(0, [](auto&) {}), IsEmpty());
  EXPECT_THAT(findings(2, layer_twice), ElementsAre(Severity::kIncomparable));
  EXPECT_THAT(findings(0, layer_twice), ElementsAre(Severity::kUnverified));
  EXPECT_THAT(findings(2, some_missing), ElementsAre(Severity::kIncomparable));
  EXPECT_THAT(findings(0, some_missing), ElementsAre(Severity::kUnverified));
  EXPECT_THAT(findings(2, half_more), ElementsAre(Severity::kIncomparable));
  EXPECT_THAT(findings(2,
                       [&](auto& moe) {
                         some_missing(moe);
                         moe.dropped_tokens.assign(moe.step.size() * 2, 0);
                         moe.dropped_tokens[2] = moe.dropped_tokens[3] = 7;
                       }),
              IsEmpty());
}

// As of a sweep in which one machine had another build.
TEST(Integrity, NamesTheRunOfAnArmThatAnotherArithmeticMade) {
  const auto numerics =
      Contains(Field(&Finding::message, HasSubstr("computes otherwise")));
  compare::Run first = {"a.h5", Log()};
  compare::Run second = {"b.h5", Log()};
  second.log.provenance.seed = first.log.provenance.seed + 1;
  compare::Run other = {"c.h5", Log()};
  compare::Run third = {"d.h5", Log()};
  third.log.provenance.seed = first.log.provenance.seed + 2;
  for (compare::Run* run : {&first, &second, &third, &other}) {
    run->log.provenance.numerics_digest = "0000000000000001";
  }
  const auto configuration = [&](Question question) {
    return IntegrityRules()[1].check(
        PairBySeed("mxfp8", {&second, &first, &third}, "mxfp8", {&other}),
        question);
  };
  ASSERT_EQ(IntegrityRules()[1].name, "configuration");
  EXPECT_THAT(configuration(Question::kRegression), Not(numerics));

  // Arms, and versions of a regression, may compute otherwise.
  other.log.provenance.numerics_digest = "0000000000000002";
  EXPECT_THAT(configuration(Question::kPrecision), Not(numerics));

  second.log.provenance.numerics_digest = "0000000000000002";
  second.log.provenance.commit = "feed";
  for (const auto question : {Question::kPrecision, Question::kRegression}) {
    const auto findings = configuration(question);
    EXPECT_THAT(findings, numerics);
    for (const Finding& finding : findings) {
      if (!finding.message.starts_with("b.h5: its program")) continue;
      EXPECT_EQ(finding.severity, Severity::kIncomparable);
      EXPECT_THAT(finding.message, HasSubstr("commit feed"));
    }
  }
}

TEST(Integrity, FindsAnotherLearningRate) {
  Two two = Same();
  two.candidate.log.steps.lr[1] *= 1 + 1e-13;
  EXPECT_THAT(two.Check("schedule"), IsEmpty());

  two.candidate.log.steps.lr[1] *= 1 + 1e-11;
  const auto findings = two.Check("schedule");

  ASSERT_THAT(findings, SizeIs(2));
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::kBad);
    EXPECT_THAT(finding.message, HasSubstr("learning rate of step 2"));
  }
}

TEST(Integrity, FindsLearningRatesThatAreNotTheSchedulesInEitherRun) {
  const auto findings = [](const auto& spoil) {
    Two two = Same();
    spoil(two.baseline.log);
    spoil(two.candidate.log);
    return two.Check("schedule");
  };
  const auto is_bad = Field(&Finding::severity, Severity::kBad);
  EXPECT_THAT(
      findings([](auto& log) { std::swap(log.steps.lr[0], log.steps.lr[1]); }),
      ElementsAre(is_bad, is_bad));
  EXPECT_THAT(findings([](auto& log) { log.steps.lr[2] = 0; }),
              ElementsAre(is_bad, is_bad));
  // Only old programs may have named the schedule otherwise.
  const auto without_text = [](int64_t version) {
    return [version](auto& log) {
      log.provenance.experiment_text.clear();
      log.schema_version = version;
    };
  };
  EXPECT_THAT(findings(without_text(1)), IsEmpty());
  EXPECT_THAT(findings(without_text(runlog::kFullTextVersion)), SizeIs(2));
  EXPECT_THAT(findings(without_text(runlog::kSchemaVersion)), SizeIs(2));
}

TEST(Integrity, FindsALogUnderAnotherArmsName) {
  Two two = Same();
  two.candidate.log.provenance.arm = "bf16";

  const auto findings = two.Check("seeds");

  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].severity, Severity::kIncomparable);
  EXPECT_THAT(findings[0].message, HasSubstr("it says that it is of arm bf16"));
}

/// The findings of a rule on one run of another program against itself.
std::vector<Finding> ForeignFindings(std::string_view rule,
                                     const compare::Run& baseline,
                                     const compare::Run& candidate) {
  const Pairing pairing = PairBySeed("a", {&baseline}, "a", {&candidate});
  for (const IntegrityRule& known : IntegrityRules()) {
    if (known.name == rule) return known.check(pairing, Question::kRegression);
  }
  ADD_FAILURE() << "no rule " << rule;
  return {};
}

// ---- one seed --------------------------------------------------------------

std::vector<Finding> SeedsOf(std::vector<compare::Run> runs,
                             Question question) {
  std::vector<const Run*> arm;
  for (compare::Run& run : runs) {
    run.log.provenance.arm = "a";
    arm.push_back(&run);
  }
  return IntegrityRules()[0].check(PairBySeed("a", arm, "a", arm), question);
}

TEST(Seeds, AreNotOneSeedMovedALittle) {
  for (const double percent : {1e-7, 1e-5, 0.001}) {
    std::vector<compare::Run> runs = {
        test_support::ForeignRunOf("a", 1, 0),
        test_support::ForeignRunOf("a", 1, percent)};
    runs[1].log.provenance.seed = 2;
    for (const auto question : {Question::kPrecision, Question::kRegression}) {
      EXPECT_THAT(
          SeedsOf(runs, question),
          Contains(Finds(Severity::kIncomparable, "These are one seed")))
          << percent;
    }
  }
  for (const auto question : {Question::kPrecision, Question::kRegression}) {
    EXPECT_THAT(SeedsOf({test_support::ForeignRunOf("a", 1, 0),
                         test_support::ForeignRunOf("a", 2, 0)},
                        question),
                IsEmpty());
  }
}

// Equal batches, whose noise is 0.02, and weights of their own: a tenth of it.
TEST(Seeds, MayHaveEqualBatchesOrEqualWeights) {
  std::vector<compare::Run> runs = {test_support::ForeignRunOf("a", 1, 0),
                                    test_support::ForeignRunOf("a", 1, 0)};
  runs[1].log.provenance.seed = 2;
  std::mt19937_64 random(7);
  std::normal_distribution<double> own(0, 0.002);
  for (double& loss : runs[1].log.steps.loss_nats) loss += own(random);
  for (compare::Run& run : runs) {
    run.log.steps.batch_digest.assign(100, 5);
    run.log.provenance.initial_weights_digest =
        std::to_string(run.log.provenance.seed);
  }
  EXPECT_THAT(SeedsOf(runs, Question::kPrecision), IsEmpty());
  for (compare::Run& run : runs)
    run.log.provenance.initial_weights_digest = "w";
  EXPECT_THAT(SeedsOf(runs, Question::kPrecision),
              Contains(Finds(Severity::kIncomparable, "all 100 batches")));
  // A fine-tuning: one checkpoint, batches in another order.
  runs[1].log.steps.batch_digest[3] = 6;
  EXPECT_THAT(SeedsOf(runs, Question::kPrecision), IsEmpty());
}

// isoloss draws weights and batches by the seed, so neither is shared.
TEST(Seeds, OfIsolossHaveWeightsAndBatchesOfTheirOwn) {
  const auto found = [](const auto& edit) {
    std::vector<compare::Run> runs = {test_support::SyntheticRun(true, 1, 0),
                                      test_support::SyntheticRun(true, 2, 0)};
    for (compare::Run& run : runs) test_support::FillBatches(run.log);
    edit(runs[0].log, runs[1].log);
    return SeedsOf(runs, Question::kRegression);
  };
  EXPECT_THAT(found([](auto&, auto&) {}), IsEmpty());
  const auto expect_found = [&](const char* text, const auto& edit) {
    EXPECT_THAT(found(edit), Contains(Finds(Severity::kIncomparable, text)));
  };
  expect_found("its all 50 batches are", [](auto& a, auto& b) {
    b.steps.batch_digest = a.steps.batch_digest;
  });
  expect_found("its initial weights (w1) are", [](auto& a, auto& b) {
    b.provenance.initial_weights_digest = a.provenance.initial_weights_digest;
  });
  expect_found("its final weights have", [](auto& a, auto& b) {
    b.provenance.final_weights_digest = a.provenance.final_weights_digest;
  });
}

// Reruns of a trainer that is not deterministic begin alike and part.
TEST(Seeds, OfARegressionMayBeRerunsOfOne) {
  std::vector<compare::Run> runs = {test_support::ForeignRunOf("a", 1, 0),
                                    test_support::ForeignRunOf("a", 1, 0)};
  runs[1].log.provenance.seed = 2;
  for (size_t row = 30; row < 100; ++row) {
    runs[1].log.steps.loss_nats[row] *= 1.001;
  }
  EXPECT_THAT(SeedsOf(runs, Question::kRegression), IsEmpty());
  EXPECT_THAT(SeedsOf(runs, Question::kPrecision), Not(IsEmpty()));
}

// ---- the first step ---------------------------------------------------------

TEST(Configuration, GivesEqualWeightsAndBatchesEqualLosses) {
  const auto findings = [](double factor, const auto& edit) {
    std::vector<compare::Run> runs = {test_support::SyntheticRun(false, 1, 0),
                                      test_support::SyntheticRun(true, 1, 0)};
    for (compare::Run& run : runs) test_support::FillBatches(run.log);
    runs[1].log.steps.loss_nats[0] *= factor;
    edit(runs[1].log);
    return IntegrityRules()[1].check(
        PairBySeed("bf16", {&runs[0]}, "mxfp8", {&runs[1]}),
        Question::kPrecision);
  };
  const auto none = [](auto&) {};
  EXPECT_THAT(findings(1.0049, none), IsEmpty());
  for (const double factor : {0.9949, 1.0051, 2.0}) {
    EXPECT_THAT(
        findings(factor, none),
        ElementsAre(Finds(Severity::kUnverified, "its loss of step 1 is")));
  }
  EXPECT_THAT(findings(2, [](auto& log) { log.steps.batch_digest[0] += 1000; }),
              IsEmpty());
}

// ---- batches ---------------------------------------------------------------

TEST(Batches, AreEqualAtEqualSteps) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  baseline.log.told.numbers = {{"global batch size", {1, 2}, {128, 128}},
                               {"world size", {0}, {8}}};
  candidate.log.told.numbers = {{"sequence length", {1, 2}, {128, 128}},
                                {"world size", {0}, {8}},
                                {"global batch size", {2, 3}, {128, 256}}};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), IsEmpty());
  candidate.log.told.numbers[2].value[0] = 256;
  EXPECT_THAT(
      ForeignFindings("steps", baseline, candidate),
      ElementsAre(Finds(Severity::kIncomparable,
                        "global batch size is 256 at step 2, but 128")));
  candidate.log.told.numbers = {{"world size", {0}, {16}}};
  EXPECT_THAT(
      ForeignFindings("steps", baseline, candidate),
      ElementsAre(Finds(Severity::kIncomparable, "world size is 16, but 8")));
}

// Written with two decimals, and counted from 0 or 1.
TEST(Batches, OfTwoSizesMakeEpochsGrowApart) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  baseline.log.told.numbers = {{"epochs seen", {1, 50, 100}, {0, 0.5, 1}}};
  candidate.log.told.numbers = {{"epochs seen", {1, 50, 100}, {1.01, 1.5, 2}}};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), IsEmpty());
  candidate.log.told.numbers[0].value = {0, 1, 2};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate),
              ElementsAre(Finds(Severity::kIncomparable,
                                "epochs seen is 1 at step 50, but 0.5")));
}

// One program counts before a step, the other one after it.
TEST(Batches, OfTwoFormatsAreEqualInTheirGrowth) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  baseline.log.told.numbers = {{"samples seen", {1, 2, 3}, {8, 16, 24}}};
  candidate.log.told.numbers = {{"samples seen", {1, 2, 3}, {0, 8, 16}}};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), SizeIs(1));
  candidate.log.provenance.origin.format = "csv";
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), IsEmpty());
  candidate.log.told.numbers[0].value[2] = 17;
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), SizeIs(1));
}

// A logger counts whole epochs, another one their parts.
TEST(Batches, OfWholeEpochsAndOfPartsOfThemMayBeOneApart) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  baseline.log.told.numbers = {{"epochs seen", {1, 50, 99, 100}, {0, 0, 0, 1}}};
  candidate.log.told.numbers = {
      {"epochs seen", {1, 50, 99, 100}, {0.01, 0.5, 0.99, 1}}};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), IsEmpty());
  candidate.log.told.numbers[0].value = {0.03, 1.5, 2.97, 3};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), SizeIs(1));
}

// An event file holds FP32, of which 2^24 + 1 is none.
TEST(Batches, AreEqualUpToFp32) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  baseline.log.told.numbers = {{"tokens seen", {2}, {0x1p24 + 1}}};
  candidate.log.told.numbers = {{"tokens seen", {2}, {0x1p24}}};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), IsEmpty());
  candidate.log.told.numbers = {{"tokens seen", {2}, {0x1p24 - 2}}};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), SizeIs(1));
}

std::vector<std::string> WarningsOf(const compare::Run& baseline,
                                    const compare::Run& candidate) {
  return PairWarnings(PairBySeed("a", {&baseline}, "a", {&candidate}));
}

TEST(PairWarnings, TellOfNumbersThatMayBeOfBatches) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  baseline.log.told.numbers = {{"mini batch size", {1, 2}, {8, 8}, false}};
  candidate.log.told.numbers = {{"mini batch size", {1, 2}, {8, 8}, false}};
  EXPECT_THAT(WarningsOf(baseline, candidate), IsEmpty());
  candidate.log.told.numbers[0].value = {8, 16};
  EXPECT_THAT(ForeignFindings("steps", baseline, candidate), IsEmpty());
  EXPECT_THAT(WarningsOf(baseline, candidate),
              ElementsAre(HasSubstr("mini batch size is 16 at step 2, but 8")));
}

TEST(PairWarnings, TellOfGradientNormsThatDifferByAFactor) {
  compare::Run baseline = test_support::ForeignRunOf("a", 1, 0);
  compare::Run candidate = test_support::ForeignRunOf("a", 1, 0);
  const size_t steps = baseline.log.steps.step.size();
  baseline.log.steps.grad_norm.assign(steps, 2);
  const auto warnings = [&](double factor, size_t from) {
    candidate.log.steps.grad_norm.assign(steps, 2);
    for (size_t i = from; i < steps; ++i) {
      candidate.log.steps.grad_norm[i] *= factor;
    }
    return WarningsOf(baseline, candidate);
  };
  EXPECT_THAT(warnings(10, 0), ElementsAre(HasSubstr("is 10 times that of a")));
  EXPECT_THAT(warnings(0.7, 0), SizeIs(1));
  EXPECT_THAT(warnings(10, steps / 2), IsEmpty());
  EXPECT_THAT(warnings(1.2, 0), IsEmpty());
}

}  // namespace
}  // namespace isoloss::compare::integrity_test
