// Products that are sums over ranks.
#include "isoloss/layouts/partial_sums.h"

#include <gtest/gtest.h>

#include "isoloss/formats/bf16.h"
#include "isoloss/operations/partial_sums.h"
#include "operations/samples.h"

namespace isoloss::layouts::partial_sums_test {
namespace {

using operations::Product;
using precision::GemmRole;
using test_support::Random;

constexpr size_t kRows = 16;
constexpr size_t kColumns = 8;
constexpr size_t kSteps = 64;

/// A row-parallel layer of two ranks.
class PartialSums : public ::testing::Test {
 protected:
  PartialSums() {
    const size_t half = kSteps / 2;
    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kColumns; ++j) {
        float parts[2];
        for (size_t r = 0; r < 2; ++r) {
          float sum = 0.0f;
          for (size_t k = r * half; k < (r + 1) * half; ++k) {
            sum += x_.Rows()(i, k) * weight_.Rows()(j, k);
          }
          parts[r] = formats::RoundToBf16(sum);
        }
        whole_(i, j) = formats::RoundToBf16(parts[0] + parts[1]);
        first_(i, j) = parts[0];
      }
    }
  }

  Product ProductOf(const Matrix<float>& output) const {
    Product product = {.role = GemmRole::kFprop, .output = output.view()};
    auto& group = product.groups.emplace_back();
    group.left.values = x_.Rows();
    group.right.values = weight_.Rows();
    return product;
  }

  const operations::Floats x_ = Random({kRows, kSteps}, "x");
  const operations::Floats weight_ = Random({kColumns, kSteps}, "weight");
  Matrix<float> whole_{kRows, kColumns};
  Matrix<float> first_{kRows, kColumns};
};

TEST_F(PartialSums, ExplainRoundedPartsThatNoFp32SumDoes) {
  EXPECT_GT(Compare(ProductOf(whole_))->other(), 0);
  EXPECT_EQ(CompareParts(ProductOf(whole_), 2).other(), 0);
}

TEST_F(PartialSums, DoNotExplainOnePartAlone) {
  const Product product = ProductOf(first_);
  const Matrix<float> exact = ExactProduct(product);
  const std::vector<RankCount> counts = {{2, "tp"}};

  EXPECT_GT(CompareParts(product, 2).other(), 0);
  EXPECT_EQ(NameMistake({.expected = exact.view(),
                         .found = product.output,
                         .bound = 0x1p-6,
                         .counts = counts,
                         .candidates = CandidatesOf(product, counts)})
                .name,
            "all_reduce_missing");
}

TEST_F(PartialSums, AreNamedIfEachShardHasScalesOfItsOwn) {
  const auto& recipe = precision::RecipeByName("te_fp8_current");
  Product product = ProductOf(whole_);
  auto& group = product.groups[0];
  group.left.quantization = recipe.fprop.left;
  group.right.quantization = recipe.fprop.right;
  const size_t half = kSteps / 2;
  for (size_t r = 0; r < 2; ++r) {
    Matrix<float> part(kRows, kColumns);
    test_support::Multiply(
        test_support::OperandValues(x_.Rows().Cols(r * half, half), false,
                                    group.left.quantization),
        test_support::OperandValues(weight_.Rows().Cols(r * half, half), false,
                                    group.right.quantization),
        /*bf16=*/true, part.data());
    for (size_t i = 0; i < part.size(); ++i) {
      whole_.data()[i] = formats::RoundToBf16(
          (r == 0 ? 0.0f : whole_.data()[i]) + part.data()[i]);
    }
  }
  const Matrix<float> exact = ExactProduct(product);
  const std::vector<RankCount> counts = {{2, "tp"}};

  EXPECT_GT(CompareParts(product, 2).other(), 0);
  EXPECT_EQ(NameMistake({.expected = exact.view(),
                         .found = product.output,
                         .bound = 0x1p-6,
                         .counts = counts,
                         .candidates = CandidatesOf(product, counts)})
                .name,
            "scale_per_shard");
}

TEST_F(PartialSums, AreNotAssumedWherePlacementsTell) {
  const Recording recording = {.name = "b",
                               .files = {{.ranks = 4, .data_ranks = 2}}};
  operations::Operation linear;
  linear.floats["weight"] = weight_;
  EXPECT_EQ(UndeclaredParts(linear, recording), 2U);

  linear.floats["weight"].placements = "Shard(0) Shard(1)";
  EXPECT_EQ(UndeclaredParts(linear, recording), 1U);
}

}  // namespace
}  // namespace isoloss::layouts::partial_sums_test
