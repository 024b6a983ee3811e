#include "isoloss/compare/first_divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare::first_divergence_test {
namespace {

runlog::RunLog Curves() {
  runlog::RunLog log;
  log.steps.step = {1, 2, 3, 4};
  log.steps.loss_nats = {5.5, 5.0, 4.5, 4.0};
  log.steps.grad_norm = {1.5, 1.25, 1.0, 0.75};
  return log;
}

TEST(FirstDivergence, IsEmptyForEqualBits) {
  EXPECT_FALSE(FirstStepDivergence(Curves(), Curves()).has_value());
}

TEST(FirstDivergence, SeesTheLastBit) {
  auto candidate = Curves();
  candidate.steps.loss_nats[2] = std::nextafter(4.5, 5.0);

  const auto divergence = FirstStepDivergence(Curves(), candidate);

  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->step, 3);
  EXPECT_EQ(divergence->quantity, "loss_nats");
  EXPECT_EQ(divergence->baseline, 4.5);
  EXPECT_EQ(divergence->candidate, std::nextafter(4.5, 5.0));
}

TEST(FirstDivergence, NamesTheGradientNormWhenItDiffersFirst) {
  auto candidate = Curves();
  candidate.steps.grad_norm[0] = 1.75;
  candidate.steps.loss_nats[1] = 5.25;

  const auto divergence = FirstStepDivergence(Curves(), candidate);

  EXPECT_EQ(divergence->step, 1);
  EXPECT_EQ(divergence->quantity, "grad_norm");
}

TEST(FirstDivergence, ComparesBitsOfZerosAndNans) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double zeros[] = {0.0};
  const double minus_zeros[] = {-0.0};
  const double nans[] = {nan};

  EXPECT_FALSE(runlog::EqualBits(zeros, minus_zeros));
  EXPECT_TRUE(runlog::EqualBits(nans, nans));
  EXPECT_FALSE(runlog::EqualBits(nans, zeros));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

runlog::RunLog Log() {
  runlog::RunLog log;
  log.steps.step = {1, 2};
  log.steps.expert_load_max_over_mean = {1.25, 1};
  log.steps.dead_experts = {0, 0};
  log.parameters.step = {1, 2};
  log.parameters.count = 2;
  log.parameters.names = {"w", "v"};
  log.parameters.grad_norm = {1, 2, 3, 4};
  log.parameters.update_ratio = {0.1, 0.2, 0.3, 0.4};
  log.tensors.step = {2};
  log.tensors.count = 2;
  log.tensors.names = {"w_output", "v_output"};
  log.tensors.digest = {11, 12};
  log.tensors.statistics[runlog::kStat_numel] = {4, 4};
  log.tensors.statistics[runlog::kStat_l1_norm] = {8, 8};
  log.tensors.statistics[runlog::kStat_sum] = {1e-6, 8};
  log.tensors.statistics[runlog::kStat_sqnr] = {30, kInfinity};
  log.tensors.statistics[runlog::kStat_mean] = {
      0.5, std::numeric_limits<double>::quiet_NaN()};
  log.moe.step = {1, 2};
  log.moe.layers = 1;
  log.moe.experts = 2;
  log.moe.tokens_per_expert = {3, 5, 4, 4};
  log.moe.router_entropy = {0.25, 0.5};
  log.moe.padding_rows = {8, 8};
  log.eval.step = {2};
  log.eval.per_sequence_loss_nats = {2.5, 3.5};
  log.exchange.step = {1, 2};
  log.exchange.layers = 1;
  log.exchange.rank_rows = {7, 6};
  log.exchange.messages = {12, 12};
  return log;
}

TEST(RecordedDifference, IsNoneBetweenEqualLogs) {
  EXPECT_FALSE(FirstRecordedDifference(Log(), Log()).has_value());
}

struct Change {
  const char* quantity;
  int64_t step;
  std::function<void(runlog::RunLog&)> make;
};

