#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/document/text.h"
#include "isoloss/studies/documents.h"

namespace isoloss::studies::sites_document_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const estimators::SitesStatement& statement) {
  return document::RenderText(SitesDocument(statement));
}
std::string JsonOf(const estimators::SitesStatement& statement) {
  return document::RenderJson(SitesDocument(statement));
}
std::string SvgOf(const estimators::SitesStatement& statement) {
  return document::RenderSvg(SitesPicture(statement));
}

/// Two products, of which one is harmful and one unstable, and a recipe of the
/// third.
estimators::SitesStatement SomeStatement() {
  estimators::ModelWork work{
      .name = "671B",
      .kinds = {{"attention.wo", {{{8e10, 1e5, 1e5}, {4e10, 1e5, 1e5}, {}}}},
                {"lm_head", {{{8e10, 1e5, 1e5}, {}, {}}}}},
      .moe_layers = 58,
      .dim = 7168,
      .experts = 256,
      .top_k = 8};
  estimators::SitesStatement statement{
      .experiment = "e",
      .baseline = "bf16",
      .arm = "mxfp8",
      .candidate = "mxfp8_rceil",
      .steps = 70,
      .runs = 20,
      .products = {},
      .findings = {},
      .speed = estimators::SpeedModel(work, estimators::kB200,
                                      estimators::SpeedAssumptions()),
      .recipe_text = "name = \"chosen_sites\"\n",
      .notes = {"A note."}};
  for (const auto& [kind, product] :
       {std::pair("attention.wo", 0), std::pair("attention.wo", 1),
        std::pair("lm_head", 0)}) {
    statement.products.push_back({.kind = kind,
                                  .role = static_cast<size_t>(product),
                                  .shares = {{"671B", 0.25, 0.125}},
                                  .saved_seconds = 2e-6,
                                  .first_error = 0.001,
                                  .last_error = 0.002});
  }
  estimators::SiteFindings& findings = statement.findings;
  findings.seeds = 4;
  findings.baseline_loss = 2;
  findings.margin_nats = 0.005;
  findings.ranked = {
      {.product = 2, .unstable = true, .p = 0, .adjusted = 0},
      {.product = 0, .harm = {0.02, 0.01, 0.03}, .p = 1e-4, .adjusted = 2e-4},
      {.product = 1,
       .harm = {0.001, -0.001, 0.003},
       .p = 0.2,
       .adjusted = 0.3}};
  const estimators::SetFinding nothing{.set = {.name = "nothing"}};
  estimators::SetFinding one{
      .set = {.name = "+ attention.wo dgrad", .products = {1}},
      .speed_up = 1.01,
      .predicted = {0.001, -0.001, 0.003},
      .measured = stats::MeanInterval{0.002, 0, 0.004},
      .difference = stats::MeanInterval{0.001, -0.001, 0.003}};
  findings.frontier = {nothing, one};
  findings.sets = {one};
  findings.sets.front().set.name = "llama4_scout";
  findings.recipe = one;
  return statement;
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

TEST(SitesDocument, SaysWhatThereIs) {
  const std::string text = TextOf(SomeStatement());

  EXPECT_THAT(text, HasSubstr("lm_head fprop *"));
  EXPECT_THAT(text, HasSubstr("no finite loss"));
  // 0.02 of 2 nats.
  EXPECT_THAT(text, HasSubstr("+1.000 [ +0.500,  +1.500]"));
  EXPECT_THAT(text, HasSubstr("25.0/12.5"));
  EXPECT_THAT(text, HasSubstr("published  651 tokens/s, model  651: the rest"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "Recipe (+ attention.wo dgrad): 1 of 3 products, 1.0100 times"));
  EXPECT_THAT(text, HasSubstr("0 is inside the interval"));
  EXPECT_THAT(text, HasSubstr("A note.\n"));
}

TEST(SitesDocument, SaysThatARecipeIsNotWhatWasPredicted) {
  estimators::SitesStatement statement = SomeStatement();
  statement.findings.recipe->difference = {0.002, 0.001, 0.003};

  EXPECT_THAT(TextOf(statement), HasSubstr("0 is outside the interval"));
  EXPECT_FALSE(nlohmann::json::parse(JsonOf(statement))["recipe"]["inside"]);
}

TEST(SitesDocument, SaysThatThereIsNoRecipe) {
  estimators::SitesStatement statement = SomeStatement();
  statement.findings.recipe.reset();

  EXPECT_THAT(TextOf(statement), HasSubstr("there is no recipe"));
  EXPECT_TRUE(nlohmann::json::parse(JsonOf(statement))["recipe"].is_null());
  // The legend's alone, where a recipe has one of its own.
  EXPECT_EQ(CountOf(SvgOf(SomeStatement()), ">R</text>"), 2);
  EXPECT_EQ(CountOf(SvgOf(statement), ">R</text>"), 1);
}

TEST(SitesDocument, HasTheseKeys) {
  const auto json = nlohmann::json::parse(JsonOf(SomeStatement()));

  std::set<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.insert(key);
  EXPECT_EQ(keys,
            (std::set<std::string>{
                "schema_version", "experiment", "baseline", "arm", "candidate",
                "confidence", "steps", "seeds", "runs", "baseline_loss_nats",
                "margin_percent", "margin_nats", "products", "speed_model",
                "sets", "frontier", "recipe", "notes"}));
  const auto& product = json["products"][1];
  EXPECT_EQ(product["site"], "attention.wo");
  EXPECT_EQ(product["role"], "fprop");
  EXPECT_EQ(product["harm_nats"]["lower"], 0.01);
  EXPECT_EQ(product["gradient_error_last"], 0.002);
  EXPECT_EQ(product["shares"][0]["flops"], 0.25);
  EXPECT_EQ(json["recipe"]["products"][0], "attention.wo dgrad");
  EXPECT_EQ(json["recipe"]["inside"], true);
  EXPECT_EQ(json["speed_model"]["tries"].size(), 3U);
  EXPECT_TRUE(json["frontier"][0]["measured_nats"].is_null());
}

/// Where a set's ring is, from the top; "" if there is none.
std::string RingOf(const std::string& svg) {
  const std::regex ring(
      "<circle cx=\"[0-9.]+\" cy=\"([0-9.]+)\" r=\"4\" stroke=\"#e8710a\" "
      "fill=\"none\"/>");
  std::smatch found;
  return std::regex_search(svg, found, ring) ? found[1].str() : "";
}

TEST(SitesDocument, DrawsPredictionsWhereTheyAreOrNotAtAll) {
  estimators::SitesStatement statement = SomeStatement();
  stats::MeanInterval& predicted = statement.findings.sets.front().predicted;
  const std::string top = "24.0";
  EXPECT_NE(RingOf(SvgOf(statement)), "");
  EXPECT_NE(RingOf(SvgOf(statement)), top);

  // Beyond all else: the axis grows, as it does for the recipe.
  predicted.mean = 0.1;
  EXPECT_NE(RingOf(SvgOf(statement)), "");
  EXPECT_NE(RingOf(SvgOf(statement)), top);
  const std::string before = SvgOf(statement);
  statement.findings.recipe->predicted.mean = 0.2;
  EXPECT_NE(RingOf(SvgOf(statement)), RingOf(before));

  // As findings have it of a set with an unstable product.
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  predicted = {kInfinite, -kInfinite, kInfinite};
  const std::string svg = SvgOf(statement);
  EXPECT_EQ(RingOf(svg), "");
  EXPECT_EQ(CountOf(svg, ">1</text>"), CountOf(before, ">1</text>"));
}

TEST(SitesDocument, DrawsWhatItSays) {
  const std::string svg = SvgOf(SomeStatement());

  for (const char* word : {">llama4_scout<", ">1<", ">recipe<", "lm_head fprop",
                           "attention.wo dgrad", "margin 0.25 %"}) {
    EXPECT_THAT(svg, HasSubstr(word));
  }
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf\"")));
}

}  // namespace
}  // namespace isoloss::studies::sites_document_test
