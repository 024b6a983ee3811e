#include "isoloss/studies/graded_controls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "../campaign/tiny_experiment.h"
#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/studies/experiment_file.h"
#include "support/temporary_folder.h"

namespace isoloss::studies::graded_controls_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

const Names kAll = {"layers.0.attention.wq",    "layers.0.attention.wo",
                    "layers.0.feed_forward.w1", "layers.1.attention.wq",
                    "layers.1.attention.wo",    "layers.1.moe.router.gate",
                    "layers.2.attention.wq",    "layers.2.attention.wo",
                    "layers.2.feed_forward.w1"};

TEST(NestedParts, HalveTheKindsAndThenTheLayers) {
  Names chosen = kAll;
  std::erase(chosen, "layers.1.moe.router.gate");

  // wq, wo, w1; every second: wq, w1; then wq; then its layers 0 and 2; then
  // layer 0.
  EXPECT_THAT(
      NestedParts(chosen, kAll),
      ElementsAre(Names{"layers.0.attention.wq"},
                  Names{"layers.0.attention.wq", "layers.2.attention.wq"},
                  Names{"attention.wq"},
                  Names{"attention.wq", "feed_forward.w1"},
                  Names{"attention.wq", "attention.wo", "feed_forward.w1"}));
}

// A kind stands for its sites in all layers, which a control need not have.
TEST(NestedParts, NameSitesOfAKindThatIsNotWhole) {
  EXPECT_THAT(NestedParts(Names{kAll[1], kAll[2], kAll[8]}, kAll),
              ElementsAre(Names{"layers.0.attention.wo"},
                          Names{"layers.0.attention.wo", "feed_forward.w1"}));
}

TEST(NestedParts, AreAtMostSix) {
  Names layers;
  for (int i = 0; i < 100; ++i) {
    layers.push_back("layers." + std::to_string(i) + ".attention.wq");
  }
  const auto parts = NestedParts(layers, layers);

  // 100 sites, which one pattern names, and 50, 25, 13, 7, 4.
  std::vector<size_t> sizes;
  for (const Names& part : parts) sizes.push_back(part.size());
  EXPECT_THAT(sizes, ElementsAre(4, 7, 13, 25, 50, 1));
}

TEST(NearestPart, IsNearestByItsFactor) {
  // 0.4 is 1.25 times off 0.5, and 0.7 is 1.4 times.
  EXPECT_EQ(NearestPart(std::vector{0.1, 0.4, 0.7, 2.0}, 0.5), 1U);
  // Both are off by 1.25; the first is the milder one.
  EXPECT_EQ(NearestPart(std::vector{0.8, 1.25}, 1.0), 0U);
  EXPECT_EQ(NearestPart(std::vector{1.0, 1.0}, 1.0), 0U);
}

TEST(NearestPart, IsNoneThatIsFurtherOffThanHalfAsMuch) {
  // 1.25 is 1.25 / 0.75 = 1.67 times 0.75.
  EXPECT_EQ(NearestPart(std::vector{-1.0, 0.0, 0.75, kInfinite}, 1.25),
            std::nullopt);
  EXPECT_EQ(NearestPart(std::vector{1.5}, 1.0), 0U);
  EXPECT_EQ(NearestPart(std::vector{1.51}, 1.0), std::nullopt);
}

