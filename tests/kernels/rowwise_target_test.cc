// Every row-wise operation equals its scalar definition bit for bit, on every
// target of this processor, with any number of threads, on awkward extents and
// with every kind of value.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/targets.h"
#include "support/rowwise_operations.h"

namespace isoloss::kernels::rowwise_target_test {
namespace {

using rowwise_operations::Operation;

class RowwiseTargetTest
    : public testing::TestWithParam<std::tuple<Operation, std::string>> {
 protected:
  RowwiseTargetTest() { ForceTarget(std::get<1>(GetParam())); }
  ~RowwiseTargetTest() override { ForceTarget(""); }
};

TEST_P(RowwiseTargetTest, EqualsTheScalarDefinitionBitForBit) {
  Executor executors[] = {Executor(1), Executor(2), Executor(3)};
  for (const auto& [rows, cols] : rowwise_operations::Extents()) {
    for (Executor& executor : executors) {
      rowwise_operations::ExpectDefinedBits(std::get<0>(GetParam()), rows, cols,
                                            executor);
      if (HasFatalFailure()) return;
    }
  }
}

class RowDotTargetTest : public testing::TestWithParam<std::string> {
 protected:
  RowDotTargetTest() { ForceTarget(GetParam()); }
  ~RowDotTargetTest() override { ForceTarget(""); }
};

TEST_P(RowDotTargetTest, PaddingTurnsNegativeZeroLanesPositive) {
  // Every product underflows to -0. Whole groups leave -0 in all lanes; the
  // zeros that fill up a short group make +0 of it.
  for (size_t count = 1; count <= 64; ++count) {
    const std::vector<float> a(count, 0x1p-100f);
    const std::vector<float> b(count, -0x1p-100f);

    const float sum = RowDot(a, b);

    EXPECT_EQ(sum, 0.0f) << count;
    EXPECT_EQ(std::signbit(sum), count % 16 == 0) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowDotTargetTest,
                         testing::ValuesIn(SupportedTargets()),
                         [](const auto& target) { return target.param; });

INSTANTIATE_TEST_SUITE_P(
    Rowwise, RowwiseTargetTest,
    testing::Combine(testing::ValuesIn(rowwise_operations::All()),
                     testing::ValuesIn(SupportedTargets())),
    [](const auto& pair) {
      return std::get<0>(pair.param).name + ("_" + std::get<1>(pair.param));
    });

}  // namespace
}  // namespace isoloss::kernels::rowwise_target_test
