// The exchange between ranks against the scalar reference, to the bit.
#include "isoloss/expert_parallel/ranked_exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "expert_parallel/reference_exchange.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::expert_parallel {
namespace {

using kernels::Rounding;
using transport::MakeTransport;
using transport::OpKind;

constexpr size_t kWidth = 40;  // no multiple of 16, of 32 or of 128

enum class Choice { kRandom, kAllToOne, kFewExperts };

struct Case {
  std::string name;
  ExchangeOptions options;
  size_t ranks;
  size_t ranks_per_node = 2;
  size_t replicas = 1;
  size_t units = 1;
  size_t experts = 16;
  size_t slots = 4;
  Choice choice = Choice::kRandom;
  std::string transport = "loop";
  Rounding rounding = Rounding::kBf16;
  size_t tokens = 72;
};

/// Values of every kind that activations may have.
float Value(const CounterRng& rng, uint64_t index, Rounding rounding) {
  const double sign = rng.Below(2 * index, 2) == 0 ? 1 : -1;
  const auto exponent = static_cast<int>(rng.Below(2 * index, 12)) - 8;
  const auto value = static_cast<float>(
      sign * std::ldexp(1 + rng.Uniform(2 * index + 1), exponent));
  return rounding == Rounding::kBf16 ? formats::RoundToBf16(value) : value;
}

Matrix<float> Values(size_t rows, size_t cols, uint64_t stream,
                     Rounding rounding) {
  const CounterRng rng(7, stream);
  Matrix<float> m(rows, cols);
  for (size_t i = 0; i < m.size(); ++i) {
    m.data()[i] = Value(rng, i, rounding);
  }
  return m;
}

Matrix<int32_t> Ids(const Case& c) {
  const CounterRng rng(11, 5);
  Matrix<int32_t> ids(c.tokens, c.slots);
  for (size_t t = 0; t < c.tokens; ++t) {
    // The first K of a permutation of what may be chosen.
    const size_t pool = c.choice == Choice::kRandom     ? c.experts
                        : c.choice == Choice::kAllToOne ? c.slots
                                                        : c.experts / 2;
    std::vector<int32_t> experts(pool);
    std::iota(experts.begin(), experts.end(), 0);
    for (size_t k = 0; k < c.slots; ++k) {
      const size_t other = k + rng.Below(t * 64 + k, pool - k);
      std::swap(experts[k], experts[other]);
      ids(t, k) = experts[k];
    }
  }
  return ids;
}

/// Where (token, slot) stands: (expert, unit, token, slot), units padded.
std::vector<size_t> Places(const Case& c, MatrixView<const int32_t> ids,
                           size_t* rows) {
  std::vector<size_t> places(c.tokens * c.slots);
  size_t next = 0;
  for (size_t e = 0; e < c.experts; ++e) {
    for (size_t u = 0; u < c.units; ++u) {
      const size_t begin = next;
      for (size_t t = c.tokens * u / c.units; t < c.tokens * (u + 1) / c.units;
           ++t) {
        for (size_t k = 0; k < c.slots; ++k) {
          if (ids(t, k) == static_cast<int32_t>(e)) {
            places[t * c.slots + k] = next++;
          }
        }
      }
      while ((next - begin) % c.options.padding != 0) ++next;
    }
  }
  *rows = next;
  return places;
}

::testing::AssertionResult SameBits(MatrixView<const float> actual,
                                    MatrixView<const float> expected) {
  if (actual.rows() != expected.rows() || actual.cols() != expected.cols()) {
    return ::testing::AssertionFailure() << "shapes differ";
  }
  for (size_t r = 0; r < actual.rows(); ++r) {
    for (size_t j = 0; j < actual.cols(); ++j) {
      if (std::memcmp(&actual(r, j), &expected(r, j), sizeof(float)) != 0) {
        return ::testing::AssertionFailure()
               << "(" << r << ", " << j << "): " << actual(r, j) << ", not "
               << expected(r, j);
      }
    }
  }
  return ::testing::AssertionSuccess();
}

Topology MeshOf(const Case& c) {
  return {.experts = c.experts,
          .ranks = c.ranks,
          .replicas = c.replicas,
          .ranks_per_node = c.ranks_per_node};
}

/// Everything about one exchange of a case.
struct Harness {
  explicit Harness(const Case& test_case, int workers = 2)
      : c(test_case),
        mesh(MeshOf(c)),
        team(workers),
        transport(MakeTransport(
            c.transport,
            {.ranks = static_cast<int>(c.ranks), .deadline_seconds = 20},
            team)),
        conservation(transport->local_ranks(), c.ranks),
        exchange({.topology = mesh,
                  .options = c.options,
                  .dispatch_units = c.units,
                  .rounding = c.rounding,
                  .transport = *transport,
                  .team = team},
                 0, conservation),
        ids(Ids(c)),
        places(Places(c, ids.view(), &rows)),
        x(Values(c.tokens, kWidth, 1, c.rounding)),
        weights(Values(c.tokens, c.slots, 2, Rounding::kFp32)) {}

