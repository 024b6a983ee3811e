// What one LoggedLearner takes over from another, and from its hooks.
#include "isoloss/train/logged_learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "isoloss/corpus/corpus.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/train/mesh_setup.h"

namespace isoloss::train::logged_learner_test {
namespace {

constexpr std::string_view kText = R"(name = "trial"
[model]
vocab_size = 23
num_experts = 4
[data]
source = "synthetic"
sequence_length = 16
noise_levels = 4
tokens = 4000
[train]
steps = 4
sequences_per_batch = 2
seeds = [1]
warmup_steps = 2
[log]
routing = true
eval_sequences = 4
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
[arms.delayed]
recipe = "te_fp8_delayed"
)";

class LoggedLearnerTest : public ::testing::Test {
 protected:
  LoggedLearner Make(size_t arm, uint64_t seed, const RunHooks& hooks) {
    return LoggedLearner(experiment_, experiment_.arms[arm], seed, corpus_,
                         executor_, hooks, {}, mesh_);
  }

  const Experiment experiment_ = ParseExperiment(kText, "experiment.toml");
  const corpus::Corpus corpus_ = corpus::LoadCorpus(
      experiment_.corpus_source, experiment_.data.held_out_share);
  Executor executor_{1};
  expert_parallel::Mesh mesh_{experiment_.model.num_experts, executor_};
  const RunHooks none_;
};

TEST_F(LoggedLearnerTest, GoesOnFromAnotherWithItsBits) {
  LoggedLearner first = Make(0, 1, none_);
  LoggedLearner second = Make(0, 1, none_);
  runlog::RunLog rows;
  for (int64_t step = 1; step <= 2; ++step) first.Step(step, rows);

  second.GoOnFrom(first.State());

  EXPECT_EQ(second.WeightsDigest(), first.WeightsDigest());
  for (int64_t step = 3; step <= 4; ++step) {
    runlog::RunLog of_first;
    runlog::RunLog of_second;
    first.Step(step, of_first);
    second.Step(step, of_second);
    EXPECT_EQ(of_second.steps.loss_nats, of_first.steps.loss_nats);
    EXPECT_EQ(of_second.moe.expert_bias, of_first.moe.expert_bias);
    EXPECT_EQ(second.WeightsDigest(), first.WeightsDigest());
  }
}

TEST_F(LoggedLearnerTest, LeavesTheOtherAlone) {
  LoggedLearner first = Make(0, 1, none_);
  LoggedLearner second = Make(1, 1, none_);
  runlog::RunLog rows;
  first.Step(1, rows);
  const uint64_t before = first.WeightsDigest();
  second.GoOnFrom(first.State());

  second.Step(2, rows);

  EXPECT_EQ(first.WeightsDigest(), before);
  EXPECT_NE(second.WeightsDigest(), before);
}

/// The first learner has no history of delayed scaling.
TEST_F(LoggedLearnerTest, KeepsItsOwnHistory) {
  LoggedLearner first = Make(0, 1, none_);
  LoggedLearner second = Make(2, 1, none_);
  runlog::RunLog rows;
  for (int64_t step = 1; step <= 2; ++step) {
    second.GoOnFrom(first.State());
    EXPECT_TRUE(second.Step(step, rows));
    first.Step(step, rows);
  }

  const MatrixView<const float> history = second.State().amax_history;
  EXPECT_GT(history(0, 0), 0);
  EXPECT_GT(history(1, 0), 0);
  EXPECT_EQ(history(2, 0), 0);
}

/// Every token goes to the last experts.
class LastExperts : public model::RoutingSource {
 public:
  void Choose(size_t /*layer*/, size_t /*token*/,
              std::span<int32_t> expert_ids) const override {
    for (size_t k = 0; k < expert_ids.size(); ++k) {
      expert_ids[k] = static_cast<int32_t>(3 - k);
    }
  }
};

TEST_F(LoggedLearnerTest, HooksChooseTheExperts) {
  const LastExperts routing;
  RunHooks hooks;
  hooks.routing = &routing;
  LoggedLearner learner = Make(0, 1, hooks);
  runlog::RunLog rows;

  learner.Step(1, rows);

  ASSERT_EQ(rows.moe.expert_ids.size(), 2u * 16 * 2);
  for (size_t i = 0; i < rows.moe.expert_ids.size(); i += 2) {
    EXPECT_EQ(rows.moe.expert_ids[i], 3);
    EXPECT_EQ(rows.moe.expert_ids[i + 1], 2);
  }
}

TEST_F(LoggedLearnerTest, AGradientThatIsNotFiniteEndsTheRunWithItsWeights) {
  RunHooks hooks;
  hooks.before_update = [](int64_t step, model::ParameterSet& gradients) {
    if (step == 2) {
      gradients.parameters().front().values.data()[0] =
          std::numeric_limits<float>::infinity();
    }
  };
  LoggedLearner learner = Make(0, 1, hooks);
  runlog::RunLog rows;
  ASSERT_TRUE(learner.Step(1, rows));
  const uint64_t before = learner.WeightsDigest();

  EXPECT_FALSE(learner.Step(2, rows)) << "does it go on?";

  EXPECT_TRUE(std::isfinite(rows.steps.loss_nats.back()));
  EXPECT_FALSE(std::isfinite(rows.steps.grad_norm.back()));
  EXPECT_EQ(learner.WeightsDigest(), before);
}

}  // namespace
}  // namespace isoloss::train::logged_learner_test
