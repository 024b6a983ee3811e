// Products that are sums over ranks, as placements tell.
#include "isoloss/operations/partial_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/operations/check.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::partial_sums_test {
namespace {

using formats::RoundToBf16;
using precision::GemmRole;
using precision::RecipeByName;
using test_support::Random;
using test_support::Zeros;
using ::testing::ElementsAre;

TEST(Mesh, HasAxesOfPositiveSize) {
  const auto mesh = MeshOf("dp_shard=2 tp=4", "f");

  ASSERT_EQ(mesh.size(), 2U);
  EXPECT_EQ(mesh[1].name, "tp");
  EXPECT_EQ(mesh[1].size, 4U);
  for (const char* bad : {"tp", "tp=", "=2", "tp=0", "tp=-2", "tp=2x",
                          "tp=99999999", "tp=1048576 dp=2",
                          "a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 "
                          "a=1 a=1 a=1 a=1 a=1"}) {
    EXPECT_THROW(MeshOf(bad, "f"), Error) << bad;
  }
}

TEST(Mesh, TellsAlongWhichAxesRanksHaveOtherTokens) {
  std::vector<OperationFile> files;
  for (const char* coordinate : {"0 0", "0 1", "1 0", "1 1"}) {
    files.push_back({.ranks = 4,
                     .data_rank = coordinate[0] - '0',
                     .data_ranks = 2,
                     .mesh = "dp=2 tp=2",
                     .coordinate = coordinate});
  }
  const auto are_data = [&](std::vector<const OperationFile*> step) {
    std::vector<bool> found;
    for (const MeshAxis& axis : MeshOf(step)) found.push_back(axis.is_data);
    return found;
  };
  EXPECT_THAT(are_data({&files[0], &files[1], &files[2], &files[3]}),
              ElementsAre(true, false));
  // One rank alone does not tell.
  EXPECT_THAT(are_data({&files[0]}), ElementsAre(true, true));
  for (const char* bad : {"0", "0 2", "0 -1", "0 1 0"}) {
    files[0].coordinate = bad;
    EXPECT_THROW(are_data({&files[0]}), Error) << bad;
  }
}

TEST(Placements, NeedAWordForEachAxis) {
  const auto mesh = MeshOf("dp=2 tp=2", "f");
  Floats tensor;
  tensor.placements = "Replicate Shard(1)";
  EXPECT_THAT(PlacementsOf(tensor, mesh), ElementsAre("Replicate", "Shard(1)"));
  tensor.placements = "Replicate";
  EXPECT_TRUE(PlacementsOf(tensor, mesh).empty());
}

TEST(Parts, FollowFromPlacements) {
  const std::vector<MeshAxis> mesh = {{"dp", 2, true}, {"tp", 4, false}};
  struct Case {
    GemmRole role;
    std::vector<std::pair<const char*, const char*>> placements;
    size_t parts;
  };
  const GemmRole fprop = GemmRole::kFprop;
  const GemmRole dgrad = GemmRole::kDgrad;
  const GemmRole wgrad = GemmRole::kWgrad;
  const Case cases[] = {
      {fprop, {}, 1},
      {fprop, {{"output", "- Partial(sum)"}}, 4},
      {fprop, {{"output", "Partial(sum)"}}, 1},
      {fprop, {{"output", "- Partial(sum) -"}}, 1},
      // A weight is gathered along an axis whose ranks have other tokens.
      {fprop, {{"weight", "Shard(0) Shard(1)"}}, 4},
      {fprop, {{"weight", "Shard(1) Shard(0)"}}, 1},
      {dgrad, {{"weight", "Shard(1) Shard(0)"}}, 4},
      {dgrad, {{"weight", "Shard(0) Shard(1)"}}, 1},
      {fprop, {{"weight", "- Shard(1)"}, {"x", "- Shard(2)"}}, 4},
      {fprop, {{"weight", "- Shard(1)"}, {"x", "- Shard(0)"}}, 1},
      {fprop, {{"weight", "Shard(1) -"}, {"x", "Shard(1) -"}}, 2},
      {dgrad, {{"weight", "Shard(0) -"}, {"grad_output", "Shard(0) -"}}, 1},
      {wgrad, {{"x", "Shard(0) -"}, {"grad_output", "Shard(0) -"}}, 2},
      {wgrad, {{"x", "Shard(0) -"}, {"grad_output", "Replicate -"}}, 1},
      {wgrad, {{"grad_weight", "Partial(sum) Partial(sum)"}}, 8}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    Operation linear = {.type = "linear", .module = "w"};
    linear.floats["x"] = linear.floats["grad_input"] = Zeros({2, 4});
    linear.floats["weight"] = linear.floats["grad_weight"] = Zeros({3, 4});
    linear.floats["output"] = linear.floats["grad_output"] = Zeros({2, 3});
    for (const auto& [name, words] : cases[i].placements) {
      linear.floats[name].placements = words;
    }
    EXPECT_EQ(PartsOf(linear, cases[i].role, mesh, 8), cases[i].parts) << i;
    EXPECT_LE(PartsOf(linear, cases[i].role, mesh, 3), 3U) << i;
  }
}

constexpr size_t kRows = 16;
constexpr size_t kColumns = 8;
constexpr size_t kSteps = 128;

/// Parts of a row-parallel layer's output, one for each rank, each rounded.
class RowParallel : public ::testing::TestWithParam<size_t> {
 protected:
  explicit RowParallel(size_t parts = GetParam()) : count_(parts) {
    linear_.floats["x"] = Random({kRows, kSteps}, "x");
    linear_.floats["weight"] = Random({kColumns, kSteps}, "weight");
    linear_.floats["weight"].placements = "Shard(1)";
    linear_.floats["output"] = Zeros({kRows, kColumns});
    MakeParts(Whole("x"), Whole("weight"));
  }

