#include "isoloss/expert_parallel/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace isoloss::expert_parallel {
namespace {

using kernels::Rounding;
using ::testing::ElementsAre;

std::vector<float> Flat(const Matrix<float>& m) {
  return {m.data(), m.data() + m.size()};
}

/// Two tokens, three experts; token 0 takes experts 2 and 0, token 1 takes 0
/// and 1. Rows: (e0: t0, t1), (e1: t1), (e2: t0).
class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest() { plan_.Build({ids_.data(), 2, 2}, 3); }

  const std::vector<int32_t> ids_ = {2, 0, 0, 1};
  RoutingPlan plan_;
  ThreadTeam team_{2};
};

TEST_F(ExchangeTest, DispatchCopiesEachTokenToItsExperts) {
  const std::vector<float> source = {1, 2, 3, 4};
  Matrix<float> rows(4, 2);

  Dispatch(plan_, {source.data(), 2, 2}, rows.view(), team_);

  EXPECT_THAT(Flat(rows), ElementsAre(1, 2, 3, 4, 3, 4, 1, 2));
}

TEST_F(ExchangeTest, CombineWeighsAndAddsInSlotOrder) {
  // Token 0's terms are x * x, x = 1 + 2^-23, in slot 0 (row 3) and -(1 +
  // 2^-22) in slot 1 (row 0). The first product is rounded to 1 + 2^-22, which
  // the second cancels; in the other order the FMA would keep 2^-46.
  const float x = 1 + 0x1p-23f;
  const std::vector<float> rows = {-(1 + 0x1p-22f), 5, 7, x};
  const std::vector<float> weights = {x, 1, 2, 3};
  Matrix<float> out(2, 1);

  Combine(plan_, {rows.data(), 4, 1}, {weights.data(), 2, 2}, Rounding::kFp32,
          out.view(), team_);

  EXPECT_THAT(Flat(out), ElementsAre(0, 2 * 5 + 3 * 7));
}

TEST_F(ExchangeTest, CombineRoundsOnceToBf16) {
  // 1 + 2^-8 + 2^-9 lies above the middle of 1 and 1 + 2^-7. Rounding the
  // first partial sum (1 + 2^-8, a tie) would go down to 1, and stay there.
  const std::vector<float> rows = {0x1p-9f, 0, 0, 1 + 0x1p-8f};
  const std::vector<float> weights = {1, 1, 1, 1};
  Matrix<float> out(2, 1);

  Combine(plan_, {rows.data(), 4, 1}, {weights.data(), 2, 2}, Rounding::kBf16,
          out.view(), team_);

  EXPECT_EQ(out(0, 0), 1 + 0x1p-7f);
}

TEST_F(ExchangeTest, CombineBackwardSendsWeightedGradientsAndDotProducts) {
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> weights = {10, 20, 30, 40};
  const std::vector<float> dout = {1, -1, 2, 1};
  Matrix<float> drows(4, 2);
  Matrix<float> dweights(2, 2);

  CombineBackward(plan_, {rows.data(), 4, 2}, {weights.data(), 2, 2},
                  {dout.data(), 2, 2}, Rounding::kFp32, drows.view(),
                  dweights.view(), team_);

  EXPECT_THAT(Flat(drows), ElementsAre(20, -20, 60, 30, 80, 40, 10, -10));
  EXPECT_THAT(Flat(dweights), ElementsAre(7 - 8, 1 - 2, 6 + 4, 10 + 6));
}

TEST_F(ExchangeTest, CombineBackwardRoundsGradientsOnly) {
  // x * x = 1 + 2^-6 + 2^-14 is rounded where it travels as a gradient, and
  // kept where it is a weight's gradient.
  const float x = 1 + 0x1p-7f;
  const std::vector<float> all_x = {x, x, x, x};
  Matrix<float> drows(4, 1);
  Matrix<float> dweights(2, 2);

  CombineBackward(plan_, {all_x.data(), 4, 1}, {all_x.data(), 2, 2},
                  {all_x.data(), 2, 1}, Rounding::kBf16, drows.view(),
                  dweights.view(), team_);

  EXPECT_THAT(Flat(drows), ::testing::Each(1 + 0x1p-6f));
  EXPECT_THAT(Flat(dweights), ::testing::Each(x * x));
}

TEST_F(ExchangeTest, DispatchBackwardAddsSlotsAndAddendWithOneRounding) {
  const std::vector<float> drows = {0x1p-9f, 3, 4, 1};
  const std::vector<float> addend = {0x1p-8f, 5};
  Matrix<float> dsource(2, 1);

  DispatchBackward(plan_, {drows.data(), 4, 1}, {addend.data(), 2, 1},
                   Rounding::kBf16, dsource.view(), team_);

  // 1 + 2^-9 + 2^-8 is above the middle; rounding in between would give 1.
  EXPECT_THAT(Flat(dsource), ElementsAre(1 + 0x1p-7f, 12));
}

}  // namespace
}  // namespace isoloss::expert_parallel
