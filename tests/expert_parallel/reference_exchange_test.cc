// The reference itself, on inputs small enough to add up by hand. In BF16,
// 256 + 1 rounds to 256 (a tie), 258 is exact and 259 rounds to 260; in FP32,
// 2^24 + 1 rounds to 2^24.
#include "reference_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::expert_parallel::testing::reference_exchange_test {
namespace {

using kernels::Rounding;
using ::testing::ElementsAre;

/// Two experts per rank, two ranks per node: experts 0 1 | 2 3 || 4 5 | 6 7.
constexpr Topology kMesh = {.experts = 8, .ranks = 4, .ranks_per_node = 2};

template <typename T>
Matrix<T> MatrixOf(size_t rows, const std::vector<T>& values) {
  Matrix<T> matrix(rows, values.size() / rows);
  std::copy(values.begin(), values.end(), matrix.data());
  return matrix;
}

template <typename T>
std::vector<T> ValuesOf(const Matrix<T>& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

ExchangeOptions Options(Algorithm algorithm, WeightSite site,
                        CombineOrder order = CombineOrder::kRank) {
  ExchangeOptions options;
  options.algorithm = algorithm;
  options.weight_site = site;
  options.order = order;
  return options;
}

/// The combined value of one token whose rows have one element each and carry
/// their weights.
float Combined(const std::vector<int32_t>& ids, const std::vector<float>& rows,
               Algorithm algorithm, Rounding rounding,
               CombineOrder order = CombineOrder::kRank,
               const Topology& mesh = kMesh) {
  const Matrix<int32_t> id = MatrixOf<int32_t>(1, ids);
  const Matrix<float> row = MatrixOf<float>(ids.size(), rows);
  const Matrix<float> weights(1, ids.size());
  return ReferenceCombine(row.view(), id.view(), weights.view(), mesh,
                          Options(algorithm, WeightSite::kBeforeFc2, order),
                          rounding)(0, 0);
}

TEST(ReferenceCombine, RoundsWhereTheAlgorithmStoresASum) {
  const std::vector<int32_t> ids = {0, 1, 2,
                                    4};  // ranks 0 0 1 2, nodes 0 0 0 1
  const std::vector<float> rows = {256, 1, 1, 1};
  const auto combined = [&](Algorithm algorithm) {
    return Combined(ids, rows, algorithm, Rounding::kBf16);
  };

  EXPECT_EQ(combined(Algorithm::kFlat), 260);       // 259
  EXPECT_EQ(combined(Algorithm::kRank), 258);       // (257 -> 256) + 1 + 1
  EXPECT_EQ(combined(Algorithm::kNode), 256);       // (256 + 1 -> 256) + 1
  EXPECT_EQ(combined(Algorithm::kTitanBf16), 256);  // 257 -> 256, three times
}

TEST(ReferenceCombine, RoundsNothingInAnFp32Arm) {
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRank,
                                    Algorithm::kNode, Algorithm::kTitanBf16}) {
    EXPECT_EQ(
        Combined({0, 1, 2, 4}, {256, 1, 1, 1}, algorithm, Rounding::kFp32),
        259);
  }
}

TEST(ReferenceCombine, TitanAddsByAscendingExpert) {
  // Experts 0, 1, 2, 4 have 1, 1, 1, 256: the sum is 3 before 256 comes.
  EXPECT_EQ(Combined({4, 2, 1, 0}, {256, 1, 1, 1}, Algorithm::kTitanBf16,
                     Rounding::kBf16),
            260);
}

TEST(ReferenceCombine, FlatAndRanksAddTheirRowsInSlotOrder) {
  // By expert, 2^24 would come first.
  EXPECT_EQ(
      Combined({5, 4, 0}, {1, 1, 0x1p24f}, Algorithm::kFlat, Rounding::kFp32),
      0x1p24f + 2);
  const Topology one_rank = {.experts = 8};
  for (const Algorithm algorithm : {Algorithm::kRank, Algorithm::kNode}) {
    EXPECT_EQ(Combined({5, 4, 0}, {1, 1, 0x1p24f}, algorithm, Rounding::kFp32,
                       CombineOrder::kRank, one_rank),
              0x1p24f + 2);
  }
}