  Matrix<float> Whole(const char* name) const {
    return test_support::OperandValues(linear_.Find(name)->Rows(), false, {});
  }

  void MakeParts(const Matrix<float>& x, const Matrix<float>& weight,
                 bool are_rounded = true) {
    parts_.clear();
    const size_t width = kSteps / count_;
    for (size_t r = 0; r < count_; ++r) {
      Matrix<float>& part = parts_.emplace_back(kRows, kColumns);
      const auto of = [&](const Matrix<float>& operand) {
        return test_support::OperandValues(
            operand.view().Cols(r * width, width), false, {});
      };
      test_support::Multiply(of(x), of(weight), are_rounded, part.data());
    }
  }

  /// Returns all parts, the last one first.
  std::vector<size_t> All() const {
    std::vector<size_t> all(count_);
    std::iota(all.rbegin(), all.rend(), size_t{0});
    return all;
  }

  /// Adds parts in this order, in BF16 or in FP32.
  void AddUp(const std::vector<size_t>& parts, bool in_bf16) {
    std::vector<float>& output = linear_.floats["output"].values;
    for (size_t i = 0; i < output.size(); ++i) {
      output[i] = 0.0f;
      for (const size_t r : parts) {
        output[i] += parts_[r].data()[i];
        if (in_bf16) output[i] = RoundToBf16(output[i]);
      }
      output[i] = RoundToBf16(output[i]);
    }
  }

  Finding Fprop(const std::string& recipe = "bf16") const {
    Executor executor(1);
    std::vector<OperationFile> files(1);
    files[0].ranks = static_cast<int64_t>(count_);
    files[0].mesh = "tp=" + std::to_string(count_);
    files[0].coordinate = "0";
    files[0].operations = {linear_};
    const auto findings =
        CheckOperations(files, RecipeByName(recipe), {}, executor);
    return Part(findings, "fprop");
  }

