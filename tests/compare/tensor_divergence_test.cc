#include "isoloss/compare/tensor_divergence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/sample_graph.h"

namespace isoloss::compare::tensor_divergence_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Four steps, tensors at steps 1 and 3, five tensors in the order of
/// computation, two parameters, two MoE layers.
runlog::RunLog Log() {
  runlog::RunLog log;
  log.steps.step = {1, 2, 3, 4};
  log.steps.loss_nats = {5.5, 5.0, 4.5, 4.0};
  log.steps.grad_norm = {1.5, 1.25, 1.0, 0.75};
  log.eval.step = {0, 4};
  log.eval.loss_nats = {6.0, 4.25};
  log.parameters = {.step = {1, 2, 3, 4},
                    .count = 2,
                    .names = {"w1", "w2"},
                    .grad_norm = {1, 2, 3, 4, 5, 6, 7, 8},
                    .update_ratio = {.1, .2, .3, .4, .5, .6, .7, .8}};
  log.moe.step = {1, 2, 3, 4};
  log.moe.layers = 2;
  log.moe.experts = 4;
  log.moe.routing_digest = {11, 12, 21, 22, 31, 32, 41, 42};
  auto& t = log.tensors;
  t.step = {1, 3};
  t.count = 5;
  t.names = {"a_weight", "a_activation", "a_output", "a_gradient", "a_wgrad"};
  t.digest = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  log.provenance.graph = test_support::GemmGraph("a");
  t.statistics[runlog::kStat_numel] = std::vector<double>(10, 100);
  t.statistics[runlog::kStat_mean] = std::vector<double>(10, 1e-9);
  t.statistics[runlog::kStat_l2_norm] = std::vector<double>(10, 10);
  t.statistics[runlog::kStat_cur_amax] = std::vector<double>(10, 2);
  t.statistics[runlog::kStat_std] = std::vector<double>(10, 1);
  return log;
}

TEST(TensorDivergence, FindsNothingInEqualLogs) {
  const DivergenceReport report = FindDivergence(Log(), Log());

  EXPECT_FALSE(report.first.has_value());
  EXPECT_EQ(report.steps, 4);
  EXPECT_THAT(report.tensor_steps, ElementsAre(1, 3));
  EXPECT_FALSE(report.HidesTensors());
}

TEST(TensorDivergence, NamesTheFirstTensorInOrderAndThoseBeforeItThatAgree) {
  auto b = Log();
  b.tensors.digest[5 + 4] = 99;  // step 3
  b.tensors.digest[5 + 3] = 98;
  b.steps.loss_nats[2] = 4.75;  // of the same step: tensors come first

  const DivergenceReport report = FindDivergence(Log(), b);

  ASSERT_TRUE(report.first.has_value());
  EXPECT_EQ(report.first->step, 3);
  EXPECT_EQ(report.first->quantity, "digest");
  EXPECT_EQ(report.first->name, "a_gradient");
  EXPECT_EQ(report.first->a, "0000000000000009");
  EXPECT_EQ(report.first->b, "0000000000000062");
  EXPECT_EQ(report.first->phase, Phase::kBackward);
  EXPECT_THAT(report.first->agreeing,
              ElementsAre("a_weight", "a_activation", "a_output"));
  EXPECT_EQ(report.first->agreeing_count, 3);
  EXPECT_EQ(report.first->last_equal_step, 2);
  EXPECT_TRUE(report.HidesTensors()) << "step 2 logged no tensors";
}

TEST(TensorDivergence, ListsThreeNeighboursAndCountsAll) {
  auto b = Log();
  b.tensors.digest[4] = 99;

  const auto first = FindDivergence(Log(), b).first;

  EXPECT_EQ(first->name, "a_wgrad");
  EXPECT_THAT(first->agreeing,
              ElementsAre("a_activation", "a_output", "a_gradient"));
  EXPECT_EQ(first->agreeing_count, 4);
}

TEST(TensorDivergence, AtTheFirstStepATensorHidesNothing) {
  auto b = Log();
  b.tensors.digest[0] = 99;

  const DivergenceReport report = FindDivergence(Log(), b);

  EXPECT_EQ(report.first->name, "a_weight");
  EXPECT_THAT(report.first->agreeing, IsEmpty());
  EXPECT_FALSE(report.first->last_equal_step.has_value());
  EXPECT_FALSE(report.HidesTensors());
}

