#include "isoloss/model/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/kernels/gemm.h"
#include "isoloss/model/graph.h"
#include "isoloss/model/layer_context.h"
#include "model/small_model.h"

namespace isoloss::model::linear_test {
namespace {

using test_support::SmallBatch;
using test_support::SmallConfig;

/// In (-1, 1) over many binades: MX blocks get different scales, and sums of
/// quantised values are not exact.
Matrix<float> Values(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(17, stream);
  Matrix<float> m(rows, cols);
  for (size_t i = 0; i < m.size(); ++i) {
    m.data()[i] = static_cast<float>(std::pow(2 * rng.Uniform(i) - 1, 9));
  }
  return m;
}

std::vector<float> Flat(MatrixView<const float> m) {
  return {m.data(), m.data() + m.rows() * m.cols()};
}

ParameterSet InitialWeights() {
  ParameterSet weights(SmallConfig());
  InitializeParameters(3, weights);
  return weights;
}

/// What products compute with.
Matrix<float> RoundedWeight(const ParameterSet& weights, const char* parameter,
                            kernels::Rounding rounding) {
  const Matrix<float>& values = weights.ByName(parameter).values;
  Matrix<float> result(values.rows(), values.cols());
  for (size_t i = 0; i < result.size(); ++i) {
    result.data()[i] = kernels::Rounded(values.data()[i], rounding);
  }
  return result;
}

class LinearTest : public ::testing::TestWithParam<const char*> {
 protected:
  /// Gives the layers built so far their weights.
  void LoadWeights() { context_.LoadWeights(weights_); }

  /// Weight gradient of `linear` for x and dy, under `groups`.
  std::vector<float> WeightGradient(const Linear& linear, const char* parameter,
                                    MatrixView<const float> x,
                                    MatrixView<const float> dy,
                                    const RowGroups& groups) {
    Matrix<float> dx(x.rows(), x.cols());
    linear.QueueBackward(x, dy, groups, dx.view());
    context_.gemms.Run();
    return Flat(gradients_.ByName(parameter).values.view());
  }

  /// Points the context at a batch of sequences of the given lengths.
  void Begin(const std::vector<size_t>& lengths) {
    batch_ = SmallBatch(SmallConfig(), lengths);
    context_.Begin(batch_.view(), nullptr, &gradients_);
  }