TEST(ReferenceCombine, GroupsAreAddedByNumberOrByLastSlot) {
  // Rank 0 has slots 0 and 3; rank 1 slot 1; rank 2 slot 2. By number, 2^24
  // comes first and swallows both ones; rank 0's last slot is the last one.
  const std::vector<int32_t> ids = {0, 2, 4, 1};
  const std::vector<float> rows = {0x1p24f, 1, 1, 0};
  Topology nodes_of_one = kMesh;
  nodes_of_one.ranks_per_node = 1;
  Topology one_node = kMesh;
  one_node.ranks_per_node = 4;
  const struct {
    Algorithm algorithm;
    Topology mesh;
  } cases[] = {{Algorithm::kRank, kMesh},
               {Algorithm::kNode, nodes_of_one},  // the order of nodes
               {Algorithm::kNode, one_node}};     // of ranks in a node
  for (const auto& [algorithm, mesh] : cases) {
    EXPECT_EQ(Combined(ids, rows, algorithm, Rounding::kFp32,
                       CombineOrder::kRank, mesh),
              0x1p24f);
    EXPECT_EQ(Combined(ids, rows, algorithm, Rounding::kFp32,
                       CombineOrder::kLastSlot, mesh),
              0x1p24f + 2);
  }
}

TEST(ReferenceCombine, ExpertOutRoundsTheWeightedRow) {
  // (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, in BF16 1 + 2^-6.
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0, 1});
  const Matrix<float> rows = MatrixOf<float>(2, {1 + 0x1p-7f, 1 + 0x1p-6f});
  const Matrix<float> weights = MatrixOf<float>(1, {1 + 0x1p-7f, -1});
  const auto combined = [&](WeightSite site) {
    return ReferenceCombine(rows.view(), ids.view(), weights.view(), kMesh,
                            Options(Algorithm::kFlat, site),
                            Rounding::kBf16)(0, 0);
  };

  EXPECT_EQ(combined(WeightSite::kSource), 0x1p-14f);
  EXPECT_EQ(combined(WeightSite::kExpertOut), 0.0f);
}

TEST(ReferenceCombine, ReplicasAddAlike) {
  // Two tokens with the same rows, in different groups.
  const Topology replicas = {
      .experts = 8, .ranks = 8, .replicas = 2, .ranks_per_node = 2};
  const Matrix<int32_t> ids = MatrixOf<int32_t>(2, {0, 1, 2, 4, 0, 1, 2, 4});
  const Matrix<float> rows = MatrixOf<float>(8, {256, 1, 1, 1, 256, 1, 1, 1});
  const Matrix<float> weights(2, 4);
  for (const auto& [algorithm, expected] :
       {std::pair(Algorithm::kRank, 258), std::pair(Algorithm::kNode, 256)}) {
    const Matrix<float> out = ReferenceCombine(
        rows.view(), ids.view(), weights.view(), replicas,
        Options(algorithm, WeightSite::kBeforeFc2), Rounding::kBf16);

    EXPECT_THAT(ValuesOf(out), ElementsAre(expected, expected));
  }
}

TEST(ReferenceCombine, WithOneSlotEveryAlgorithmEqualsFlat) {
  constexpr size_t kTokens = 64;
  const CounterRng rng(5, 0);
  Matrix<int32_t> ids(kTokens, 1);
  Matrix<float> weights(kTokens, 1);
  Matrix<float> rows(kTokens, 8);
  for (size_t t = 0; t < kTokens; ++t) {
    ids(t, 0) = static_cast<int32_t>(rng.Bits(t) % 8);
    weights(t, 0) = static_cast<float>(rng.Uniform(1000 + t));
    for (size_t i = 0; i < 8; ++i) {
      rows(t, i) = formats::RoundToBf16(
          static_cast<float>(rng.Uniform(2000 + 8 * t + i) - 0.5));
    }
    rows(t, 0) = -0.0f;
  }
  const auto combined = [&](Algorithm algorithm, WeightSite site) {
    const Matrix<float> out =
        ReferenceCombine(rows.view(), ids.view(), weights.view(), kMesh,
                         Options(algorithm, site), Rounding::kBf16);
    std::vector<uint32_t> bits;
    for (const float value : ValuesOf(out)) {
      bits.push_back(std::bit_cast<uint32_t>(value));
    }
    return bits;
  };

  const auto flat = combined(Algorithm::kFlat, WeightSite::kExpertOut);
  EXPECT_EQ(combined(Algorithm::kFlat, WeightSite::kSource), flat);
  for (const Algorithm algorithm :
       {Algorithm::kRank, Algorithm::kNode, Algorithm::kTitanBf16}) {
    EXPECT_EQ(combined(algorithm, WeightSite::kExpertOut), flat);
  }
}