TEST(TensorDivergence, EarlierScalarsComeBeforeLaterTensors) {
  auto b = Log();
  b.tensors.digest[5] = 99;                              // step 3
  b.parameters.grad_norm[2] = std::nextafter(3.0, 4.0);  // step 2

  const DivergenceReport report = FindDivergence(Log(), b);

  EXPECT_EQ(report.first->step, 2);
  EXPECT_EQ(report.first->quantity, "grad_norm");
  EXPECT_EQ(report.first->name, "w1");
  EXPECT_EQ(report.first->a, "3");
  EXPECT_EQ(report.first->b, "3.0000000000000004");
  EXPECT_FALSE(report.first->is_tensor);
  EXPECT_TRUE(report.HidesTensors());
}

TEST(TensorDivergence, OrderWithinAStepIsRoutingLossNormsRatios) {
  auto b = Log();
  const auto first = [&b] { return *FindDivergence(Log(), b).first; };

  b.eval.loss_nats[0] = 7;
  EXPECT_EQ(first().quantity, "held-out loss_nats");
  b.parameters.update_ratio[3] = 0.45;
  EXPECT_EQ(first().quantity, "update_ratio");
  EXPECT_EQ(first().name, "w2");
  b.steps.grad_norm[1] = 9;
  EXPECT_EQ(first().quantity, "grad_norm");
  EXPECT_EQ(first().name, "");
  b.parameters.grad_norm[3] = 9;
  EXPECT_EQ(first().name, "w2");
  b.steps.loss_nats[1] = 9;
  EXPECT_EQ(first().quantity, "loss_nats");
  b.moe.routing_digest[3] = -1;
  EXPECT_EQ(first().quantity, "routing_digest");
  EXPECT_EQ(first().name, "MoE layer 1");
  EXPECT_EQ(first().b, "ffffffffffffffff");
  EXPECT_EQ(first().step, 2);
}

TEST(TensorDivergence, NamesInOneLogOnlyAreListedAndPassedOver) {
  auto b = Log();
  b.tensors.names[1] = "z_activation";
  b.parameters.names[1] = "w3";
  b.parameters.grad_norm[1] = 99;

  const DivergenceReport report = FindDivergence(Log(), b);

  EXPECT_FALSE(report.first.has_value());
  EXPECT_THAT(report.tensors_only_a, ElementsAre("a_activation"));
  EXPECT_THAT(report.tensors_only_b, ElementsAre("z_activation"));
  EXPECT_THAT(report.parameters_only_a, ElementsAre("w2"));
  EXPECT_THAT(report.parameters_only_b, ElementsAre("w3"));
}

TEST(TensorDivergence, ATensorWithoutDigestDiffersAStepWithoutDigestsDoesNot) {
  auto b = Log();
  for (size_t i = 0; i < 5; ++i) b.tensors.digest[i] = 0;  // all of step 1
  b.tensors.digest[5 + 2] = 0;

  const DivergenceReport report = FindDivergence(Log(), b);

  EXPECT_THAT(report.tensor_steps, ElementsAre(3));
  EXPECT_EQ(report.first->name, "a_output");
  EXPECT_EQ(report.first->b, "none");
}

TEST(TensorDivergence, LogsWithoutTensorsAreComparedByTheRest) {
  auto b = Log();
  b.tensors = {};
  b.moe = {};
  b.parameters = {};
  b.steps.loss_nats[3] = kNan;

  const DivergenceReport report = FindDivergence(Log(), b);

  EXPECT_EQ(report.first->step, 4);
  EXPECT_EQ(report.first->b, "nan");
  EXPECT_THAT(report.tensor_steps, IsEmpty());
  EXPECT_TRUE(report.HidesTensors());
}

TEST(TensorDivergence, LogsThatBeginAtDifferentStepsAreMatchedByStep) {
  auto b = Log();
  for (auto* column : {&b.steps.loss_nats, &b.steps.grad_norm}) {
    column->erase(column->begin());
  }
  b.steps.step = {2, 3, 4};

  EXPECT_FALSE(FindDivergence(Log(), b).first.has_value());
}

TEST(BoundedDivergence, PassesOverWhatIsWithinTheTolerance) {
  auto b = Log();
  b.tensors.digest[0] = 99;      // digests are for exact comparison
  b.moe.routing_digest[0] = 99;  // so are these
  b.steps.loss_nats[0] *= 1 + 1e-3;
  b.tensors.statistics[runlog::kStat_l2_norm][2] *= 1 + 1e-3;

  EXPECT_FALSE(FindDivergence(Log(), b, {1.1e-3}).first.has_value());
  const auto found = FindDivergence(Log(), b, {0.9e-3}).first;
  EXPECT_EQ(found->name, "a_output");
  EXPECT_EQ(found->quantity, "l2_norm");
}