  Executor executor_{2};
  expert_parallel::Mesh mesh_{SmallConfig().num_experts, executor_};
  LayerContext context_{SmallConfig(), precision::RecipeByName(GetParam()),
                        executor_, mesh_};
  ParameterSet weights_ = InitialWeights();
  ParameterSet gradients_{SmallConfig()};
  SmallBatch batch_{SmallConfig(), {1}};
};

std::vector<float> Sum(const std::vector<float>& a,
                       const std::vector<float>& b) {
  std::vector<float> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

TEST_P(LinearTest, WeightGradientsHaveOneLeafPerSequence) {
  // Also MX blocks along the tokens start anew with each leaf: sequences of 40
  // and 27 tokens are two blocks and one.
  const char* parameter = "layers.0.attention.wo.weight";
  const Linear linear(context_, "layers.0.attention.wo");
  LoadWeights();
  const Matrix<float> x = Values(67, 36, 1);
  const Matrix<float> dy = Values(67, 40, 2);
  const auto gradient = [&](const std::vector<size_t>& lengths, size_t first,
                            size_t count) {
    Begin(lengths);
    return WeightGradient(linear, parameter, x.view().Rows(first, count),
                          dy.view().Rows(first, count),
                          context_.SequenceLeaves());
  };

  const auto together = gradient({40, 27}, 0, 67);

  EXPECT_EQ(together, Sum(gradient({40}, 0, 40), gradient({27}, 40, 27)));
  EXPECT_NE(together, gradient({67}, 0, 67)) << "one leaf gives the same bits";
}

TEST_P(LinearTest, RouterGradientsHaveLeavesOf32Tokens) {
  const char* parameter = "layers.1.moe.router.gate.weight";
  const Linear linear(context_, "layers.1.moe.router.gate");
  LoadWeights();
  const Matrix<float> x = Values(50, 40, 1);
  const Matrix<float> dy = Values(50, 6, 2);
  const auto gradient = [&](size_t first, size_t count) {
    Begin({count});
    return WeightGradient(linear, parameter, x.view().Rows(first, count),
                          dy.view().Rows(first, count), context_.TokenLeaves());
  };

  const auto together = gradient(0, 50);

  EXPECT_EQ(together, Sum(gradient(0, 32), gradient(32, 18)));
}

TEST_P(LinearTest, GroupsMeetTheirOwnWeights) {
  // Six experts, the third of them without rows.
  const char* parameter = "layers.1.moe.routed_experts.inner_experts.w2_EDF";
  const Linear experts(context_, "layers.1.moe.routed_experts.w2");
  LoadWeights();
  const std::vector<size_t> begins = {0, 35, 36, 36, 38, 40, 50};
  const RowGroups groups{begins, {}};
  const Matrix<float> x = Values(50, 22, 1);
  const Matrix<float> dy = Values(50, 40, 2);
  Matrix<float> y(50, 40);
  Matrix<float> dx(50, 22);
  Begin({50});

  experts.QueueForward(x.view(), groups, context_.rounding, y.view());
  experts.QueueBackward(x.view(), dy.view(), groups, dx.view());
  context_.gemms.Run();

  EXPECT_EQ(context_.gemms.executed(), 18);
  const Matrix<float> rounded =
      RoundedWeight(weights_, parameter, context_.rounding);
  const MatrixView<const float> weight = rounded.view();
  const MatrixView<const float> dweight =
      gradients_.ByName(parameter).values.cview();
  const auto sites = GemmSites(SmallConfig());
  const auto site = static_cast<size_t>(
      std::ranges::find(sites, experts.site(), &precision::Site::name) -
      sites.begin());
  const auto& fprop = context_.recipe.For(site, precision::GemmRole::kFprop);
  const auto& wgrad = context_.recipe.For(site, precision::GemmRole::kWgrad);
  const auto spec = [](const std::optional<formats::Quantization>& s) {
    return s ? &*s : nullptr;
  };
  for (size_t e = 0; e < 6; ++e) {
    const size_t rows = begins[e + 1] - begins[e];
    Matrix<float> expected(rows, 40);
    kernels::GemmScalar(
        {.a = {x.view().Rows(begins[e], rows), kernels::Contraction::kColumns,
               spec(fprop.left)},
         .b = {weight.Rows(e * 40, 40), kernels::Contraction::kColumns,
               spec(fprop.right)},
         .c = expected.view(),
         .rounding = context_.rounding});
    EXPECT_EQ(Flat(y.cview().Rows(begins[e], rows)), Flat(expected.cview()));

    // One chain over the expert's rows, whatever sequences they came from.
    Matrix<float> expected_dweight(40, 22);
    kernels::GemmScalar({.a = {dy.view().Rows(begins[e], rows),
                               kernels::Contraction::kRows, spec(wgrad.left)},
                         .b = {x.view().Rows(begins[e], rows),
                               kernels::Contraction::kRows, spec(wgrad.right)},
                         .c = expected_dweight.view()});
    EXPECT_EQ(Flat(dweight.Rows(e * 40, 40)), Flat(expected_dweight.cview()));
  }
}

/// A product by the definition.
std::vector<float> Product(const kernels::Operand& a, const kernels::Operand& b,
                           kernels::Rounding rounding) {
  Matrix<float> c(a.extent(), b.extent());
  kernels::GemmScalar({.a = a, .b = b, .c = c.view(), .rounding = rounding});
  return Flat(c.cview());
}

TEST(Linear, GivesEachOperandItsOwnFormat) {
  using kernels::Contraction;
  const auto spec = [](const char* element) {
    return formats::Quantization{.element = &formats::FormatByName(element)};
  };
  precision::Recipe recipe;
  recipe.name = "five_formats";
  recipe.fprop = {spec("e4m3"), spec("e5m2")};
  recipe.dgrad = {spec("e3m2"), spec("e2m3")};
  recipe.wgrad = {spec("e2m1"), std::nullopt};
  recipe.include = {"attention.wo"};
  Executor executor(1);
  expert_parallel::Mesh mesh(SmallConfig().num_experts, executor);
  LayerContext context(SmallConfig(), recipe, executor, mesh);
  const char* parameter = "layers.0.attention.wo.weight";
  const Linear linear(context, "layers.0.attention.wo");
  const ParameterSet weights = InitialWeights();
  context.LoadWeights(weights);
  ParameterSet gradients(SmallConfig());
  const SmallBatch batch(SmallConfig(), {45});
  context.Begin(batch.view(), nullptr, &gradients);
  const Matrix<float> x = Values(45, 36, 1);
  const Matrix<float> dy = Values(45, 40, 2);
  Matrix<float> y(45, 40);
  Matrix<float> dx(45, 36);

  linear.QueueForward(x.view(), context.SequenceLeaves(), context.rounding,
                      y.view());
  linear.QueueBackward(x.view(), dy.view(), context.SequenceLeaves(),
                       dx.view());
  context.gemms.Run();

  const Matrix<float> rounded =
      RoundedWeight(weights, parameter, kernels::Rounding::kBf16);
  const MatrixView<const float> weight = rounded.view();
  EXPECT_EQ(Flat(y.cview()),
            Product({x.view(), Contraction::kColumns, &*recipe.fprop.left},
                    {weight, Contraction::kColumns, &*recipe.fprop.right},
                    kernels::Rounding::kBf16));
  EXPECT_EQ(Flat(dx.cview()),
            Product({dy.view(), Contraction::kColumns, &*recipe.dgrad.left},
                    {weight, Contraction::kRows, &*recipe.dgrad.right},
                    kernels::Rounding::kBf16));
  EXPECT_EQ(Flat(gradients.ByName(parameter).values.cview()),
            Product({dy.view(), Contraction::kRows, &*recipe.wgrad.left},
                    {x.view(), Contraction::kRows}, kernels::Rounding::kFp32));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, LinearTest, ::testing::Values("fp32", "bf16", "mxfp8_rceil"),
    [](const ::testing::TestParamInfo<const char*>& recipe) {
      return std::string(recipe.param);
    });

}  // namespace
}  // namespace isoloss::model::linear_test
