#include "isoloss/compare/first_divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace isoloss::compare {
namespace {

runlog::StepColumns Columns() {
  runlog::StepColumns columns;
  columns.step = {1, 2, 3, 4};
  columns.loss_nats = {5.5, 5.0, 4.5, 4.0};
  columns.grad_norm = {1.5, 1.25, 1.0, 0.75};
  return columns;
}

TEST(FirstDivergence, IsEmptyForEqualBits) {
  EXPECT_FALSE(FirstDivergence(Columns(), Columns()).has_value());
}

TEST(FirstDivergence, SeesTheLastBit) {
  auto candidate = Columns();
  candidate.loss_nats[2] = std::nextafter(4.5, 5.0);

  const auto divergence = FirstDivergence(Columns(), candidate);

  ASSERT_TRUE(divergence.has_value());
  EXPECT_EQ(divergence->step, 3);
  EXPECT_EQ(divergence->quantity, "loss_nats");
  EXPECT_EQ(divergence->baseline, 4.5);
  EXPECT_EQ(divergence->candidate, std::nextafter(4.5, 5.0));
}

TEST(FirstDivergence, NamesTheGradientNormWhenItDiffersFirst) {
  auto candidate = Columns();
  candidate.grad_norm[0] = 1.75;
  candidate.loss_nats[1] = 5.25;

  const auto divergence = FirstDivergence(Columns(), candidate);

  EXPECT_EQ(divergence->step, 1);
  EXPECT_EQ(divergence->quantity, "grad_norm");
}

TEST(FirstDivergence, ComparesBitsOfZerosAndNans) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double zeros[] = {0.0};
  const double minus_zeros[] = {-0.0};
  const double nans[] = {nan};

  EXPECT_EQ(FirstDifferentBits(zeros, minus_zeros), 0);
  EXPECT_FALSE(FirstDifferentBits(nans, nans).has_value());
  EXPECT_EQ(FirstDifferentBits(nans, zeros), 0);
}

}  // namespace
}  // namespace isoloss::compare
