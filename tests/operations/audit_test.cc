// Audits find which operands of which products were quantised.
#include "isoloss/operations/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operations/samples.h"
#include "support/expect_refused.h"

namespace isoloss::operations::audit_test {
namespace {

using precision::GemmRole;
using precision::LinearPrecision;
using precision::RecipeByName;
using test_support::Compute;
using test_support::GroupedInputs;
using test_support::LinearInputs;

ModuleAudit AuditOf(const Operation& operation, const std::string& recipe,
                    const CheckOptions& options = {}) {
  const std::vector<OperationFile> files = {
      {.path = "step", .operations = {operation}}};
  CheckExtents(files.front());
  return AuditModules(files, RecipeByName(recipe), options).front();
}

class AuditedRecipe : public ::testing::TestWithParam<std::string> {};

TEST_P(AuditedRecipe, IsTellsApartFromPlainAndHalfQuantisedProducts) {
  const LinearPrecision& right = RecipeByName(GetParam());
  LinearPrecision mixed = right;
  mixed.dgrad = {};
  mixed.wgrad.right.reset();
  Operation operation = GroupedInputs();
  Compute(mixed, operation);

  const ModuleAudit audit = AuditOf(operation, GetParam());

  EXPECT_EQ(audit.products[0].found, QuantizedOperands::kBoth);
  EXPECT_EQ(audit.products[1].found, QuantizedOperands::kNeither);
  EXPECT_EQ(audit.products[2].found, QuantizedOperands::kLeftOnly);
  for (const ProductAudit& product : audit.products) {
    EXPECT_EQ(product.evidence, AuditEvidence::kResults);
  }
  EXPECT_FALSE(audit.products[0].contradicts());
  EXPECT_TRUE(audit.products[1].contradicts());
  EXPECT_TRUE(audit.products[2].contradicts());
}

INSTANTIATE_TEST_SUITE_P(Recipes, AuditedRecipe,
                         ::testing::Values("mxfp8_rceil", "mxfp6_e2m3",
                                           "fp8_rowwise", "te_fp8_current",
                                           "deepseek_v3_fp8"));

TEST(Audit, ResultsCountMoreThanCodes) {
  const precision::Recipe& recipe = RecipeByName("mxfp8_rceil");
  Operation operation = LinearInputs();
  Compute({}, operation);
  test_support::AddCodes(recipe, operation);

  const ProductAudit product = AuditOf(operation, recipe.name).products[0];

  EXPECT_EQ(product.found, QuantizedOperands::kNeither);
  EXPECT_TRUE(product.contradicts());

  operation.floats.erase("output");
  const ProductAudit alone = AuditOf(operation, recipe.name).products[0];
  EXPECT_EQ(alone.found, QuantizedOperands::kBoth);
  EXPECT_EQ(alone.evidence, AuditEvidence::kCodes);
}

TEST(Audit, OtherFormatsAreNoneOfTheKinds) {
  Operation operation = LinearInputs();
  Compute(RecipeByName("mxfp4_floor"), operation);

  const ProductAudit product = AuditOf(operation, "mxfp8_rceil").products[0];

  EXPECT_EQ(product.found, QuantizedOperands::kOther);
}

TEST(Audit, OperandsOnTheGridTellNothingMore) {
  Operation operation = LinearInputs();
  for (const char* name : {"x", "weight", "grad_output"}) {
    for (float& value : operation.floats[name].values) {
      value = value < 0 ? -1.0f : 1.0f;
    }
  }
  Compute({}, operation);

  const ProductAudit product = AuditOf(operation, "mxfp8_rceil").products[0];

  EXPECT_EQ(product.evidence, AuditEvidence::kGrid);
}

TEST(Audit, ModuleThatNoPatternNamesIsTriedUnderTheRecipe) {
  Operation operation = LinearInputs("moe.experts.w1");
  Compute(RecipeByName("mxfp8_rceil"), operation);

  const ModuleAudit audit =
      AuditOf(operation, "mxfp8_rceil", {.include = {"w1"}, .exclude = {}});
  EXPECT_TRUE(audit.choice.is_named);
  EXPECT_FALSE(audit.products[0].contradicts());

  const ModuleAudit left_out =
      AuditOf(operation, "mxfp8_rceil", {.include = {}, .exclude = {"w1"}});
  EXPECT_EQ(left_out.products[0].found, QuantizedOperands::kBoth);
  EXPECT_TRUE(left_out.products[0].contradicts());
}

TEST(Audit, ProductsThatAreNotRecordedAreDeclaredOnly) {
  Operation operation = LinearInputs();

  EXPECT_FALSE(AuditOf(operation, "mxfp8_rceil").has_evidence());
}

TEST(Audit, PatternThatMatchesInsideOtherWordsIsTold) {
  const std::vector<OperationFile> files = {
      {.path = "step",
       .operations = {LinearInputs("layers.0.mlp.gate"),
                      LinearInputs("layers.0.mlp.gate_proj")}}};
  const CheckOptions options = {.include = {"mlp"}, .exclude = {"gate"}};

  const ModuleChoices choices(files, RecipeByName("mxfp8_rceil"), options);

  EXPECT_THAT(choices.remarks(),
              ::testing::Contains(::testing::HasSubstr(
                  "--exclude `gate` names 1 module, but matches inside words "
                  "of 1 more: layers.0.mlp.gate_proj.")));
}

TEST(Audit, RecipeWithoutFormatsIsRefused) {
  test_support::ExpectRefused([] { AuditOf(LinearInputs(), "bf16"); },
                              "recipe bf16: quantises nothing");
}

}  // namespace
}  // namespace isoloss::operations::audit_test