class GradedControlTest : public ::testing::Test {
 protected:
  train::Experiment Experiment(std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.begin(),
                     {"arms.bad.recipe=mxfp4_floor", "gate.control=bad",
                      "gate.margin_percent=0.2"});
    return campaign::TinyExperiment(folder_.path(), overrides);
  }

  /// Has a part for each harm, in percent, of one seed.
  GradedControl Graded(const std::vector<double>& harms) {
    GradedControl graded{.experiment = Experiment(),
                         .control = "bad",
                         .seeds = {7},
                         .parts = {},
                         .harms = {},
                         .margin_percent = 0.2};
    for (const double harm : harms) {
      const std::string name = "part" + std::to_string(graded.parts.size());
      graded.parts.push_back(
          {.name = name, .recipe = "mxfp4_floor", .include = Names{name}});
      graded.harms.push_back({harm});
    }
    return graded;
  }

  std::string ErrorOf(const std::vector<std::string>& overrides) {
    try {
      PlanControls(Experiment(overrides), 2, folder_.path() / "runs");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(GradedControlTest, ChoosesHalfAMarginAndOneAndAQuarter) {
  // The fit pools 0.15 and 0.05 to 0.1, half of the margin of 0.2; 0.25 is 1.25
  // times it.
  const GradedControl graded = Graded({0.01, 0.15, 0.05, 0.25, 0.9});

  EXPECT_THAT(graded.Fit(), ElementsAre(0.01, 0.1, 0.1, 0.25, 0.9));
  EXPECT_EQ(graded.PartOf(kGrades[0]), 1U);
  EXPECT_EQ(graded.PartOf(kGrades[1]), 3U);
  EXPECT_THAT(graded.Controls(), ElementsAre("bad_half", "bad_one", "bad"));
  EXPECT_EQ(graded.ArmsText(),
            "[arms.bad_half]\nrecipe = \"mxfp4_floor\"\ninclude = "
            "[\"part1\"]\n\n[arms.bad_one]\nrecipe = \"mxfp4_floor\"\ninclude "
            "= [\"part3\"]\n");
}

TEST_F(GradedControlTest, IsTheWholeOneWhereAllSitesHarmByOneMargin) {
  const GradedControl graded = Graded({0.1, 0.24});

  EXPECT_EQ(graded.PartOf(kGrades[1]), 1U);
  EXPECT_THAT(graded.Controls(), ElementsAre("bad_half", "bad"));
}

TEST_F(GradedControlTest, HasNoPartBeyondOrBelowTheGrades) {
  EXPECT_THAT(Graded({0.5, 1, 2}).Controls(), ElementsAre("bad"));
  EXPECT_THAT(Graded({-0.1, 0.01, 0.02}).Controls(), ElementsAre("bad"));
  EXPECT_THAT(Graded({kInfinite, 0.1, 0.25}).Controls(), ElementsAre("bad"));
}

TEST_F(GradedControlTest, ReplacesEarlierPartsAndKeepsTheRest) {
  const std::string before =
      "name = \"t\"  # kept\n[gate]\ncontrol = [\n  \"bad_half\",\n  \"bad\"]  "
      "# kept, too\n[arms.bad_half]\nrecipe = \"x\"\ninclude = [\"a\"]\n\n# Of "
      "the next one.\n[arms.next]\nrecipe = \"bf16\"\n\n";

  const std::string after = WithControls(before, Graded({0.1, 0.9}));

  EXPECT_EQ(after,
            "name = \"t\"  # kept\n[gate]\ncontrol = [\"bad_half\", \"bad\"]  "
            "# kept, too\n[arms.bad_half]\nrecipe = "
            "\"mxfp4_floor\"\ninclude = [\"part0\"]\n\n# Of the next "
            "one.\n[arms.next]\nrecipe = \"bf16\"\n\n");
  EXPECT_EQ(WithControls(after, Graded({0.1, 0.9})), after);
}

TEST_F(GradedControlTest, KeepsCommentsOfTheKeyAndNoneOfAPartThatGoes) {
  const std::string gate =
      "  [gate]\ncontrol = [\n  \"bad_half\",  # mild\n  \"bad\",  # "
      "worse\n]\n";

  EXPECT_EQ(WithControls(gate + "\n# It is mild.\n[arms.bad_half]\nrecipe = "
                                "\"x\"\n# The end.\n",
                         Graded({0.9, 2})),
            "  [gate]\n# mild\n# worse\ncontrol = \"bad\"\n\n# The end.\n");
}

TEST_F(GradedControlTest, IsWrittenIfTheFileCanSaySo) {
  GradedControl graded = Graded({0.1, 0.9});
  const auto write = [&](const std::string& gate) {
    const std::string text = std::string(campaign::kTinyExperiment) +
                             "[arms.bad]\nrecipe = \"mxfp4_floor\"\n" + gate;
    WriteFileAtomically(graded.experiment.path, text);
    WriteFileAtomically(graded.experiment.path, RewrittenFile(graded));
  };
  graded.parts.front().include = Names{"attention.wo"};

  write("[gate]\ncontrol = \"bad\"\n");
  EXPECT_THAT(train::LoadExperiment(graded.experiment.path).gate.control,
              ElementsAre("bad_half", "bad"));
  write("[gate]\r\ncontrol = \"bad\"\r\nmargin_percent = 0.5\r\n");
  EXPECT_EQ(train::LoadExperiment(graded.experiment.path).gate.margin_percent,
            0.5);
  EXPECT_THROW(write("[gate]\n\"control\" = \"bad\"\n"), Error);
}

TEST_F(GradedControlTest, IsWrittenIntoExperimentsWithVariables) {
  std::string text = campaign::kTinyExperiment;
  const auto replace = [&](const std::string& what, const std::string& by) {
    text.replace(text.find(what), what.size(), by);
  };
  replace("vocab_size = 11", "vocab_size = 256");
  replace("noise_levels = 4\ntokens = 4000\n", "");
  replace("source = \"synthetic\"",
          "source = \"files\"\npaths = [\"${EIGEN3_INCLUDE_DIR}/Eigen\"]");
  const std::filesystem::path file = folder_.path() / "variable.toml";
  WriteFileAtomically(file, text);

  ParseRewrite(text, file);

  EXPECT_THROW(ParseRewrite("name = \"t\"\n", file), Error);
  std::string other = text;
  other.replace(other.find("steps = 8"), 9, "steps = 9");
  EXPECT_THROW(ParseRewrite(other, file), Error);
}

TEST_F(GradedControlTest, TrainsNestedPartsOnSeedsOfTheirOwn) {
  const Plan plan = PlanControls(Experiment(), 2, folder_.path() / "runs");

  const train::Experiment& cell = plan.cells.front().experiment;
  EXPECT_THAT(cell.train.seeds, ElementsAre(1001, 1002));
  EXPECT_EQ(cell.arms.front().name, "bf16");
  // Four kinds of attention and three of the dense layer are 7 sites of one
  // layer: every second leaves 4, 2, 1.
  EXPECT_THAT(train::ArmNames(cell),
              ElementsAre("bf16", "sites-1", "sites-2", "sites-4", "sites-7"));
  EXPECT_EQ(cell.arms.back().include, std::nullopt);
}

TEST_F(GradedControlTest, RefusesWhatCannotBeGraded) {
  EXPECT_THAT(ErrorOf({"arms.bad.recipe=bf16"}),
              HasSubstr("quantises no GEMM"));
  EXPECT_THAT(ErrorOf({"arms.bad_one.recipe=bf16"}),
              HasSubstr("the arm bad_one is no control"));
}

}  // namespace
}  // namespace isoloss::studies::graded_controls_test
