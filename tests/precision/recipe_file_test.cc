#include "isoloss/precision/recipe_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/precision/site_presets.h"
#include "support/expect_refused.h"

namespace isoloss::precision::recipe_file_test {
namespace {

using test_support::ExpectRefused;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A model with a dense and two MoE layers; the widths of wo alone are no
/// multiples of 32.
const std::vector<Site> kSites = {{"layers.0.attention.wq", 64, 96},
                                  {"layers.0.attention.wkv_a", 64, 96},
                                  {"layers.0.attention.wkv_b", 64, 96},
                                  {"layers.0.attention.wo", 40, 64},
                                  {"layers.0.feed_forward.w1", 64, 96},
                                  {"layers.0.feed_forward.w2", 96, 64},
                                  {"layers.0.feed_forward.w3", 64, 96},
                                  {"layers.1.attention.wq", 64, 96},
                                  {"layers.1.moe.router.gate", 64, 32},
                                  {"layers.1.moe.routed_experts.w1", 64, 96},
                                  {"layers.1.moe.shared_experts.w1", 64, 96},
                                  {"layers.2.attention.wq", 64, 96},
                                  {"lm_head", 64, 512}};

/// The numbers in kSites of those that are quantised.
std::vector<size_t> Quantized(const Recipe& recipe) {
  const ResolvedRecipe resolved(recipe, kSites);
  std::vector<size_t> places;
  for (size_t i = 0; i < kSites.size(); ++i) {
    if (resolved.sites()[i].quantized) places.push_back(i);
  }
  return places;
}

/// MXFP8 in the forward pass, whose other keys are `head` and other tables
/// `tail`.
std::string Text(const std::string& head = "include = [\"*\"]",
                 const std::string& tail = "") {
  return fmt::format(
      "name = \"mine\"\n{}\n[operands.mx]\nelement = \"e4m3\"\n"
      "[fprop]\nx = \"mx\"\nw = \"mx\"\n{}",
      head, tail);
}

Recipe Read(const std::string& text) { return ParseRecipe(text, "mine.toml"); }

void ExpectTextRefused(const std::string& text, const std::string& words) {
  SCOPED_TRACE(text.substr(0, 200));
  ExpectRefused([&] { ResolvedRecipe(Read(text), kSites); }, words);
}

// ---- What is printed --------------------------------------------------------

class PrintedRecipe : public ::testing::TestWithParam<const Recipe*> {};

TEST_P(PrintedRecipe, ReadsBackToTheSame) {
  const std::string text = RecipeText(*GetParam());

  const Recipe read = Read(text);

  EXPECT_TRUE(read.SameContent(*GetParam())) << text;
  EXPECT_EQ(read.name, GetParam()->name);
  EXPECT_EQ(read.summary, GetParam()->summary);
  EXPECT_EQ(read.source, GetParam()->source);
  EXPECT_EQ(RecipeText(read), text);
  EXPECT_EQ(ResolvedRecipe(read, kSites).Describe(),
            ResolvedRecipe(*GetParam(), kSites).Describe());
}

TEST_P(PrintedRecipe, ReadsBackInASectionUnderAnotherName) {
  const config::Document document(RecipeText(*GetParam(), "recipes.mine"),
                                  "experiment.toml");
  config::Reader top(document);

  const Recipe read =
      ReadRecipe(top.Section("recipes").Section("mine"), "mine");

  EXPECT_TRUE(read.SameContent(*GetParam()));
  EXPECT_EQ(read.name, "mine");
}

INSTANTIATE_TEST_SUITE_P(Registered, PrintedRecipe,
                         ::testing::ValuesIn(AllRecipes()),
                         [](const auto& test) { return test.param->name; });

/// Each key has another value than by default.
constexpr const char* kEveryKey = R"(name = "every_key"
summary = "a \"summary\""
source = "a source = \"e4m3\""
activation = "fp32"
weight_gradients = "bf16"
include = ["layers.", "lm_head?"]
exclude = ["gate?"]
first_layers = 1
last_layers = 2
width_multiple = 32

[operands.e2m1_te_e4m3_2x16_two_level_stochastic8_hadamard16_te]
element = "e2m1"
scaling = "two_level"
block_rows = 2
block_columns = 16
scale_format = "e4m3"
scale_rule = "te"
rounding = "stochastic"
random_bits = 8
transform = "hadamard16"
non_finite = "te"

[operands.e4m3_te_fp32_0x0_delayed_history4]
element = "e4m3"
scaling = "delayed"
block_rows = 0
block_columns = 0
scale_format = "fp32"
scale_rule = "te"
history = 4

[fprop]
x = "e4m3_te_fp32_0x0_delayed_history4"
w = "e4m3_te_fp32_0x0_delayed_history4"
accumulator = "hopper_f13"
promote_every = 128
outer_sums = "bf16"

[dgrad]
dy = "e4m3_te_fp32_0x0_delayed_history4"

[wgrad]
dy = "e4m3_te_fp32_0x0_delayed_history4"
x = "e4m3_te_fp32_0x0_delayed_history4"
dy_again = true
x_again = true

[[overrides]]
sites = ["wq", "wo?"]

[overrides.wgrad]
dy = "e2m1_te_e4m3_2x16_two_level_stochastic8_hadamard16_te"
x = "e2m1_te_e4m3_2x16_two_level_stochastic8_hadamard16_te"

[[overrides]]
sites = ["*"]
)";

TEST(RecipeFile, EveryKeyIsReadAndPrinted) {
  const Recipe recipe = Read(kEveryKey);

  EXPECT_EQ(recipe.source, "a source = \"e4m3\"");
  EXPECT_EQ(recipe.activation, kernels::Rounding::kFp32);
  EXPECT_EQ(recipe.weight_gradients, kernels::Rounding::kBf16);
  EXPECT_THAT(recipe.include, ElementsAre("layers.", "lm_head?"));
  EXPECT_THAT(recipe.exclude, ElementsAre("gate?"));
  EXPECT_EQ(recipe.first_layers, 1u);
  EXPECT_EQ(recipe.last_layers, 2u);
  EXPECT_EQ(recipe.width_multiple, 32u);
  EXPECT_EQ(OperandName(recipe.fprop.left),
            "e4m3·te·fp32·0x0·delayed·history4");
  EXPECT_EQ(AccumulationName(recipe.fprop.accumulation),
            "hopper_f13·promote128·bf16");
  EXPECT_FALSE(recipe.dgrad.right.has_value());
  EXPECT_TRUE(recipe.wgrad.left_again && recipe.wgrad.right_again);
  ASSERT_EQ(recipe.overrides.size(), 2u);
  EXPECT_EQ(OperandName(recipe.overrides[0].precision.wgrad.left),
            "e2m1·te·e4m3·2x16·two_level·stochastic8·hadamard16·te");
  EXPECT_EQ(recipe.overrides[1].precision, LinearPrecision());
  const std::string text = RecipeText(recipe);
  const Recipe again = Read(text);
  EXPECT_TRUE(again.SameContent(recipe)) << text;
  EXPECT_EQ(again.summary, recipe.summary);
  EXPECT_EQ(again.source, recipe.source);
}

TEST(RecipeFile, OperandsThatAreWrittenAlikeGetKeysOfTheirOwn) {
  const std::string cast = "element = \"e4m3\"\nscale_format = \"none\"\n";
  const Recipe recipe =
      Read(Text("include = [\"*\"]",
                "[operands.a]\n" + cast + "transform = \"hadamard16_te\"\n" +
                    "[operands.b]\n" + cast +
                    "transform = \"hadamard16\"\nnon_finite = \"te\"\n"
                    "[dgrad]\ndy = \"a\"\nw = \"a\"\n"
                    "[wgrad]\ndy = \"b\"\nx = \"b\"\n"));

  const Recipe read = Read(RecipeText(recipe));

  EXPECT_TRUE(read.SameContent(recipe)) << RecipeText(recipe);
}

TEST(RecipeFile, WhatEqualsItsDefaultIsNotPrinted) {
  EXPECT_EQ(RecipeText(Read(Text())),
            "name = \"mine\"\ninclude = [\"*\"]\n\n[operands.e4m3_rceil]\n"
            "element = \"e4m3\"\n\n[fprop]\nx = \"e4m3_rceil\"\n"
            "w = \"e4m3_rceil\"\n");
}

// ---- Which sites ------------------------------------------------------------

TEST(SitePresets, SelectWhatTheirDocumentationSays) {
  const auto quantized = [](const std::string& preset) {
    return Quantized(Read(Text(fmt::format("sites = \"{}\"", preset))));
  };

  EXPECT_THAT(quantized("torchtitan_mxfp8"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11));
  EXPECT_THAT(quantized("routed_experts"), ElementsAre(9));
  EXPECT_THAT(quantized("nebius_16b"), ElementsAre(4, 6, 9));
  EXPECT_THAT(quantized("llama4_scout"),
              ElementsAre(0, 3, 4, 5, 6, 7, 9, 10, 11));
  EXPECT_THAT(quantized("all_but_gate_and_head"),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11));
  EXPECT_EQ(AllSitePresets().size(), 5u) << "test the new one, too";
}