TEST(RecordedDifference, NamesWhatDiffersFirst) {
  const Change changes[] = {
      {"expert_load_max_over_mean", 2,
       [](auto& log) { log.steps.expert_load_max_over_mean[1] = 0.9; }},
      {"dead_experts", 1, [](auto& log) { ++log.steps.dead_experts[0]; }},
      {"padding_rows of MoE layer 0", 2,
       [](auto& log) { log.moe.padding_rows[1] = 7; }},
      {"grad_norm of v", 2, [](auto& log) { log.parameters.grad_norm[3] = 5; }},
      {"update_ratio of w", 2,
       [](auto& log) { log.parameters.update_ratio[2] *= 1 + 1e-8; }},
      {"mean of v_output", 2,
       [](auto& log) { log.tensors.statistics[runlog::kStat_mean][1] = 0; }},
      {"tokens_per_expert of MoE layer 0, expert 1", 1,
       [](auto& log) { ++log.moe.tokens_per_expert[1]; }},
      {"router_entropy of MoE layer 0", 2,
       [](auto& log) { log.moe.router_entropy[1] = 0.75; }},
      {"sqnr_db of w_output", 2,
       [](auto& log) {
         log.tensors.statistics[runlog::kStat_sqnr][0] = kInfinity;
       }},
      {"sqnr_db of v_output", 2,
       [](auto& log) {
         log.tensors.statistics[runlog::kStat_sqnr][1] = -kInfinity;
       }},
      {"sum of w_output", 2,
       [](auto& log) { log.tensors.statistics[runlog::kStat_sum][0] += 1e-7; }},
      {"loss_nats of held-out sequence 1", 2,
       [](auto& log) { log.eval.per_sequence_loss_nats[1] = 3.25; }},
      {"rank_rows of MoE layer 0", 1,
       [](auto& log) { --log.exchange.rank_rows[0]; }},
      {"messages", 2, [](auto& log) { log.exchange.messages[1] = 24; }},
  };
  for (const Change& change : changes) {
    runlog::RunLog changed = Log();
    change.make(changed);

    const auto difference = FirstRecordedDifference(Log(), changed);

    ASSERT_TRUE(difference.has_value()) << change.quantity;
    EXPECT_EQ(difference->quantity, change.quantity);
    EXPECT_EQ(difference->step, change.step);
    EXPECT_NE(difference->baseline, difference->candidate);
  }
}

TEST(RecordedDifference, AllowsForOtherLibrariesAndOrders) {
  runlog::RunLog other = Log();
  other.moe.router_entropy[0] = std::nextafter(0.25, 1);
  // A thousandth of the sum, but 1e-10 of what is summed.
  other.tensors.statistics[runlog::kStat_sum][0] += 1e-9;

  EXPECT_FALSE(FirstRecordedDifference(Log(), other).has_value());
}

TEST(RecordedDifference, LeavesDigestsToOthers) {
  runlog::RunLog other = Log();
  ++other.tensors.digest[1];

  EXPECT_FALSE(FirstRecordedDifference(Log(), other).has_value());
}

TEST(TensorDigests, NameTheFirstTensorOfTheFirstStepThatDiffers) {
  runlog::RunLog other = Log();
  ++other.tensors.digest[1];
  runlog::RunLog without = Log();
  without.tensors.digest.clear();

  const TensorDigests equal = CompareTensorDigests(Log(), Log());
  const TensorDigests found = CompareTensorDigests(Log(), other);

  EXPECT_GT(equal.steps, 0);
  EXPECT_EQ(equal.other_step, std::nullopt);
  EXPECT_EQ(found.other_step, 2);
  EXPECT_EQ(found.other_tensor, "v_output");
  EXPECT_EQ(CompareTensorDigests(Log(), without).steps, 0);
}

TEST(RecordedDifference, ComparesOnlyWhatBothRecorded) {
  runlog::RunLog less = Log();
  less.tensors.digest.clear();
  less.tensors.statistics[runlog::kStat_mean].clear();
  less.parameters.names = {"u", "v"};
  less.parameters.grad_norm[0] = 9;

  EXPECT_FALSE(FirstRecordedDifference(Log(), less).has_value());
}

TEST(RecordedDifference, OfATensorThatOneLogLacksThoughBothWereAskedForIt) {
  constexpr const char* kAsked =
      "[log]\nstatistics_first = 2\nstatistics_every = 0\n"
      "statistics_tensors = [\"*\"]\n";
  runlog::RunLog all = Log();
  runlog::RunLog less = Log();
  for (auto& column : less.tensors.statistics) {
    if (!column.empty()) column[0] = std::nan("");
  }
  EXPECT_FALSE(FirstRecordedDifference(all, less).has_value());

  all.provenance.experiment_text = less.provenance.experiment_text = kAsked;
  const auto lost = FirstRecordedDifference(all, less);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->quantity, "numel of w_output");
  EXPECT_EQ(lost->step, 2);
  EXPECT_TRUE(FirstRecordedDifference(less, all).has_value());
  EXPECT_FALSE(FirstRecordedDifference(less, less).has_value());

  runlog::RunLog renamed = all;
  renamed.tensors.names[1] = "u_output";
  EXPECT_EQ(FirstRecordedDifference(all, renamed)->quantity,
            "the presence of v_output");

  less.provenance.experiment_text +=
      "[other]\n[log]\nstatistics_tensors = [\"v*\"]\n";
  EXPECT_FALSE(FirstRecordedDifference(all, less).has_value());
}

TEST(RecordedDifference, OfExtentsIsNoneToPassOver) {
  runlog::RunLog other = Log();
  other.eval.sequences = 2;
  runlog::RunLog more = Log();
  more.eval.sequences = 3;
  more.eval.per_sequence_loss_nats.push_back(4.5);

  const auto difference = FirstRecordedDifference(other, more);

  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->quantity, "the number of sequences of loss_nats");
  EXPECT_EQ(difference->baseline, 2);
  EXPECT_EQ(difference->candidate, 3);
}

}  // namespace
}  // namespace isoloss::compare::first_divergence_test
