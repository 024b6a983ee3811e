// Recipes and sites of an experiment.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "isoloss/model/graph.h"
#include "isoloss/precision/recipe_file.h"
#include "isoloss/train/arm_recipes.h"
#include "support/temporary_folder.h"
#include "train/experiment_text.h"

namespace isoloss::train::experiment_recipes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOwn = R"([recipes.own]
sites = "routed_experts"
[recipes.own.operands.mx]
element = "e4m3"
[recipes.own.fprop]
x = "mx"
w = "mx"
[arms.own]
recipe = "own"
)";

std::string WithOwn() { return std::string(kText) + kOwn; }

/// Of the last arm.
std::string Description(const Experiment& experiment) {
  return Describe(ResolvePhases(experiment, experiment.arms.back()));
}

TEST(ExperimentRecipes, PrintedOnesGiveEachSiteOfAModelTheSame) {
  const auto sites = model::GemmSites(Parse(kText).model);
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    SCOPED_TRACE(recipe->name);
    const Experiment experiment =
        Parse(std::string(kText) + RecipeText(*recipe, "recipes.mine") +
              "[arms.mine]\nrecipe = \"mine\"\n");

    EXPECT_EQ(Description(experiment),
              precision::ResolvedRecipe(*recipe, sites).Describe());
  }
}

TEST(ExperimentRecipes, AreKeptInTheResolvedText) {
  const Experiment experiment = Parse(WithOwn());

  const Experiment again = Parse(experiment.ResolvedToml());

  EXPECT_TRUE(ArmRecipe(again.arms.back())
                  .SameContent(ArmRecipe(experiment.arms.back())));
  EXPECT_EQ(again.ResolvedToml(), experiment.ResolvedToml());
  EXPECT_EQ(Description(again), Description(experiment));
}

TEST(ExperimentRecipes, SitesOfAnArmTakeThePlaceOfTheRecipes) {
  const auto quantized = [](const std::string& lines) {
    const Experiment experiment = Parse(WithOwn() + lines);
    const auto resolved =
        ResolvePhases(experiment, experiment.arms.back()).front().recipe;
    std::string last;
    for (const auto& site : resolved.sites()) {
      if (site.quantized) last = site.site;
    }
    return last;
  };

  EXPECT_THAT(quantized(""), HasSubstr("routed_experts"));
  EXPECT_THAT(quantized("sites = \"torchtitan_mxfp8\"\n"),
              HasSubstr("shared_experts"));
  EXPECT_EQ(quantized("sites = \"nebius_16b\"\ninclude = [\"lm_head\"]\n"),
            "lm_head");
  EXPECT_EQ(ErrorOf(WithOwn() + "sites = \"nebius_17b\"\n"),
            "experiment.toml:23:9: `arms.own.sites` is \"nebius_17b\", but "
            "must be one of torchtitan_mxfp8, routed_experts, nebius_16b, "
            "llama4_scout, all_but_gate_and_head. Did you mean "
            "`nebius_16b`?");
}

TEST(ExperimentRecipes, AnArmsRecipeIsOneOfTheExperimentOrBuiltIn) {
  EXPECT_THAT(ErrorOf(WithOwn() + "[arms.b]\nrecipe = \"onw\"\n"),
              HasSubstr("must be one of own, bf16, "));
  EXPECT_THAT(ErrorOf(WithOwn() + "[arms.b]\nrecipe = \"onw\"\n"),
              HasSubstr("Did you mean `own`?"));
}

TEST(ExperimentRecipes, NamesFitLogsAndOtherContentNeedsAnotherName) {
  EXPECT_THAT(ErrorOfAppended("[recipes.\"a b\"]\n"),
              HasSubstr("`recipes.a b` is not a name for logs"));
  EXPECT_THAT(ErrorOfAppended("[recipes.\"a.b\"]\n"),
              HasSubstr("is not a name for logs"));
  EXPECT_THAT(ErrorOfAppended("[recipes.bf16]\nactivation = \"fp32\"\n"),
              HasSubstr("is called `bf16`, which is built in"));
  EXPECT_EQ(ErrorOfAppended("[recipes.bf16]\n"), "no error");
}

class RecipeFiles : public ::testing::Test {
 protected:
  RecipeFiles() { std::filesystem::create_directory(folder_.path() / "sub"); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name) << text;
  }
  /// Of sub/experiment.toml, whose recipe `own` is of `file`.
  std::string Error(const std::string& file) const {
    try {
      ParseExperiment(TextWith(file),
                      folder_.path() / "sub" / "experiment.toml", Inputs());
    } catch (const isoloss::Error& error) {
      return error.what();
    }
    return "no error";
  }
  static std::string TextWith(const std::string& file) {
    return std::string(kText) + "[recipes.own]\nfile = \"" + file +
           "\"\n[arms.own]\nrecipe = \"own\"\n";
  }

  test_support::TemporaryFolder folder_;
};

TEST_F(RecipeFiles, AreNamedRelativeToTheExperiment) {
  precision::Recipe recipe = precision::RecipeByName("mxfp8_floor");
  recipe.name = "own";
  Write("own.toml", RecipeText(recipe));

  const Experiment experiment =
      ParseExperiment(TextWith("../own.toml"),
                      folder_.path() / "sub" / "experiment.toml", Inputs());

  EXPECT_TRUE(ArmRecipe(experiment.arms.back()).SameContent(recipe));
  EXPECT_EQ(Description(experiment),
            Description(Parse(experiment.ResolvedToml())))
      << "the text is whole without the file";
}

TEST_F(RecipeFiles, OfOtherNamesOrContentAreRefused) {
  Write("sub/other.toml", "name = \"other\"\n");
  Write("sub/wrong.toml", "name = \"own\"\nfist_layers = 1\n");
  Write("sub/named.toml", "nam = \"own\"\n");

  EXPECT_THAT(Error("other.toml"), HasSubstr("holds the recipe `other`"));
  EXPECT_THAT(Error("wrong.toml"),
              HasSubstr("wrong.toml:2:1: unknown key `fist_layers`"));
  EXPECT_THAT(Error("named.toml"), HasSubstr("`name` is missing"));
  EXPECT_THAT(Error("other.toml\"\nlast_layers = \"1"),
              HasSubstr("unknown key `recipes.own.last_layers`"));
}

TEST_F(RecipeFiles, ThatAreNoFilesAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder_.path() / "sub" / "pipe").c_str(), 0600), 0);
  Write("sub/large.toml", "#" + std::string(5 << 20, 'a'));

  EXPECT_THAT(Error("absent.toml"), HasSubstr("absent.toml: cannot be read"));
  EXPECT_THAT(Error("pipe"), HasSubstr("it is a pipe or device"));
  EXPECT_THAT(Error("/dev/zero"), HasSubstr("it is a pipe or device"));
  EXPECT_THAT(Error("."), HasSubstr("cannot be read: Is a directory"));
  EXPECT_THAT(Error(""), HasSubstr("cannot be read: Is a directory"));
  EXPECT_THAT(Error("large.toml"), HasSubstr("has more than"));
}

}  // namespace
}  // namespace isoloss::train::experiment_recipes_test