TEST(SitePresets, ListsThatAreGivenTakeTheirPlace) {
  EXPECT_THAT(Quantized(Read(Text("sites = \"routed_experts\"\n"
                                  "include = [\"lm_head\"]"))),
              ElementsAre(12));
  EXPECT_THAT(Quantized(Read(Text("sites = \"nebius_16b\"\n"
                                  "exclude = [\"w1\"]"))),
              ElementsAre(6));
}

TEST(RecipeFile, LayersAtTheEndsAndOtherWidthsStay) {
  EXPECT_THAT(Quantized(Read(Text("include = [\"wq\"]\nfirst_layers = 1"))),
              ElementsAre(7, 11));
  EXPECT_THAT(Quantized(Read(Text("include = [\"wq\"]\nlast_layers = 2"))),
              ElementsAre(0));
  EXPECT_THAT(Quantized(Read(Text("include = [\"layers.0.attention\"]\n"
                                  "width_multiple = 32"))),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(Quantized(Read(Text("include = [\"feed_forward\", \"lm_head\"]\n"
                                  "width_multiple = 64"))),
              ElementsAre(12));
  EXPECT_THAT(Quantized(Read(Text("include = [\"lm_head\"]\nlast_layers = 3"))),
              ElementsAre(12))
      << "of no layer";
  ExpectTextRefused(Text("include = [\"wq\"]\nfirst_layers = 3"),
                    "Lower `first_layers`, `last_layers` or");
}

TEST(RecipeFile, TheFirstOverrideThatMatchesDecides) {
  const Recipe recipe = Read(
      Text("include = [\"attention\"]",
           "[[overrides]]\nsites = [\"wq\"]\n[overrides.wgrad]\ndy = \"mx\"\n"
           "[[overrides]]\nsites = [\"layers.0.\"]\n"));

  const ResolvedRecipe resolved(recipe, kSites);

  EXPECT_TRUE(resolved.For(0, GemmRole::kWgrad).left.has_value());
  EXPECT_FALSE(resolved.For(0, GemmRole::kFprop).quantized());
  EXPECT_FALSE(resolved.For(1, GemmRole::kFprop).quantized());
  EXPECT_THAT(resolved.sites()[0].reason, HasSubstr("overridden by `wq`"));
  EXPECT_THAT(resolved.sites()[1].reason,
              HasSubstr("overridden by `layers.0.`"));
}

TEST(RecipeFile, OverridesThatDoNothingAreRefused) {
  const auto with = [](const std::string& sites, const std::string& head) {
    return Text(head,
                "[[overrides]]\nsites = [\"attention\"]\n[[overrides]]\n"
                "sites = [" +
                    sites + "]\n");
  };
  const std::string all = "include = [\"*\"]";

  ExpectTextRefused(with("", all), "override 2 has no pattern");
  ExpectTextRefused(with("\"wv\"", all),
                    "the overrides pattern `wv` matches none");
  ExpectTextRefused(with("\"wq\", \"wo\"", all),
                    "override 2 (`wq`, `wo`) must be for a GEMM site");
  ExpectTextRefused(with("\"lm_head\"", all + "\nexclude = [\"lm_head\"]"),
                    "override 2 (`lm_head`) must be for a GEMM site");
  EXPECT_EQ(Quantized(Read(with("\"wq?\"", all))).size(), kSites.size());
  // The last layer, whose wq is in the way of nothing else.
  EXPECT_EQ(Quantized(Read(Text("include = [\"layers.\"]\nlast_layers = 1",
                                "[[overrides]]\nsites = [\"layers.2.\"]\n")))
                .size(),
            11u);
}

// ---- What is refused --------------------------------------------------------

TEST(RecipeFile, ANameOfABuiltInRecipeNeedsItsContent) {
  std::string text = RecipeText(RecipeByName("mxfp8_floor"));
  Read(text + "# the same\n");

  ExpectTextRefused("last_layers = 1\n" + text,
                    "called `mxfp8_floor`, which is built in, but its content "
                    "differs from that recipe's. Give it a name of its own.");
}

TEST(RecipeFile, UnknownWordsNameTheKnownOnesAndTheNearest) {
  const auto operand = [](const std::string& line) {
    return Text("include = [\"*\"]",
                "[operands.o]\nelement = \"e4m3\"\n" + line);
  };

  ExpectTextRefused(Text("sites = \"routed_expert\""),
                    "mine.toml:2:9: `sites` is \"routed_expert\", but must be "
                    "one of torchtitan_mxfp8, routed_experts, nebius_16b, "
                    "llama4_scout, all_but_gate_and_head. Did you mean "
                    "`routed_experts`?");
  ExpectTextRefused(Text() + "promote = 3\n",
                    "unknown key `fprop.promote`. Known keys of fprop: x, w, "
                    "accumulator, promote_every, outer_sums.");
  ExpectTextRefused(Text("activaton = \"fp32\""), "Did you mean `activation`?");
  ExpectTextRefused(operand("scale_rul = \"te\""),
                    "Did you mean `scale_rule`?");
  ExpectTextRefused(operand("scale_rule = \"torch\""),
                    "one of floor, ceil, even, rceil, te, deepgemm, torchao");
  ExpectTextRefused(operand("scale_format = \"e8\""),
                    "one of none, e8m0, e4m3, pow2, fp32");
  ExpectTextRefused(operand("rounding = \"stochastc\""),
                    "Did you mean `stochastic`?");
  ExpectTextRefused(operand("transform = \"hadamard\""), "one of none, ");
  ExpectTextRefused(operand("scaling = \"delay\""),
                    "one of current, delayed, two_level");
  ExpectTextRefused(Text("include = [\"*\"]", "[dgrad]\ndy = \"m\"\n"),
                    "`dgrad.dy` is \"m\", but must be one of mx. Did you mean "
                    "`mx`?");
  ExpectTextRefused(Text("include = [\"*\"]", "[dgrad]\nx = \"mx\"\n"),
                    "Known keys of dgrad: dy, w, ");
  ExpectTextRefused(Text("include = [\"*\"]", "[dgrad]\ndy_again = true\n"),
                    "unknown key `dgrad.dy_again`");
  ExpectTextRefused(
      Text("include = [\"*\"]", "[[overrides]]\n[overrides.fprop]"),
      "`overrides.sites` is missing");
  ExpectTextRefused(Text("include = [\"*\"]", "[operands.o]\nhistory = 1\n"),
                    "`operands.o.element` is missing");
  ExpectTextRefused("include = [\"*\"]\n", "`name` is missing");
}

TEST(RecipeFile, DescriptionsThatMakeNoSenseAreRefused) {
  const auto operand = [](const std::string& lines) {
    return Text("include = [\"*\"]",
                "[operands.o]\nelement = \"e4m3\"\n" + lines);
  };

  ExpectTextRefused(operand("scale_format = \"fp32\"\n"),
                    "mine.toml:9:11: [operands.o]: it has scales in fp32 by "
                    "the rule rceil");
  ExpectTextRefused(operand("rounding = \"stochastic\"\n"), "0 random bits");
  ExpectTextRefused(operand("history = 3\n"), "delayed scaling needs");
  ExpectTextRefused(operand("scale_format = \"none\"\nblock_columns = 16\n"),
                    "has no scale, but a scale rule or blocks");
  ExpectTextRefused(operand("scale_format = \"none\"\nscale_rule = \"te\"\n"),
                    "has no scale, but a scale rule or blocks");
  ExpectTextRefused(operand("transform = \"hadamard16\"\n[wgrad]\ndy = \"o\"\n"
                            "x = \"mx\"\n"),
                    "[wgrad]: it ");
  ExpectTextRefused(Text("include = [\"*\"]", "[wgrad]\nx_again = true\n"),
                    "wgrad quantises again what was not ");
}

TEST(RecipeFile, NumbersOutsideTheirRangeAreRefused) {
  for (const char* number :
       {"nan", "-nan", "inf", "-1", "1.0", "1e300", "9223372036854775807"}) {
    for (const char* key : {"first_layers", "last_layers", "width_multiple"}) {
      ExpectTextRefused(Text(fmt::format("{} = {}", key, number)),
                        "but must be an integer from ");
    }
    for (const char* key :
         {"block_rows", "block_columns", "random_bits", "history"}) {
      ExpectTextRefused(
          Text("", fmt::format("[operands.o]\nelement = \"e4m3\"\n{} = {}\n",
                               key, number)),
          "but must be an integer from ");
    }
    ExpectTextRefused(Text() + fmt::format("promote_every = {}\n", number),
                      "but must be an integer from ");
  }
  ExpectTextRefused(Text("width_multiple = 0"), "an integer from 1 to ");
}

// ---- Files that were made to be slow ----------------------------------------

std::string Repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

TEST(HostileRecipe, LongOrManyPatternsAreRefused) {
  for (const char* piece : {"*", "a", "*a", "layers.0.attention.wq"}) {
    ExpectTextRefused(Text("include = [\"" + Repeated(piece, 150'000) + "\"]"),
                      "but may have 1000 of up to 1000. Use `*`.");
  }
  ExpectTextRefused(Text("exclude = [" + Repeated("\"z?\",", 700'000) + "]"),
                    "it has 700000 patterns");
  ExpectTextRefused(
      Text("include = [\"*\"]",
           "[[overrides]]\nsites = [" + Repeated("\"wq\",", 600'000) + "]\n"),
      "it has 600001 patterns");
  // The longest that is allowed.
  ExpectTextRefused(Text("include = [\"" + std::string(1000, 'a') + "\"]"),
                    "matches none");
}

TEST(HostileRecipe, ManyOverridesAndOperandsAreRefused) {
  ExpectTextRefused(
      Text("overrides = [" + Repeated("{},", 1'000'000) + "]"),
      "`overrides` holds 1000000 tables, but a recipe has at most 1000");
  std::string operands;
  for (int i = 0; i < 70'000; ++i) {
    operands += fmt::format("[operands.a{}]\nelement = \"e4m3\"\n", i);
  }
  ExpectTextRefused(Text("", operands),
                    "`operands` holds 70001 tables, but a recipe has at most");
  ExpectTextRefused(Text("", Repeated("[[overrides]]\n", 1'000'000)), "4 MiB");
}

TEST(HostileRecipe, LongNamesAndDeepTablesAreRefused) {
  const std::string name(1'500'000, 'a');
  ExpectTextRefused(Text("", "[operands." + name + "]\nelement = \"e4m3\"\n" +
                                 "[dgrad]\ndy = \"" + name + "b\"\n"),
                    "`dgrad.dy` is \"a");
  ExpectTextRefused(Text(name + " = 1"), "unknown key");
  for (const char* open : {"[", "{a="}) {
    ExpectRefused([&] { Read(Text("fprop = " + Repeated(open, 200'000))); },
                  "mine.toml:2:");
  }
  ExpectTextRefused(Text(Repeated("a.", 100'000) + "b = 1"),
                    "more than 16 parts");
}

TEST(RecipeFile, SumsOfTheirOwnChooseSitesToo) {
  const Recipe recipe = Read(
      "name = \"sums\"\ninclude = [\"wq\"]\n[fprop]\npromote_every = 32\n"
      "outer_sums = \"bf16\"\n");

  const ResolvedRecipe resolved(recipe, kSites);

  EXPECT_THAT(Quantized(recipe), ElementsAre(0, 7, 11));
  EXPECT_EQ(resolved.For(0, GemmRole::kFprop).accumulation.interval, 32);
  EXPECT_EQ(resolved.quantized_gemms(), 0);
  EXPECT_EQ(resolved.For(1, GemmRole::kFprop), GemmPrecision());
}

TEST(RecipeFile, WhatWasTransformedIsNotQuantisedAgain) {
  ExpectTextRefused(
      "name = \"again\"\ninclude = [\"wq\"]\n[operands.h]\nelement = \"e4m3\"\n"
      "transform = \"hadamard16\"\n[operands.p]\nelement = \"e4m3\"\n"
      "[fprop]\nx = \"h\"\nw = \"h\"\n[wgrad]\ndy = \"p\"\nx = \"p\"\n"
      "x_again = true\n",
      "what was transformed before");
}

TEST(RecipeFile, AnOperandThatNothingNamesIsRefused) {
  ExpectTextRefused(
      Text("include = [\"wq\"]", "[operands.unused]\nelement = \"e5m2\"\n"),
      "describes `unused`, but no product");
}

}  // namespace
}  // namespace isoloss::precision::recipe_file_test