TEST(ReferenceDispatch, EverySlotGetsTheTokensRow) {
  const Matrix<float> x = MatrixOf<float>(2, {1, 2, 3, 4});
  const Matrix<int32_t> ids = MatrixOf<int32_t>(2, {0, 7, 3, 2});

  const Matrix<float> rows =
      ReferenceDispatch(x.view(), ids.view(), {}, Rounding::kBf16);

  EXPECT_THAT(ValuesOf(rows), ElementsAre(1, 2, 1, 2, 3, 4, 3, 4));
}

TEST(ReferenceDispatch, APayloadRoundsTheRow) {
  // 449 needs the scale 2 when it is a power of two: 224.5 becomes 224. As a
  // quotient the scale is 449 / 448 and 449 comes back. 17 / 2 = 8.5 becomes 8
  // (a tie); 17 * 448 / 449 = 16.96 becomes 16.
  const Matrix<float> x = MatrixOf<float>(1, {449, 17});
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0});
  const auto received = [&](const char* payload) {
    ExchangeOptions options;
    options.payload = payload;
    return ValuesOf(
        ReferenceDispatch(x.view(), ids.view(), options, Rounding::kFp32));
  };

  EXPECT_THAT(received("unquantized"), ElementsAre(449, 17));
  EXPECT_THAT(received("mx1x32"), ElementsAre(448, 16));
  EXPECT_THAT(received("e4m3_1x128_pow2"), ElementsAre(448, 16));
  const float scale = 449.0f / 448.0f;
  EXPECT_THAT(received("e4m3_1x128_fp32"),
              ElementsAre(448 * scale, 16 * scale));
}

TEST(ReferenceCombineBackward, WeighsTheGradientAndDotsItWithTheRow) {
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0, 5});
  const Matrix<float> rows = MatrixOf<float>(2, {1, 2, 3, 4});
  const Matrix<float> weights = MatrixOf<float>(1, {0.5f, 1 + 0x1p-7f});
  const Matrix<float> dout = MatrixOf<float>(1, {1 + 0x1p-7f, -2});
  for (const WeightSite site : {WeightSite::kSource, WeightSite::kExpertOut}) {
    const CombineGradients g = ReferenceCombineBackward(
        rows.view(), ids.view(), weights.view(), dout.view(), kMesh,
        Options(Algorithm::kFlat, site), Rounding::kBf16);

    EXPECT_THAT(ValuesOf(g.drows),
                ElementsAre(0.5f + 0x1p-8f, -1, 1 + 0x1p-6f, -2 - 0x1p-6f));
    EXPECT_THAT(ValuesOf(g.dweights),
                ElementsAre(-3 + 0x1p-7f, -5 + 3 * 0x1p-7f));
  }
}

TEST(ReferenceCombineBackward, AWeightedZeroIsPositive) {
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0});
  const Matrix<float> rows = MatrixOf<float>(1, {1});
  const Matrix<float> weights = MatrixOf<float>(1, {1});
  const Matrix<float> dout = MatrixOf<float>(1, {-0.0f});

  const CombineGradients g =
      ReferenceCombineBackward(rows.view(), ids.view(), weights.view(),
                               dout.view(), kMesh, {}, Rounding::kBf16);

  EXPECT_FALSE(std::signbit(g.drows(0, 0)));
}

TEST(ReferenceCombineBackward, BeforeFc2PassesTheGradientOn) {
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0, 5});
  const Matrix<float> rows = MatrixOf<float>(2, {1, 2});
  const Matrix<float> weights = MatrixOf<float>(1, {0.5f, 0.25f});
  const Matrix<float> dout = MatrixOf<float>(1, {3});

  const CombineGradients g = ReferenceCombineBackward(
      rows.view(), ids.view(), weights.view(), dout.view(), kMesh,
      Options(Algorithm::kRank, WeightSite::kBeforeFc2), Rounding::kBf16);

  EXPECT_THAT(ValuesOf(g.drows), ElementsAre(3, 3));
  EXPECT_THAT(ValuesOf(g.dweights), ElementsAre(0, 0));
}

