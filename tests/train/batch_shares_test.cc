// Batches of packed documents, cut in shares: no bit of a model's step tells.
// Runs are compared in tests/divergence/micro_batches_test.cc.
#include "isoloss/train/batch_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/model/transformer.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/mesh_setup.h"
#include "model/small_model.h"

namespace isoloss::train::batch_shares_test {
namespace {

using test_support::SmallBatch;
using ::testing::HasSubstr;

constexpr size_t kSequences = 8;
constexpr size_t kUnits = 8;

/// Eight sequences of 64 tokens in one, two or three documents. All labels of
/// the third sequence are ignored.
SmallBatch Packed(const model::ModelConfig& config) {
  SmallBatch batch(config, {64, 40, 24, 64, 1, 2, 61, 33, 31, 64, 64, 60, 4});
  batch.sequence_ends.clear();
  for (size_t s = 1; s <= kSequences; ++s) {
    batch.sequence_ends.push_back(64 * s);
  }
  std::fill_n(batch.labels.begin() + 128, 64, -100);
  return batch;
}

/// All that a step leaves, as digests.
struct Left {
  double loss = 0;
  uint64_t gradients = 0;
  uint64_t token_losses = 0;
  uint64_t counts = 0;
  uint64_t routing = 0;
  uint64_t amax = 0;
  bool operator==(const Left&) const = default;
};

/// Takes two steps in `shares`, so that the second looks back.
Left Step(const std::string& recipe, size_t shares, bool deep) {
  model::ModelConfig config = test_support::SmallConfig();
  if (deep) {  // most experts have no rows in most units
    config.num_experts = 32;
    config.top_k = 1;
  }
  const SmallBatch batch = Packed(config);
  Executor executor(2);
  expert_parallel::Mesh mesh(
      {.topology = {.experts = config.num_experts, .ranks = 2},
       .options = {},
       .dispatch_units = kUnits,
       .micro_batches = shares},
      transport::MakeTransport("loop", {.ranks = 2}, executor), executor);
  model::ParameterSet weights(config);
  model::InitializeParameters(3, weights);
  model::ParameterSet gradients(config);
  model::Transformer transformer(config, precision::RecipeByName(recipe),
                                 executor, mesh);
  GradientFold fold(config, executor, gradients);
  Left left;
  Digest losses;
  Digest counts;
  for (uint64_t step = 1; step <= 2; ++step) {
    transformer.SetStep({.seed = 1, .step = step});
    transformer.LoadWeights(weights);
    fold.Run(batch.view(), mesh,
             [&](const model::TokenBatch& share, model::ParameterSet& set) {
               left.loss = transformer.Forward(share);
               transformer.Backward(share, set);
             });
    transformer.amax_history().EndStep(mesh);
    const auto tokens = transformer.token_losses();
    losses.Update(tokens.data(), tokens.size_bytes());
    const auto experts = transformer.tokens_per_expert();
    counts.Update(experts.data(), experts.rows() * experts.cols() * 8);
    for (const model::RouterFigures& figures :
         transformer.MergeRouterFigures()) {
      left.routing += figures.digest;
      losses.Update(&figures.entropy_nats, sizeof(figures.entropy_nats));
    }
  }
  left.gradients = gradients.Digest();
  left.token_losses = losses.Value();
  left.counts = counts.Value();
  const auto amax = transformer.amax_history().values();
  Digest history;
  for (size_t row = 0; row < amax.rows(); ++row) {
    history.Update(amax.Row(row), amax.cols() * sizeof(float));
  }
  left.amax = history.Value();
  return left;
}

void ExpectEqual(const Left& found, const Left& whole, const std::string& of) {
  EXPECT_EQ(found.loss, whole.loss) << of;
  EXPECT_EQ(found.gradients, whole.gradients) << of;
  EXPECT_EQ(found.token_losses, whole.token_losses) << of;
  EXPECT_EQ(found.counts, whole.counts) << of;
  EXPECT_EQ(found.routing, whole.routing) << of;
  EXPECT_EQ(found.amax, whole.amax) << of;
}

TEST(BatchShares, OfPackedDocumentsChangeNoBit) {
  for (const char* recipe : {"mxfp4_rht_sr", "te_fp8_delayed"}) {
    const Left whole = Step(recipe, 1, /*deep=*/false);
    for (const size_t shares : {2, 4, 8}) {
      ExpectEqual(Step(recipe, shares, /*deep=*/false), whole, recipe);
    }
  }
}

TEST(BatchShares, ChangeNoBitOfAnyRecipe) {
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    ExpectEqual(Step(recipe->name, 4, /*deep=*/true),
                Step(recipe->name, 1, /*deep=*/true), recipe->name);
  }
}

TEST(WholeBatches, AreTakenInOneShareAndSaySo) {
  Experiment experiment = ParseExperiment(R"(name = "shares"
[model]
preset = "dsv3-nano"
[data]
source = "synthetic"
[parallel]
dispatch_units = 4
micro_batches = 2
[train]
sequences_per_batch = 4
[arms.bf16]
recipe = "bf16"
)",
                                          "shares.toml");
  const auto refusal = [](Experiment large) {
    large.train.sequences_per_batch <<= 40;  // no machine has room for them
    try {
      CheckMemory(large, {.workers = 1, .side_by_side = 1});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(experiment),
              HasSubstr("Raise parallel.micro_batches, which is 2, or lower "
                        "the sizes of [model]"));
  const std::string text = experiment.ResolvedToml();
  const double in_shares = EstimatedBytes(experiment);

  const std::string said = TakeWholeBatches(experiment);

  EXPECT_EQ(said,
            "parallel.micro_batches is 2, but each step is computed in one "
            "share, because tensors of whole batches are looked at. No bit "
            "depends on it.");
  EXPECT_EQ(experiment.parallel.shares(), 1u);
  EXPECT_EQ(TakeWholeBatches(experiment), "");
  // The forecast knows it, and what is written of the experiment does not.
  EXPECT_NE(EstimatedBytes(experiment), in_shares);
  EXPECT_EQ(experiment.ResolvedToml(), text);
  EXPECT_THAT(refusal(experiment),
              HasSubstr("It takes whole batches, whatever "
                        "parallel.micro_batches says. Lower the sizes of "
                        "[model]"));
}

}  // namespace
}  // namespace isoloss::train::batch_shares_test
