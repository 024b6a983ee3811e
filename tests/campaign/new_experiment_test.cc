#include "isoloss/campaign/new_experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/campaign/experiment_size.h"
#include "isoloss/campaign/experiment_text.h"
#include "isoloss/config/document.h"
#include "isoloss/train/arm_recipes.h"

namespace isoloss::campaign {
namespace {

/// Two seconds for each step of a seed, and 100 besides.
double Seconds(const ExperimentSize& size) {
  return 100 + 2.0 * static_cast<double>(size.steps) *
                   static_cast<double>(size.seeds);
}

TEST(ExperimentSize, FillsTheBudgetSeedsFirstThenStepsThenSeeds) {
  const auto chosen = [](double budget, int64_t most_steps) {
    const ExperimentSize size = LargestSize(Seconds, budget, most_steps);
    return std::pair(size.steps, size.seeds);
  };
  EXPECT_EQ(chosen(899, 300), std::pair(int64_t{0}, size_t{0}));
  EXPECT_EQ(chosen(900, 300), std::pair(int64_t{100}, size_t{4}));
  EXPECT_EQ(chosen(1500, 300), std::pair(int64_t{110}, size_t{6}));
  EXPECT_EQ(chosen(1700, 300), std::pair(int64_t{100}, size_t{8}));
  EXPECT_EQ(chosen(1700 + 16 * 59, 300), std::pair(int64_t{150}, size_t{8}));
  // 300 steps of 8 seeds take 4900, each two seeds more 1200.
  EXPECT_EQ(chosen(4900 + 2400, 307), std::pair(int64_t{300}, size_t{12}));
  EXPECT_EQ(chosen(1e9, 300), std::pair(int64_t{300}, size_t{24}));
  EXPECT_EQ(chosen(1e9, 3), std::pair(int64_t{100}, size_t{24}));
}

TEST(ExperimentSize, ReadsATextAtMostFourTimes) {
  // 100 steps of 1024 tokens are 102400; a quarter of them is enough.
  EXPECT_EQ(FewestTrainingTokens(1024), 25600U);
  EXPECT_EQ(MostSteps(25600, 1024), 100);
  EXPECT_EQ(MostSteps(25599, 1024), 99);
}

ExperimentText Text() {
  ExperimentText text;
  text.name = "trial";
  text.preset = "dsv3-nano";
  text.paths = {"text"};
  text.baseline = "bf16";
  text.candidate = "mxfp8_rceil";
  text.control = "mxfp4_floor";
  text.steps = 120;
  text.seeds = 4;
  text.eval_sequences = 12;
  return text;
}

TEST(ExperimentText, ReadsBackToWhatItWasMadeOf) {
  const train::Experiment read =
      train::ParseExperiment(Text().Toml(), "trial.toml");

  EXPECT_EQ(read.name, "trial");
  EXPECT_EQ(read.train.steps, 120);
  EXPECT_EQ(read.train.warmup_steps, 17);
  EXPECT_EQ(read.train.seeds, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(read.log.eval_every, 120);
  EXPECT_EQ(read.log.eval_sequences, 12U);
  EXPECT_EQ(read.gate.control, "control");
  ASSERT_EQ(read.arms.size(), 4U);
  EXPECT_EQ(read.arms[0].recipe, "bf16");
  EXPECT_EQ(read.arms[1].recipe, "mxfp8_rceil");
  EXPECT_EQ(read.arms[2].perturb, train::Perturb::kOneUlp);
  EXPECT_EQ(read.arms[3].recipe, "mxfp4_floor");
}

TEST(ExperimentText, OfTokensNamesTheirTypeAndVocabulary) {
  ExperimentText text = Text();
  text.token_type = "uint32";
  text.vocab_size = 50257;

  const train::Experiment read =
      train::ParseExperiment(text.Toml(), "trial.toml");

  EXPECT_EQ(read.data.source, "tokens");
  EXPECT_EQ(read.data.token_bits, 32);
  EXPECT_EQ(read.model.vocab_size, 50257U);
}

TEST(ExperimentText, KeepsHostilePathsInTheirPlace) {
  for (const std::string path :
       {"a\"]\n[arms.evil]\nrecipe = \"fp32\"", "a\\\"b", "#", "'''", "\"\"\"",
        "\x01\x7f", "tab\there", "\u202e", "a\\u0022b", "${"}) {
    ExperimentText text = Text();
    text.paths = {path};
    if (path == "${") {
      EXPECT_THROW(train::ParseExperiment(text.Toml(), "e.toml"), Error);
      continue;
    }
    const train::Experiment read =
        train::ParseExperiment(text.Toml(), "e.toml");

    EXPECT_EQ(read.data.paths, std::vector<std::string>{path});
    EXPECT_EQ(read.arms.size(), 4U);
  }
}

TEST(ExperimentText, ExplainsEveryKey) {
  std::istringstream lines(Text().Toml());
  bool explained = false;
  int keys = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    const bool is_key =
        line.find(" = ") != std::string::npos && !line.starts_with('#');
    // What an arm's recipe is for stands above its heading.
    const bool of_arm =
        line.starts_with("recipe") || line.starts_with("perturb");
    if (is_key && !of_arm) {
      ++keys;
      EXPECT_TRUE(explained) << line;
    }
    if (line.starts_with("[arms.")) {
      EXPECT_TRUE(explained) << line;
    }
    explained = line.starts_with('#');
  }
  EXPECT_EQ(keys, 11);
}

}  // namespace
}  // namespace isoloss::campaign
