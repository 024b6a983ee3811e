#include "isoloss/expert_parallel/local_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace isoloss::expert_parallel::local_exchange_test {
namespace {

using kernels::Rounding;
using ::testing::Each;
using ::testing::ElementsAre;

std::vector<float> Flat(MatrixView<const float> m) {
  return {m.data(), m.data() + m.rows() * m.cols()};
}

/// Two tokens, three experts; token 0 takes experts 2 and 0, token 1 takes 0
/// and 1. Rows: (e0: t0, t1), (e1: t1), (e2: t0).
class LocalExchangeTest : public ::testing::Test {
 protected:
  /// An exchange that has dispatched `source` [2, width].
  LocalExchange Dispatched(std::vector<float> source, Rounding rounding) {
    source_ = std::move(source);
    LocalExchange exchange(3, rounding, executor_);
    exchange.Dispatch({source_.data(), 2, source_.size() / 2},
                      {ids_.data(), 2, 2}, {weights_.data(), 2, 2});
    return exchange;
  }

  const std::vector<int32_t> ids_ = {2, 0, 0, 1};
  std::vector<float> weights_ = {1, 1, 1, 1};
  std::vector<float> source_;
  Executor executor_{2};
};

TEST_F(LocalExchangeTest, DispatchCopiesEachTokenToItsExperts) {
  const LocalExchange exchange = Dispatched({1, 2, 3, 4}, Rounding::kFp32);

  EXPECT_THAT(Flat(exchange.expert_in()), ElementsAre(1, 2, 3, 4, 3, 4, 1, 2));
  EXPECT_THAT(exchange.expert_begins(), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(exchange.tokens_per_expert(), ElementsAre(2, 1, 1));
  EXPECT_EQ(exchange.counts().assignments, 4);
  EXPECT_EQ(exchange.counts().max_rows_per_expert, 2);
  EXPECT_EQ(exchange.counts().empty_experts, 0);
}

TEST_F(LocalExchangeTest, CombineWeighsAndAddsInSlotOrder) {
  // Token 0's terms are x * x, x = 1 + 2^-23, in slot 0 (row 3) and -(1 +
  // 2^-22) in slot 1 (row 0). The first product is rounded to 1 + 2^-22, which
  // the second cancels; in the other order the FMA would keep 2^-46.
  const float x = 1 + 0x1p-23f;
  weights_ = {x, 1, 2, 3};
  LocalExchange exchange = Dispatched({0, 0}, Rounding::kFp32);
  const std::vector<float> rows = {-(1 + 0x1p-22f), 5, 7, x};
  Matrix<float> out(2, 1);

  exchange.Combine({rows.data(), 4, 1}, out.view());

  EXPECT_THAT(Flat(out.view()), ElementsAre(0, 2 * 5 + 3 * 7));
}

TEST_F(LocalExchangeTest, CombineRoundsOnceToBf16) {
  // 1 + 2^-8 + 2^-9 lies above the middle of 1 and 1 + 2^-7. Rounding the
  // first partial sum (1 + 2^-8, a tie) would go down to 1, and stay there.
  LocalExchange exchange = Dispatched({0, 0}, Rounding::kBf16);
  const std::vector<float> rows = {0x1p-9f, 0, 0, 1 + 0x1p-8f};
  Matrix<float> out(2, 1);

  exchange.Combine({rows.data(), 4, 1}, out.view());

  EXPECT_EQ(out(0, 0), 1 + 0x1p-7f);
}

TEST_F(LocalExchangeTest, CombineBackwardSendsWeightedGradientsAndDotProducts) {
  weights_ = {10, 20, 30, 40};
  LocalExchange exchange = Dispatched({0, 0, 0, 0}, Rounding::kFp32);
  std::vector<float> rows = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> dout = {1, -1, 2, 1};

  exchange.CombineBackward({dout.data(), 2, 2}, {rows.data(), 4, 2});
  const auto dweights = exchange.ReturnGradients({rows.data(), 4, 2});

  EXPECT_THAT(rows, ElementsAre(20, -20, 60, 30, 80, 40, 10, -10));
  EXPECT_THAT(Flat(dweights), ElementsAre(7 - 8, 1 - 2, 6 + 4, 10 + 6));
}

TEST_F(LocalExchangeTest, CombineBackwardRoundsGradientsOnly) {
  // x * x = 1 + 2^-6 + 2^-14 is rounded where it travels as a gradient, and
  // kept where it is a weight's gradient.
  const float x = 1 + 0x1p-7f;
  weights_ = {x, x, x, x};
  LocalExchange exchange = Dispatched({0, 0}, Rounding::kBf16);
  std::vector<float> rows = {x, x, x, x};

  exchange.CombineBackward({weights_.data(), 2, 1}, {rows.data(), 4, 1});
  const auto dweights = exchange.ReturnGradients({rows.data(), 4, 1});

  EXPECT_THAT(rows, Each(1 + 0x1p-6f));
  EXPECT_THAT(Flat(dweights), Each(x * x));
}

TEST_F(LocalExchangeTest, DispatchBackwardAddsSlotsAndAddendWithOneRounding) {
  LocalExchange exchange = Dispatched({0, 0}, Rounding::kBf16);
  const std::vector<float> drows = {0x1p-9f, 3, 4, 1};
  const std::vector<float> addend = {0x1p-8f, 5};
  Matrix<float> dsource(2, 1);

  exchange.ReturnGradients({drows.data(), 4, 1});
  exchange.DispatchBackward({addend.data(), 2, 1}, dsource.view());

  // 1 + 2^-9 + 2^-8 is above the middle; rounding in between would give 1.
  EXPECT_THAT(Flat(dsource.view()), ElementsAre(1 + 0x1p-7f, 12));
}

}  // namespace
}  // namespace isoloss::expert_parallel::local_exchange_test
