#include "isoloss/init/new_experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "campaign/tiny_experiment.h"
#include "isoloss/base/error.h"
#include "isoloss/config/document.h"
#include "isoloss/init/experiment_size.h"
#include "isoloss/init/experiment_text.h"
#include "isoloss/init/pilot.h"
#include "isoloss/train/arm_recipes.h"
#include "support/temporary_folder.h"

namespace isoloss::init::new_experiment_test {
namespace {

/// Two seconds for each step of a seed, and 100 besides.
double Seconds(const ExperimentSize& size) {
  return 100 + 2.0 * static_cast<double>(size.steps) *
                   static_cast<double>(size.seeds);
}

/// With pairs that spread by `percent` after 80 steps.
OfSize PowerAt(double percent) {
  return [spread = Spread{.percent = percent, .steps = 80}](
             const ExperimentSize& size) {
    return PowerOf(spread.After(size.steps), size.seeds, gate::Policy());
  };
}

TEST(ExperimentSize, IsTheLongestOfThoseOfEnoughPower) {
  const auto chosen = [](double spread, double budget) {
    const ExperimentSize size =
        MostTellingSize(Seconds, PowerAt(spread), budget, 320);
    return std::pair(size.steps, size.seeds);
  };
  EXPECT_EQ(chosen(0.1, 899), std::pair(int64_t{0}, size_t{0}));
  EXPECT_EQ(chosen(0.1, 900), std::pair(int64_t{100}, size_t{4}));
  // Where chance does nothing, four seeds suffice, and steps fill the budget.
  EXPECT_EQ(chosen(1e-6, 100 + 2 * 4 * 200),
            std::pair(int64_t{200}, size_t{4}));
  EXPECT_EQ(chosen(1e-6, 1e9), std::pair(int64_t{320}, size_t{24}));
  // 2600 seconds are 1250 steps of a seed, of which chance makes 12 seeds.
  EXPECT_EQ(chosen(0.2, 2600), std::pair(int64_t{100}, size_t{12}));
}

TEST(ExperimentSize, OfALargerBudgetHasNoLessPower) {
  for (const double spread : {0.05, 0.1, 0.2, 0.3, 0.6}) {
    const OfSize power = PowerAt(spread);
    double least = 0;
    for (double budget = 900; budget < 20000; budget *= 1.07) {
      const double here = power(MostTellingSize(Seconds, power, budget, 320));
      // Above kEnoughPower more steps are worth more.
      EXPECT_GE(here, std::min(least, kEnoughPower)) << spread << " " << budget;
      least = std::max(least, here);
    }
  }
}

TEST(ExperimentSize, SaysWhatTheWantedPowerTakes) {
  const double seconds = SecondsForWantedPower(Seconds, PowerAt(0.2), 320);
  const OfSize power = PowerAt(0.2);
  const auto most = [&](double budget) {
    return power(MostTellingSize(Seconds, power, budget, 320));
  };
  EXPECT_GE(most(seconds), kWantedPower);
  EXPECT_LT(most(seconds - 1), kWantedPower);
  EXPECT_TRUE(std::isinf(SecondsForWantedPower(Seconds, PowerAt(9), 320)));
}

TEST(Pilot, FindsTheSpreadOfPairsAgainAndAgain) {
  const test_support::TemporaryFolder folder;
  const train::Experiment experiment = campaign::TinyExperiment(
      folder.path(),
      {"arms.null.recipe=bf16", "arms.null.perturb=one_ulp",
       "arms.control.recipe=mxfp4_floor", "gate.control=control"});

  const train::Experiment pilot = PilotOf(experiment, 10);
  const auto spread = TrainPilot(pilot);

  EXPECT_EQ(train::ArmNames(pilot),
            (std::vector<std::string>{"bf16", "mxfp8", "null"}));
  EXPECT_EQ(pilot.train.seeds, (std::vector<uint64_t>{1001, 1002, 1003, 1004}));
  ASSERT_TRUE(spread);
  EXPECT_TRUE(spread->measured);
  EXPECT_EQ(spread->steps, 10);
  EXPECT_GT(spread->percent, 0);
  EXPECT_EQ(TrainPilot(pilot)->percent, spread->percent);
  // Four times as many steps: twice the spread; fewer: no less.
  EXPECT_DOUBLE_EQ(spread->After(40), 2 * spread->percent);
  EXPECT_DOUBLE_EQ(spread->After(5), spread->percent);
}

TEST(Pilot, PowerOfAnExperimentIsThatOfItsSpread) {
  const test_support::TemporaryFolder folder;
  const auto power = [&](const std::vector<std::string>& overrides) {
    return ExpectedPower(campaign::TinyExperiment(folder.path(), overrides),
                         gate::Policy());
  };
  EXPECT_FALSE(power({}));
  EXPECT_FALSE(power({"gate.spread_percent=0.1", "train.seeds=[1]"}));
  EXPECT_EQ(power({"gate.spread_percent=0.1", "train.seeds=[1,2,3,4]"}),
            PowerOf(0.1, 4, gate::Policy()));
  EXPECT_EQ(PowerText(0.876), "0.88");
  EXPECT_EQ(PowerText(0.97), "above 0.95");
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
  text.margin_percent = 0.5;
  text.spread_percent = 0.12;
  text.spread_from = SpreadText({.steps = 1000, .measured = true});
  return text;
}

TEST(ExperimentText, ReadsBackToWhatItWasMadeOf) {
  const train::Experiment read =
      train::ParseExperiment(Text().Toml(), "trial.toml");

  EXPECT_EQ(read.name, "trial");
  EXPECT_EQ(read.train.steps, 120);
  EXPECT_EQ(read.train.warmup_steps, 17);
  EXPECT_EQ(read.train.seeds, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(read.log.eval_every, 24);
  EXPECT_EQ(read.gate.margin_percent, 0.5);
  EXPECT_EQ(read.gate.spread_percent, 0.12);
  EXPECT_EQ(read.log.eval_sequences, 12U);
  EXPECT_THAT(read.gate.control, testing::ElementsAre("control"));
  ASSERT_EQ(read.arms.size(), 4U);
  EXPECT_EQ(read.arms[0].recipe, "bf16");
  EXPECT_EQ(read.arms[1].recipe, "mxfp8_rceil");
  EXPECT_EQ(read.arms[2].perturb, train::Perturb::kOneUlp);
  EXPECT_EQ(read.arms[3].recipe, "mxfp4_floor");
}

TEST(ExperimentSize, MayHaveItsStepsGiven) {
  const OfSize power = PowerAt(0.1);
  const ExperimentSize size = MostTellingSize(Seconds, power, 1e9, 320, 200);
  EXPECT_EQ(size.steps, 200);
  EXPECT_EQ(size.seeds, 24U);
  // A pilot too short to foretell so many steps does not change them.
  EXPECT_EQ(MostTellingSize(Seconds, power, 1e9, 100, 200).steps, 200);
}

TEST(ExperimentText, HoldsTheSweepOfItsLearningRate) {
  ExperimentText text = Text();
  text.lr = 0.012;
  text.tuning =
      "[tuning]\nrates = [0.006, 0.012, 0.024]\nheld_out = [2.0, 1.9, inf]\n"
      "seeds = [1001, 1002]\nconfiguration = \"0a\"\n";

  const train::Experiment read =
      train::ParseExperiment(text.Toml(), "trial.toml");

  EXPECT_EQ(read.train.lr, 0.012);
  EXPECT_EQ(read.tuning.rates, (std::vector<double>{0.006, 0.012, 0.024}));
  EXPECT_EQ(read.tuning.configuration, "0a");
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
  EXPECT_EQ(keys, 13);
}

}  // namespace
}  // namespace isoloss::init::new_experiment_test