TEST(ReferenceCombineBackward, GradientsTravelInAPayloadOfTheirOwn) {
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0});
  const Matrix<float> rows = MatrixOf<float>(1, {1, 1});
  const Matrix<float> weights = MatrixOf<float>(1, {1});
  const Matrix<float> dout = MatrixOf<float>(1, {449, 17});
  ExchangeOptions options;
  options.payload = "e4m3_1x128_fp32";  // of the forward rows only
  options.gradient_payload = "mx1x32";

  const CombineGradients g =
      ReferenceCombineBackward(rows.view(), ids.view(), weights.view(),
                               dout.view(), kMesh, options, Rounding::kFp32);

  EXPECT_THAT(ValuesOf(g.drows), ElementsAre(448, 16));
  EXPECT_THAT(ValuesOf(g.dweights), ElementsAre(464));
}

TEST(ReferenceDispatchBackward, AddsTheAddendBeforeTheLastRounding) {
  const Matrix<int32_t> ids = MatrixOf<int32_t>(1, {0, 1});
  const Matrix<float> drows = MatrixOf<float>(2, {256, 1});
  const Matrix<float> addend = MatrixOf<float>(1, {1});
  const auto dx = [&](Algorithm algorithm, MatrixView<const float> added) {
    return ReferenceDispatchBackward(drows.view(), ids.view(), kMesh,
                                     Options(algorithm, WeightSite::kExpertOut),
                                     added, Rounding::kBf16)(0, 0);
  };

  EXPECT_EQ(dx(Algorithm::kFlat, addend.view()), 258);
  EXPECT_EQ(dx(Algorithm::kFlat, {}), 256);
  for (const Algorithm algorithm :
       {Algorithm::kRank, Algorithm::kNode, Algorithm::kTitanBf16}) {
    EXPECT_EQ(dx(algorithm, addend.view()), 256);  // 257 -> 256, twice
  }
}

/// Integers in [-4, 4], of which every sum and product below is exact.
Matrix<float> SmallIntegers(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(8, stream);
  Matrix<float> matrix(rows, cols);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix.data()[i] =
        static_cast<float>(static_cast<int>(rng.Bits(i) % 9) - 4);
  }
  return matrix;
}

double Dot(const Matrix<float>& a, const Matrix<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a.data()[i]) * static_cast<double>(b.data()[i]);
  }
  return sum;
}

TEST(ReferenceExchange, BackwardPassesAreAdjoints) {
  constexpr size_t kTokens = 7, kSlots = 3, kWidth = 5;
  Matrix<int32_t> ids(kTokens, kSlots);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids.data()[i] = static_cast<int32_t>(i * 3 % 8);
  }
  const Matrix<float> x = SmallIntegers(kTokens, kWidth, 0);
  const Matrix<float> weights = SmallIntegers(kTokens, kSlots, 1);
  const Matrix<float> rows = SmallIntegers(kTokens * kSlots, kWidth, 2);
  const Matrix<float> dout = SmallIntegers(kTokens, kWidth, 3);
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRank,
                                    Algorithm::kNode, Algorithm::kTitanBf16}) {
    for (const CombineOrder order :
         {CombineOrder::kRank, CombineOrder::kLastSlot}) {
      const ExchangeOptions options =
          Options(algorithm, WeightSite::kExpertOut, order);

      const Matrix<float> sent =
          ReferenceDispatch(x.view(), ids.view(), options, Rounding::kBf16);
      const Matrix<float> dx = ReferenceDispatchBackward(
          rows.view(), ids.view(), kMesh, options, {}, Rounding::kBf16);
      const Matrix<float> out =
          ReferenceCombine(rows.view(), ids.view(), weights.view(), kMesh,
                           options, Rounding::kBf16);
      const CombineGradients g = ReferenceCombineBackward(
          rows.view(), ids.view(), weights.view(), dout.view(), kMesh, options,
          Rounding::kBf16);

      EXPECT_EQ(Dot(sent, rows), Dot(x, dx));
      EXPECT_EQ(Dot(out, dout), Dot(rows, g.drows));
      EXPECT_EQ(Dot(out, dout), Dot(weights, g.dweights));
    }
  }
}

}  // namespace
}  // namespace isoloss::expert_parallel::testing::reference_exchange_test
