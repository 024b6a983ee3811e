// Does training learn what there is to learn, and nothing that it can't know?
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/corpus/corpus.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train::learning_test {
namespace {

class LearningTest : public testing::TestWithParam<std::string> {};

TEST_P(LearningTest, ComesDownToTheEntropyOfTheSourceAndNotBelow) {
  const Experiment experiment = ParseExperiment(R"(name = "floor"
[model]
preset = "dsv3-nano"
vocab_size = 64
[data]
source = "synthetic"
tokens = 1_000_000
[train]
steps = 240
[log]
eval_every = 240
eval_sequences = 64
[arms.only]
recipe = ")" + GetParam() + "\"\n",
                                                "experiment.toml", {});
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  Executor executor(1);

  const runlog::RunLog log =
      TrainRun(experiment, experiment.arms[0], 1, corpus, executor);

  // Above: what the experiment is judged by. Below: the information of a token,
  // (j + 1) ln 2 with probability 2^-(j+1), has variance 2 ln^2 2, so the mean
  // over n tokens has standard deviation sqrt(2 / n) ln 2; five of them.
  const double floor = corpus.entropy_floor_nats();
  const double tokens = 64 * 128;
  const double loss = log.eval.loss_nats.back();
  EXPECT_LT(loss, 1.15 * floor);
  EXPECT_GT(loss, floor - 5 * std::sqrt(2 / tokens) * std::log(2.0));
  // Routing stays healthy meanwhile.
  EXPECT_LT(log.steps.expert_load_max_over_mean.back(), 2.0);
  EXPECT_EQ(log.steps.dead_experts.back(), 0);
}

INSTANTIATE_TEST_SUITE_P(Recipes, LearningTest,
                         testing::Values("bf16", "mxfp8_rceil", "fp32"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace isoloss::train::learning_test
