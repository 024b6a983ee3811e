// A run on a mesh against the run on one rank: what passes, what is refused and
// what is named.
#include "isoloss/train/parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::train::parity_test {
namespace {

using testing::HasSubstr;

constexpr std::string_view kText = R"(name = "parity"
[model]
vocab_size = 23
dim = 40
qk_nope_head_dim = 10
moe_hidden_dim = 36
num_experts = 6
[data]
source = "synthetic"
sequence_length = 21
noise_levels = 4
tokens = 4000
[train]
steps = 9
sequences_per_batch = 6
seeds = [1]
warmup_steps = 2
[parallel]
ranks = 3
[log]
eval_sequences = 2
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)";

ParityReport Report(std::vector<std::string> overrides, size_t arm = 0,
                    const RunHooks& hooks = {}, int64_t steps = 2) {
  const Experiment experiment =
      ParseExperiment(kText, "parity.toml",
                      {.variables = {}, .overrides = std::move(overrides)});
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  Executor executor(2);
  return CompareWithOneRank(experiment, experiment.arms[arm], /*seed=*/1,
                            corpus, executor, steps, hooks);
}

TEST(Parity, PassesForWhateverDoesNotDependOnTheRanks) {
  const std::vector<std::vector<std::string>> meshes = {
      {},
      {"parallel.transport=threads"},
      {"parallel.transport=shuffled"},
      {"parallel.ranks=6", "parallel.expert_data_parallel=3",
       "parallel.dispatch_units=3"},
      {"parallel.expert_padding=32", "parallel.payload=mx1x32"},
      {"parallel.weight_site=before_fc2",
       "parallel.gradient_payload=e4m3_1x128_pow2"},
      {"parallel.exchange=titan_bf16"},
      {"routing.mode=forced_balance"}};
  for (const auto& mesh : meshes) {
    for (const size_t arm : {0u, 1u}) {
      const ParityReport report = Report(mesh, arm);

      EXPECT_TRUE(report.passed())
          << testing::PrintToString(mesh) << ": " << report.first->Describe();
      EXPECT_EQ(report.steps, 2);
      EXPECT_GT(report.gradients, 20u);
    }
  }
}

TEST(Parity, ComparesNoMoreStepsThanTheRunHas) {
  const ParityReport report = Report({}, 0, {}, 1000);

  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.steps, 9);
}

TEST(Parity, NamesTheFirstDifferenceInTheOrderOfComputation) {
  RunHooks hooks;
  hooks.after_backward = [](int64_t step, model::ParameterSet& gradients) {
    if (step != 2) return;
    // The head's is computed first, the embedding's last.
    for (const char* name :
         {"tok_embeddings.weight", "layers.1.ffn_norm.weight",
          "layers.1.attention.wo.weight"}) {
      Matrix<float>& values = gradients.ByName(name).values;
      for (size_t i = 0; i < values.size(); ++i) values.data()[i] *= 8;
    }
  };

  const ParityReport report = Report({}, 0, hooks);

  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.first->Describe(),
            "gradient of layers.1.ffn_norm.weight at step 2: norm 8.0000 x "
            "that of one rank");
  EXPECT_THAT(
      report.Verdict(),
      testing::MatchesRegex(
          "FAIL  parity          gradient of layers.1.ffn_norm.weight "
          "at step 2: norm 8.0000 x that of one rank\n *.arm bf16, seed "
          "1: 3 ranks in 1 expert-parallel group, transport loop over "
          "1 process;\n *[0-9.e-]+ in process 0, [0-9.e-]+ with one "
          "rank; what is computed before is equal.\n *next: "
          "docs/distributed.md says which fault shows where\n"));
}

TEST(Parity, NamesADifferenceThatTheNormHides) {
  RunHooks hooks;
  hooks.after_backward = [](int64_t, model::ParameterSet& gradients) {
    Matrix<float>& values = gradients.ByName("lm_head.weight").values;
    std::swap(values(0, 0), values(1, 0));
  };

  const ParityReport report = Report({}, 0, hooks);

  EXPECT_THAT(
      report.first->Describe(),
      testing::StartsWith("gradient of lm_head.weight at step 1: norm "));
}

TEST(Parity, StartsBothRunsFromTheSameEditedWeights) {
  RunHooks hooks;
  hooks.edit_initial_weights = [](model::ParameterSet& weights) {
    weights.ByName("layers.1.moe.router.gate.weight").values.SetZero();
  };

  EXPECT_TRUE(Report({}, 0, hooks).passed());
}

TEST(Parity, GivesNoVerdictIfItIsStopped) {
  const std::atomic<bool> stop{true};

  const ParityReport report = Report({}, 0, {{.stop = &stop}, {}});

  EXPECT_TRUE(report.interrupted);
  EXPECT_FALSE(report.passed());
}

TEST(Parity, RefusesWhatCannotBeCompared) {
  EXPECT_THAT(
      [] {
        Report({"parallel.exchange=node", "parallel.ranks=2"});
      },
      testing::ThrowsMessage<Error>(
          HasSubstr("its bits depend on the number of ranks")));
  EXPECT_THAT([] { Report({"parallel.ranks=1"}); },
              testing::ThrowsMessage<Error>(
                  HasSubstr("parallel.ranks is 1, so there is nothing")));
}

}  // namespace
}  // namespace isoloss::train::parity_test