  size_t count_;
  Operation linear_ = {.type = "linear", .module = "layers.0.wo"};
  std::vector<Matrix<float>> parts_;
};

TEST_P(RowParallel, IsRightAsASumOfRoundedParts) {
  for (const bool in_bf16 : {true, false}) {
    AddUp(All(), in_bf16);

    const Finding finding = Fprop();

    EXPECT_TRUE(finding.is_right()) << in_bf16;
    EXPECT_TRUE(finding.has_unknown_order);
    EXPECT_EQ(finding.rounded_parts, count_);
  }
}

TEST_P(RowParallel, IsWrongIfNoPlacementTells) {
  AddUp(All(), /*in_bf16=*/true);
  linear_.floats["weight"].placements.clear();

  const Finding finding = Fprop();

  EXPECT_FALSE(finding.is_right());
  EXPECT_EQ(finding.rounded_parts, 0U);
}

TEST_P(RowParallel, IsWrongIfAPartIsLostOrCameTwice) {
  std::vector<size_t> lost = All();
  lost.pop_back();
  std::vector<size_t> twice = All();
  twice.push_back(0);
  for (const bool in_bf16 : {true, false}) {
    for (const auto& [parts, name] :
         {std::pair(lost,
                    count_ == 2 ? "all_reduce_missing.1" : "part_missing.0"),
          std::pair(twice, "part_twice.0")}) {
      AddUp(parts, in_bf16);
      const Finding finding = Fprop();
      EXPECT_FALSE(finding.is_right()) << name << in_bf16;
      // More parts than eight are not tried.
      if (count_ > 8) continue;
      ASSERT_TRUE(finding.explanation) << name << in_bf16;
      EXPECT_EQ(finding.explanation->name, name) << in_bf16;
      EXPECT_EQ(finding.explanation->other, 0) << in_bf16;
    }
  }
}

/// No element alone is beyond what 16 roundings may change.
TEST_P(RowParallel, IsWrongIfAllElementsAreTooLarge) {
  AddUp(All(), /*in_bf16=*/true);
  for (float& value : linear_.floats["output"].values) {
    value = RoundToBf16(1.02f * value);
  }
  EXPECT_FALSE(Fprop().is_right());
}

INSTANTIATE_TEST_SUITE_P(OfRanks, RowParallel, ::testing::Values(2, 4, 16));

class RowParallelOfTwo : public RowParallel {
 protected:
  RowParallelOfTwo() : RowParallel(2) {}
};

TEST_F(RowParallelOfTwo, MayAddABiasOnce) {
  const Floats bias = Random({kColumns}, "bias", "bfloat16", 4.0);
  linear_.floats["bias"] = bias;
  MakeParts(Whole("x"), Whole("weight"), /*are_rounded=*/false);
  const auto make = [&](float in_first, float in_each, float after) {
    for (size_t i = 0; i < kRows * kColumns; ++i) {
      const float b = bias.values[i % kColumns];
      const auto part = [&](size_t r, float times) {
        return RoundToBf16(parts_[r].data()[i] + times * b);
      };
      const float sum =
          RoundToBf16(part(0, in_first + in_each) + part(1, in_each));
      linear_.floats["output"].values[i] = RoundToBf16(sum + after * b);
    }
    return Fprop();
  };

  EXPECT_TRUE(make(0, 0, 1).is_right());
  EXPECT_TRUE(make(1, 0, 0).is_right());
  EXPECT_TRUE(make(0, 0.5f, 0).is_right());
  EXPECT_FALSE(make(0, 1, 0).is_right());
  EXPECT_FALSE(make(0, 0, 2).is_right());
  EXPECT_FALSE(make(0, 0, 0).is_right());
}

TEST_F(RowParallelOfTwo, SharesScalesOfTheWholeTensor) {
  const auto& recipe = RecipeByName("mxfp8_rceil");
  Matrix<float> x = test_support::OperandValues(linear_.Find("x")->Rows(),
                                                false, recipe.fprop.left);
  const auto weight = test_support::OperandValues(
      linear_.Find("weight")->Rows(), false, recipe.fprop.right);
  linear_.module = "layers.0.attention.wo";
  MakeParts(x, weight);
  AddUp(All(), /*in_bf16=*/true);
  EXPECT_EQ(Fprop("mxfp8_rceil").rounded_parts, 2U);

  // One row has the scale of another row.
  for (size_t k = 0; k < kSteps; ++k) x(3, k) *= 2.0f;
  MakeParts(x, weight);
  AddUp(All(), /*in_bf16=*/true);
  EXPECT_FALSE(Fprop("mxfp8_rceil").is_right());
}

}  // namespace
}  // namespace isoloss::operations::partial_sums_test
