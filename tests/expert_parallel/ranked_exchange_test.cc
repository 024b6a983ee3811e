// The exchange between ranks against the scalar reference, to the bit.
#include "isoloss/expert_parallel/ranked_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "expert_parallel/exchange_cases.h"
#include "expert_parallel/reference_exchange.h"
#include "isoloss/base/rng.h"

namespace isoloss::expert_parallel::ranked_exchange_test {
namespace {

using kernels::Rounding;
using transport::OpKind;

/// What experts may leave in padding rows: nobody may read it.
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

/// Payload bytes that the routing of the last Dispatch makes of an operation,
/// [V, V], from row to column: what a transport must count.
Matrix<int64_t> PredictedBytes(const Case& c, const RouteBook& book,
                               OpKind op) {
  const bool to_experts =
      op == OpKind::kDispatch || op == OpKind::kDispatchGradient;
  const std::string payload = op == OpKind::kDispatch ? c.options.payload
                              : to_experts ? c.options.gradient_payload
                                           : "unquantized";
  const size_t row_bytes = PayloadByName(payload, c.rounding).row_bytes(kWidth);
  const size_t tag_bytes = op == OpKind::kDispatch          ? sizeof(Assignment)
                           : op == OpKind::kCombineGradient ? sizeof(float)
                                                            : 0;
  Matrix<int64_t> bytes(c.ranks, c.ranks);
  for (size_t hop = 0; hop < book.hops(); ++hop) {
    for (size_t from = 0; from < c.ranks; ++from) {
      for (size_t to = 0; to < c.ranks; ++to) {
        const RouteBook::Extent extent = book.ExtentOf(hop, from, to);
        (to_experts ? bytes(from, to) : bytes(to, from)) +=
            static_cast<int64_t>(extent.rows * row_bytes +
                                 extent.tags * tag_bytes);
      }
    }
  }
  return bytes;
}

class RankedExchangeTest : public ::testing::TestWithParam<Case> {};

TEST_P(RankedExchangeTest, EqualsTheReference) {
  const Case& c = GetParam();
  Harness h(c);
  const auto expert_out = Values(c.tokens * c.slots, kWidth, 3, c.rounding);
  const auto dout = Values(c.tokens, kWidth, 4, c.rounding);
  const auto dexpert_in = Values(c.tokens * c.slots, kWidth, 5, c.rounding);
  const auto addend = Values(c.tokens, kWidth, 6, c.rounding);

  for (int step = 0; step < 2; ++step) {  // memory is reused
    h.Dispatch();
    ASSERT_EQ(h.exchange.expert_in().rows(), h.rows);
    EXPECT_TRUE(
        SameBits(h.exchange.expert_in(),
                 h.InLists(testing::ReferenceDispatch(h.x.view(), h.ids.view(),
                                                      c.options, c.rounding)
                               .view())
                     .view()));

    Matrix<float> lists = h.InLists(expert_out.view(), kPoison);
    Matrix<float> out(c.tokens, kWidth);
    h.exchange.Combine(lists.view(), out.view());
    EXPECT_TRUE(SameBits(
        out.view(), testing::ReferenceCombine(expert_out.view(), h.ids.view(),
                                              h.weights.view(), h.mesh,
                                              c.options, c.rounding)
                        .view()));

    h.exchange.CombineBackward(dout.view(), lists.view());
    const auto expected = testing::ReferenceCombineBackward(
        expert_out.view(), h.ids.view(), h.weights.view(), dout.view(), h.mesh,
        c.options, c.rounding);
    EXPECT_TRUE(
        SameBits(lists.view(), h.InLists(expected.drows.view()).view()));

    const bool before_fc2 = c.options.weight_site == WeightSite::kBeforeFc2;
    const Matrix<float> by_experts =
        Values(c.tokens * c.slots, 1, 8, Rounding::kFp32);
    if (before_fc2) {
      const Matrix<float> in_lists = h.InLists(by_experts.view(), kPoison);
      std::copy_n(in_lists.data(), h.rows,
                  h.exchange.row_weight_gradients().begin());
      const Matrix<float> weights =
          h.InLists({h.weights.data(), c.tokens * c.slots, 1});
      EXPECT_TRUE(SameBits({h.exchange.row_weights().data(), h.rows, 1},
                           weights.view()));
    }
    const auto dweights = h.exchange.ReturnGradients(
        h.InLists(dexpert_in.view(), kPoison).view());
    EXPECT_TRUE(SameBits(dweights,
                         before_fc2 ? MatrixView<const float>(by_experts.data(),
                                                              c.tokens, c.slots)
                                    : expected.dweights.view()));

    Matrix<float> dsource(c.tokens, kWidth);
    h.exchange.DispatchBackward(addend.view(), dsource.view());
    EXPECT_TRUE(
        SameBits(dsource.view(), testing::ReferenceDispatchBackward(
                                     dexpert_in.view(), h.ids.view(), h.mesh,
                                     c.options, addend.view(), c.rounding)
                                     .view()));
    EXPECT_TRUE(h.Conserved());
  }
}

TEST_P(RankedExchangeTest, CountsTheBytesThatTheRoutingPredicts) {
  const Case& c = GetParam();
  Harness h(c);
  Matrix<float> lists(h.rows, kWidth);
  Matrix<float> out(c.tokens, kWidth);
  const auto matches = [&](OpKind op, int64_t count_exchange) {
    const auto predicted = PredictedBytes(c, h.exchange.book(), op);
    const transport::Counters counted = h.transport->TakeCounters();
    for (size_t from = 0; from < c.ranks; ++from) {
      for (size_t to = 0; to < c.ranks; ++to) {
        if (counted.bytes(from, to) != predicted(from, to) + count_exchange) {
          return false;
        }
      }
    }
    return true;
  };

  h.Dispatch();
  const transport::Counters first = h.transport->TakeCounters();
  // Every rank hands its counts to every rank; what else there is belongs to
  // the dispatch.
  const auto predicted =
      PredictedBytes(c, h.exchange.book(), OpKind::kDispatch);
  const int64_t counts = first.bytes(0, 0) - predicted(0, 0);
  EXPECT_GE(counts, 0);
  for (size_t i = 0; i < predicted.size(); ++i) {
    EXPECT_EQ(first.bytes.data()[i] - predicted.data()[i], counts);
  }
  h.exchange.Combine(lists.view(), out.view());
  EXPECT_TRUE(matches(OpKind::kCombine, 0));
  h.exchange.CombineBackward(out.view(), lists.view());
  EXPECT_TRUE(matches(OpKind::kDispatchGradient, 0));
  h.exchange.ReturnGradients(lists.view());
  EXPECT_TRUE(matches(OpKind::kCombineGradient, 0));
}

TEST_P(RankedExchangeTest, IsTheAdjointOfItselfInExactIntegers) {
  // Small integers: every sum and product is exact, so no order or rounding can
  // hide a row that went astray. Payloads would quantise.
  Case c = GetParam();
  c.options.payload = c.options.gradient_payload = "unquantized";
  c.rounding = Rounding::kFp32;
  Harness h(c);
  const auto integers = [](size_t rows, size_t cols, uint64_t stream) {
    const CounterRng rng(3, stream);
    Matrix<float> m(rows, cols);
    for (size_t i = 0; i < m.size(); ++i) {
      m.data()[i] = static_cast<float>(rng.Below(i, 17)) - 8;
    }
    return m;
  };
  const auto dot = [](MatrixView<const float> a, MatrixView<const float> b) {
    double sum = 0;
    for (size_t r = 0; r < a.rows(); ++r) {
      for (size_t j = 0; j < a.cols(); ++j) {
        sum += static_cast<double>(a(r, j)) * static_cast<double>(b(r, j));
      }
    }
    return sum;
  };
  h.x = integers(c.tokens, kWidth, 1);
  h.weights = integers(c.tokens, c.slots, 2);
  const Matrix<float> y = integers(c.tokens * c.slots, kWidth, 3);
  const Matrix<float> dout = integers(c.tokens, kWidth, 4);
  const Matrix<float> zero(c.tokens, kWidth);
  Matrix<float> lists = h.InLists(y.view());
  Matrix<float> out(c.tokens, kWidth);
  Matrix<float> dx(c.tokens, kWidth);

  h.Dispatch();
  // <Dispatch(x), y> = <x, DispatchBackward(y)>
  const double forward = dot(h.exchange.expert_in(), lists.view());
  h.exchange.Combine(lists.view(), out.view());
  const Matrix<float> kept = h.InLists(y.view());
  h.exchange.CombineBackward(dout.view(), lists.view());
  // <Combine(y), d> = <y, CombineBackward(d)>
  EXPECT_EQ(dot(out.view(), dout.view()), dot(kept.view(), lists.view()));
  const Matrix<float> dweights = [&] {
    Matrix<float> copy;
    const auto view = h.exchange.ReturnGradients(kept.view());
    copy.Resize(view.rows(), view.cols());
    std::copy_n(view.data(), copy.size(), copy.data());
    return copy;
  }();
  h.exchange.DispatchBackward(zero.view(), dx.view());
  EXPECT_EQ(forward, dot(h.x.view(), dx.view()));
  // Combine is linear in the weights: <Combine(y), d> = <w, dw>.
  if (c.options.weight_site != WeightSite::kBeforeFc2) {
    EXPECT_EQ(dot(out.view(), dout.view()),
              dot(h.weights.view(), dweights.view()));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RankedExchangeTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.name; });

TEST(RankedExchange, RankAndNodeEqualFlatWithOneSlot) {
  // One expert a token: nothing is added on the way, so nothing is rounded
  // twice.
  std::vector<Matrix<float>> outs;
  for (const Algorithm algorithm :
       {Algorithm::kFlat, Algorithm::kRank, Algorithm::kNode}) {
    Harness h({.name = "", .options = With(algorithm), .ranks = 8, .slots = 1});
    Matrix<float> lists =
        h.InLists(Values(h.c.tokens, kWidth, 3, Rounding::kBf16).view());
    h.Dispatch();
    outs.emplace_back(h.c.tokens, kWidth);
    h.exchange.Combine(lists.view(), outs.back().view());
  }

  EXPECT_TRUE(SameBits(outs[1].view(), outs[0].view()));
  EXPECT_TRUE(SameBits(outs[2].view(), outs[0].view()));
}

TEST(RankedExchange, CountsRowsAndLoad) {
  ExchangeOptions options = With(Algorithm::kNode);
  options.padding = 8;
  Harness h({.name = "",
             .options = options,
             .ranks = 4,
             .ranks_per_node = 2,
             .experts = 4,
             .slots = 2,
             .tokens = 8});
  // Experts 0 | 1 | 2 | 3 on ranks 0 | 1 | 2 | 3, of nodes 0 0 1 1: half of the
  // tokens stay on one node, half need both.
  for (size_t t = 0; t < 8; ++t) {
    h.ids(t, 0) = 0;
    h.ids(t, 1) = t < 4 ? 1 : 2;
  }

  h.Dispatch();

  const DispatchCounts& counts = h.exchange.counts();
  EXPECT_EQ(counts.assignments, 16);
  EXPECT_EQ(counts.rank_rows, 16);
  EXPECT_EQ(counts.node_rows, 4 + 2 * 4);
  EXPECT_EQ(counts.dispatch_rows, counts.node_rows);
  EXPECT_EQ(counts.max_rows_per_rank, 8);
  EXPECT_EQ(counts.max_rows_per_expert, 8);
  EXPECT_EQ(counts.empty_experts, 1);
  EXPECT_EQ(counts.padding_rows, 8);
}

TEST(RankedExchange, CountsTheBusiestRankOverAllSourcesOfItsGroup) {
  Harness h({.name = "",
             .options = With(Algorithm::kRank),
             .ranks = 4,
             .ranks_per_node = 2,
             .replicas = 2,
             .units = 2,
             .experts = 4,
             .slots = 2,
             .tokens = 8});
  // Two tokens a rank, two groups of two ranks with experts {0, 1} and {2, 3}.
  constexpr int32_t kIds[8][2] = {{2, 3}, {2, 0}, {2, 1}, {2, 1},
                                  {0, 1}, {0, 1}, {0, 3}, {0, 1}};
  for (size_t t = 0; t < 8; ++t) std::copy_n(kIds[t], 2, h.ids.Row(t));

  h.Dispatch();

  // Rows of ranks: 1 + 2, 3 + 2, 4 + 3, 0 + 1.
  const DispatchCounts& counts = h.exchange.counts();
  EXPECT_EQ(counts.assignments, 16);
  EXPECT_EQ(counts.max_rows_per_rank, 7);
  EXPECT_EQ(counts.max_rows_per_expert, 5);
  EXPECT_EQ(counts.rank_rows, 1 + 2 + 2 + 2 + 1 + 1 + 2 + 1);
  EXPECT_EQ(counts.node_rows, 8);
  EXPECT_EQ(counts.dispatch_rows, counts.rank_rows);
  EXPECT_THAT(h.exchange.tokens_per_expert(),
              ::testing::ElementsAre(5, 5, 4, 2));
}

}  // namespace
}  // namespace isoloss::expert_parallel::ranked_exchange_test
