#include "isoloss/treatments/gradient_error.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/train/experiment.h"

namespace isoloss::treatments::gradient_error_test {
namespace {

constexpr const char* kExperiment = R"(name = "gradients"
[model]
vocab_size = 11
dim = 32
n_layers = 2
n_dense_layers = 1
n_heads = 2
kv_lora_rank = 16
qk_nope_head_dim = 8
qk_rope_head_dim = 4
v_head_dim = 8
dense_hidden_dim = 64
moe_hidden_dim = 32
num_experts = 4
top_k = 2
[data]
source = "synthetic"
sequence_length = 16
noise_levels = 4
tokens = 4000
[train]
steps = 6
sequences_per_batch = 2
warmup_steps = 2
[log]
eval_sequences = 4
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
[arms.mxfp4]
recipe = "mxfp4_floor"
)";

TEST(GradientErrors, OfTheReferenceAreZeroAndGrowWithCoarserFormats) {
  const train::Experiment experiment =
      train::ParseExperiment(kExperiment, "gradients.toml");
  Executor executor(1);
  const std::vector<int64_t> steps = {1, 6};
  size_t told = 0;
  GradientErrorHooks hooks;
  hooks.on_progress = [&](size_t done, size_t of) {
    EXPECT_EQ(done, ++told);
    EXPECT_EQ(of, 6U + 2 * 3);
  };

  const auto errors =
      GradientErrors(experiment, experiment.arms.front(), experiment.arms, 1,
                     train::LoadCorpusOf(experiment), steps, executor, hooks);

  EXPECT_EQ(told, 12U);
  ASSERT_EQ(errors.size(), 3U);
  for (size_t step = 0; step < steps.size(); ++step) {
    // Weights, batch and routing are the same to the bit.
    EXPECT_EQ(errors[0][step], 0);
    EXPECT_GT(errors[1][step], 1e-3);
    EXPECT_LT(errors[1][step], 0.3);
    // E2M1 has 2 bits of precision less than E4M3.
    EXPECT_GT(errors[2][step], 2 * errors[1][step]);
  }
}

TEST(GradientErrors, AreOfWholeBatches) {
  std::vector<std::vector<double>> errors[2];
  for (const bool shares : {false, true}) {
    std::vector<std::string> overrides = {"parallel.dispatch_units=2",
                                          "data.sequence_length=32"};
    if (shares) overrides.push_back("parallel.micro_batches=2");
    const train::Experiment experiment =
        train::ParseExperiment(kExperiment, "gradients.toml",
                               {.variables = {}, .overrides = overrides});
    Executor executor(1);
    const std::vector<int64_t> steps = {2};

    errors[shares ? 1 : 0] =
        GradientErrors(experiment, experiment.arms[0], experiment.arms, 1,
                       train::LoadCorpusOf(experiment), steps, executor);
  }
  EXPECT_EQ(errors[1], errors[0]);
}

}  // namespace
}  // namespace isoloss::treatments::gradient_error_test