TEST(BoundedDivergence, HoldsAMeanAgainstTheRootMeanSquare) {
  // l2 10 of 100 elements: the root mean square is 1. The mean of 1e-9 may thus
  // be off by the tolerance itself, a million times its own magnitude.
  auto b = Log();
  b.tensors.statistics[runlog::kStat_mean][1] = 0.9e-3;
  EXPECT_FALSE(FindDivergence(Log(), b, {1e-3}).first.has_value());

  b.tensors.statistics[runlog::kStat_mean][1] = 1.1e-3;
  EXPECT_EQ(FindDivergence(Log(), b, {1e-3}).first->quantity, "mean");
}

TEST(BoundedDivergence, NanAndInfinityAgreeWithTheirLikeOnly) {
  auto a = Log();
  auto b = Log();
  a.tensors.statistics[runlog::kStat_std][0] = kNan;
  b.tensors.statistics[runlog::kStat_std][0] = kNan;
  a.tensors.statistics[runlog::kStat_cur_amax][0] = kInfinity;
  b.tensors.statistics[runlog::kStat_cur_amax][0] = kInfinity;
  EXPECT_FALSE(FindDivergence(a, b, {0.5}).first.has_value());

  b.tensors.statistics[runlog::kStat_cur_amax][0] = 1e300;
  EXPECT_EQ(FindDivergence(a, b, {0.5}).first->quantity, "cur_amax");
  b.tensors.statistics[runlog::kStat_l2_norm][0] = kNan;
  EXPECT_EQ(FindDivergence(a, b, {0.5}).first->quantity, "l2_norm");
}

TEST(BoundedDivergence, WhatWasNotLoggedAtAStepIsPassedOver) {
  const auto a = Log();
  auto b = Log();
  // Step 1: no statistics in B; step 3: of tensor 2 only.
  for (auto& statistic : b.tensors.statistics) {
    for (size_t i = 0; i < statistic.size(); ++i) {
      if (i != 5 + 2) statistic[i] = kNan;
    }
  }

  const DivergenceReport report = FindDivergence(a, b, {1e-3});
  EXPECT_FALSE(report.first.has_value());
  EXPECT_THAT(report.tensor_steps, ElementsAre(3));

  b.tensors.statistics[runlog::kStat_std][5 + 2] = 2;
  EXPECT_EQ(FindDivergence(a, b, {1e-3}).first->name, "a_output");
}

TEST(BoundedDivergence, LooksAtTheQuantisationOfWhatBothQuantise) {
  const auto compare = [](size_t statistic, double of_a, double of_b,
                          double tolerance = 0.125) {
    auto a = Log();
    auto b = Log();
    a.tensors.statistics[statistic] = std::vector<double>(10, of_a);
    b.tensors.statistics[statistic] = std::vector<double>(10, of_b);
    const auto first = FindDivergence(a, b, {tolerance}).first;
    return first ? first->quantity : "";
  };

  EXPECT_EQ(compare(runlog::kStat_mse, 1, 1.125), "");
  EXPECT_EQ(compare(runlog::kStat_mse, 1, 1.25), "mse");
  EXPECT_EQ(compare(runlog::kStat_mse_columnwise, 1, 1.25), "mse_columnwise");
  EXPECT_EQ(compare(runlog::kStat_underflows, 0, 12), "");
  EXPECT_EQ(compare(runlog::kStat_underflows, 0, 13), "underflows%");
  EXPECT_EQ(compare(runlog::kStat_saturated, 1, 20), "saturated%");
  // Bytes differ by 1/255 at least, which no smaller tolerance allows.
  EXPECT_EQ(compare(runlog::kStat_scale_inv_min, 253, 254, 0.003),
            "scale_inv_min");
  EXPECT_EQ(compare(runlog::kStat_scale_inv_max, 255, 254, 0.003),
            "scale_inv_max");
  EXPECT_EQ(compare(runlog::kStat_scale_inv_max, kNan, 119), "");
}

TEST(TensorDivergence, ThePhaseOfATensorIsTheGraphs) {
  const auto phase = [](runlog::RunLog a, runlog::RunLog b) {
    b.tensors.digest[3] = 99;
    return FindDivergence(a, b).first->phase;
  };
  runlog::RunLog update = Log();
  update.tensors.names[3] = "a_update";
  runlog::RunLog damaged = Log();
  damaged.provenance.graph.tensors.phase[3] = "optimizer";
  runlog::RunLog none = Log();
  none.provenance.graph = {};

  EXPECT_EQ(phase(Log(), Log()), Phase::kBackward);
  EXPECT_EQ(phase(update, update), Phase::kOptimizer);
  EXPECT_EQ(phase(damaged, Log()), Phase::kBackward);
  EXPECT_EQ(phase(none, Log()), Phase::kBackward);
  EXPECT_FALSE(phase(none, none).has_value());
}

}  // namespace
}  // namespace isoloss::compare::tensor_divergence_test
