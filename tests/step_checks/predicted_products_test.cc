#include "isoloss/step_checks/predicted_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/step_checks/precision_probe.h"
#include "isoloss/train/arm_recipes.h"
#include "step_checks/recorded_run.h"
#include "support/expect_refused.h"

namespace isoloss::step_checks::predicted_products_test {
namespace {

using isoloss::test_support::CorpusOf;
using isoloss::test_support::TinyExperiment;

/// Relative errors of all tensors of a step, against BF16.
std::vector<double> Errors(const train::Experiment& experiment,
                           const train::Arm& arm,
                           const model::GemmEngine& engine) {
  Executor executor(1);
  train::RunHooks hooks;
  hooks.gemm_engine = engine;
  const std::vector<int64_t> steps = {2};
  return ProbePrecision(experiment, arm, experiment.arms[0], /*seed=*/1,
                        CorpusOf(experiment), steps, executor, hooks)
      .precision.relative_error;
}

/// Largest |ln(a / b)|; 0 / 0 counts nothing.
double LargestRatio(const std::vector<double>& a,
                    const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    largest = std::max(largest, std::fabs(std::log(a[i] / b[i])));
  }
  return largest;
}

/// A program whose products of the forward pass come out 1 % too large.
void BuggyProducts(std::span<const model::GemmTask> tasks, Executor& executor) {
  std::vector<kernels::GemmProblem> problems;
  for (const model::GemmTask& task : tasks) problems.push_back(task.problem);
  kernels::GemmBatch(problems, executor);
  for (const model::GemmTask& task : tasks) {
    if (task.role != precision::GemmRole::kFprop) continue;
    const MatrixView<float>& c = task.problem.c;
    for (size_t i = 0; i < c.rows(); ++i) {
      for (size_t j = 0; j < c.cols(); ++j) c(i, j) *= 1.01f;
    }
  }
}

class PredictedProductsTest : public ::testing::TestWithParam<const char*> {};

/// Good kernels have the errors that the declaration predicts, and a bug of
/// theirs has others. So limits from predictions can't let it pass, whichever
/// program computes them: the engine takes the place of its products.
///
/// Sums of at most 64 terms have an error of some 2^-22 of their size, and a
/// BF16 step is 2^-8: at most one element of 2^10 falls to the other side. Its
/// code may then move by 2^-4 of it, so that a squared error of (2^-5)^2 moves
/// by 2^-10 * 2^-8 / 2^-10 = 2^-8 of itself in each of some 20 products in a
/// row: ln below 0.05.
TEST_P(PredictedProductsTest, HaveTheErrorsOfGoodKernelsOnly) {
  constexpr double kLargest = 0.05;
  train::Experiment experiment = TinyExperiment();
  train::Arm& arm = experiment.arms[1];
  arm.recipe = GetParam();
  const auto engine =
      PredictedProducts(train::ArmRecipe(arm), experiment.model);

  const std::vector<double> predicted = Errors(experiment, arm, engine);

  EXPECT_GT(*std::ranges::max_element(predicted), 0.001);
  EXPECT_LT(LargestRatio(Errors(experiment, arm, {}), predicted), kLargest);
  EXPECT_GT(LargestRatio(Errors(experiment, arm, BuggyProducts), predicted),
            kLargest);
}

INSTANTIATE_TEST_SUITE_P(Recipes, PredictedProductsTest,
                         ::testing::Values("mxfp8_rceil", "mxfp6_e2m3",
                                           "te_fp8_current", "deepseek_v3_fp8",
                                           "te_nvfp4"));

TEST(PredictedProducts, RefuseWhatIsNoProductOfALinearLayer) {
  const train::Experiment experiment = TinyExperiment();
  precision::Recipe recipe = precision::RecipeByName("mxfp8_rceil");
  recipe.attention.q = recipe.fprop.left;
  isoloss::test_support::ExpectRefused(
      [&] { PredictedProducts(recipe, experiment.model); },
      "linear layers alone can be predicted");
}

}  // namespace
}  // namespace isoloss::step_checks::predicted_products_test