  /// `by_slot` [T K, width] in the order of the experts' lists; padding is 0.
  Matrix<float> InLists(MatrixView<const float> by_slot) const {
    Matrix<float> lists(rows, by_slot.cols());
    for (size_t i = 0; i < places.size(); ++i) {
      std::copy_n(by_slot.Row(i), by_slot.cols(), lists.Row(places[i]));
    }
    return lists;
  }
  void Dispatch() { exchange.Dispatch(x.view(), ids.view(), weights.view()); }
  /// Everything that was sent arrived.
  bool Conserved() const {
    std::vector<uint64_t> sum(c.ranks, 0);
    for (size_t rank = 0; rank < c.ranks; ++rank) {
      const auto of_rank = conservation.Of(rank);
      for (size_t s = 0; s < c.ranks; ++s) sum[s] += of_rank[s];
    }
    return std::all_of(sum.begin(), sum.end(),
                       [](uint64_t v) { return v == 0; });
  }

  Case c;
  Topology mesh;
  ThreadTeam team;
  std::unique_ptr<transport::Transport> transport;
  Conservation conservation;
  RankedExchange exchange;
  Matrix<int32_t> ids;
  size_t rows = 0;
  std::vector<size_t> places;
  Matrix<float> x;
  Matrix<float> weights;
};

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

    Matrix<float> lists = h.InLists(expert_out.view());
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
      const Matrix<float> in_lists = h.InLists(by_experts.view());
      std::copy_n(in_lists.data(), h.rows,
                  h.exchange.row_weight_gradients().begin());
      const Matrix<float> weights =
          h.InLists({h.weights.data(), c.tokens * c.slots, 1});
      EXPECT_TRUE(SameBits({h.exchange.row_weights().data(), h.rows, 1},
                           weights.view()));
    }
    const auto dweights =
        h.exchange.ReturnGradients(h.InLists(dexpert_in.view()).view());
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
    Matrix<int64_t> predicted(c.ranks, c.ranks);
    h.exchange.AddPredictedBytes(op, predicted.view());
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
  Matrix<int64_t> predicted(c.ranks, c.ranks);
  h.exchange.AddPredictedBytes(OpKind::kDispatch, predicted.view());
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

ExchangeOptions With(Algorithm algorithm,
                     WeightSite site = WeightSite::kExpertOut,
                     CombineOrder order = CombineOrder::kRank) {
  return {.algorithm = algorithm, .weight_site = site, .order = order};
}

std::vector<Case> Cases() {
  const ExchangeOptions flat;
  ExchangeOptions flat_mx = flat;
  flat_mx.payload = flat_mx.gradient_payload = "mx1x32";
  ExchangeOptions node_fp8 =
      With(Algorithm::kNode, WeightSite::kBeforeFc2, CombineOrder::kLastSlot);
  node_fp8.payload = "e4m3_1x128_fp32";
  ExchangeOptions rank_pow2 = With(Algorithm::kRank);
  rank_pow2.payload = "e4m3_1x128_pow2";
  rank_pow2.padding = 32;
  ExchangeOptions padded = flat;
  padded.padding = 8;
  const auto titan = With(Algorithm::kTitanBf16);
  const auto rank = With(Algorithm::kRank);
  const auto rank_v2 =
      With(Algorithm::kRank, WeightSite::kExpertOut, CombineOrder::kLastSlot);
  const auto node = With(Algorithm::kNode);
  const auto node_v2 =
      With(Algorithm::kNode, WeightSite::kExpertOut, CombineOrder::kLastSlot);
  std::vector<Case> cases = {
      {.name = "flat_1", .options = flat, .ranks = 1},
      {.name = "flat_4", .options = flat, .ranks = 4},
      {.name = "flat_16_fp32",
       .options = flat,
       .ranks = 16,
       .rounding = Rounding::kFp32},
      {.name = "flat_expert_out",
       .options = With(Algorithm::kFlat, WeightSite::kExpertOut),
       .ranks = 4},
      {.name = "flat_before_fc2",
       .options = With(Algorithm::kFlat, WeightSite::kBeforeFc2),
       .ranks = 8},
      {.name = "flat_mx", .options = flat_mx, .ranks = 8},
      {.name = "flat_all_to_one",
       .options = flat,
       .ranks = 8,
       .choice = Choice::kAllToOne},
      {.name = "flat_few_experts",
       .options = flat,
       .ranks = 16,
       .choice = Choice::kFewExperts},
      {.name = "flat_more_ranks_than_tokens",
       .options = flat,
       .ranks = 16,
       .tokens = 5},
      {.name = "flat_padded", .options = padded, .ranks = 4},
      {.name = "flat_replicas_units",
       .options = padded,
       .ranks = 8,
       .replicas = 2,
       .units = 4},
      {.name = "flat_units_in_a_rank",
       .options = flat,
       .ranks = 2,
       .replicas = 2,
       .units = 6},
      {.name = "titan_4", .options = titan, .ranks = 4},
      {.name = "rank_1", .options = rank, .ranks = 1},
      {.name = "rank_4", .options = rank, .ranks = 4},
      {.name = "rank_v2_8", .options = rank_v2, .ranks = 8},
      {.name = "rank_pow2", .options = rank_pow2, .ranks = 4},
      {.name = "rank_replicas",
       .options = rank_v2,
       .ranks = 8,
       .replicas = 2,
       .units = 2},
      {.name = "node_4", .options = node, .ranks = 4},
      {.name = "node_16", .options = node, .ranks = 16, .ranks_per_node = 4},
      {.name = "node_v2_16",
       .options = node_v2,
       .ranks = 16,
       .ranks_per_node = 4},
      {.name = "node_one_node",
       .options = node_v2,
       .ranks = 4,
       .ranks_per_node = 8},
      {.name = "node_fp8", .options = node_fp8, .ranks = 8},
      {.name = "node_all_to_one",
       .options = node_v2,
       .ranks = 8,
       .choice = Choice::kAllToOne},
      {.name = "node_replicas",
       .options = node,
       .ranks = 16,
       .ranks_per_node = 2,
       .replicas = 2,
       .units = 2},
  };
  // Every algorithm on every transport of one process.
  for (const char* name : {"threads", "shuffled"}) {
    for (const auto& [suffix, options] :
         {std::pair{"flat", flat}, std::pair{"titan", titan},
          std::pair{"rank_v2", rank_v2}, std::pair{"node_fp8", node_fp8}}) {
      cases.push_back({.name = fmt::format("{}_{}", name, suffix),
                       .options = options,
                       .ranks = 8,
                       .transport = name});
    }
  }
  return cases;
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

}  // namespace
}  // namespace isoloss::expert_parallel
