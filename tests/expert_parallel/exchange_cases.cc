#include "expert_parallel/exchange_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::expert_parallel {
namespace {

using kernels::Rounding;

/// Values of every kind that activations may have.
float Value(const CounterRng& rng, uint64_t index, Rounding rounding) {
  const double sign = rng.Below(2 * index, 2) == 0 ? 1 : -1;
  const auto exponent = static_cast<int>(rng.Below(2 * index, 12)) - 8;
  const auto value = static_cast<float>(
      sign * std::ldexp(1 + rng.Uniform(2 * index + 1), exponent));
  return rounding == Rounding::kBf16 ? formats::RoundToBf16(value) : value;
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

Topology MeshOf(const Case& c) {
  return {.experts = c.experts,
          .ranks = c.ranks,
          .replicas = c.replicas,
          .ranks_per_node = c.ranks_per_node};
}

}  // namespace

Matrix<float> Values(size_t rows, size_t cols, uint64_t stream,
                     Rounding rounding) {
  const CounterRng rng(7, stream);
  Matrix<float> m(rows, cols);
  for (size_t i = 0; i < m.size(); ++i) {
    m.data()[i] = Value(rng, i, rounding);
  }
  return m;
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

Harness::Harness(const Case& test_case, int workers)
    : c(test_case),
      mesh(MeshOf(c)),
      executor(workers),
      transport(transport::MakeTransport(
          c.transport,
          {.ranks = static_cast<int>(c.ranks), .deadline_seconds = 20},
          executor)),
      conservation(transport->local_ranks(), c.ranks),
      exchange({.topology = mesh,
                .options = c.options,
                .dispatch_units = c.units,
                .rounding = c.rounding,
                .transport = *transport,
                .executor = executor},
               0, conservation),
      ids(Ids(c)),
      places(Places(c, ids.view(), &rows)),
      x(Values(c.tokens, kWidth, 1, c.rounding)),
      weights(Values(c.tokens, c.slots, 2, Rounding::kFp32)) {}

Matrix<float> Harness::InLists(MatrixView<const float> by_slot,
                               float padding) const {
  Matrix<float> lists(rows, by_slot.cols());
  std::fill_n(lists.data(), lists.size(), padding);
  for (size_t i = 0; i < places.size(); ++i) {
    std::copy_n(by_slot.Row(i), by_slot.cols(), lists.Row(places[i]));
  }
  return lists;
}

bool Harness::Conserved() const {
  std::vector<uint64_t> sum(c.ranks, 0);
  for (size_t rank = 0; rank < c.ranks; ++rank) {
    for (size_t s = 0; s < c.ranks; ++s) sum[s] += conservation.Of(rank, s);
  }
  return std::all_of(sum.begin(), sum.end(), [](uint64_t v) { return v == 0; });
}

ExchangeOptions With(Algorithm algorithm, WeightSite site, CombineOrder order) {
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
  cases.push_back({.name = "flat_before_fc2_padded",
                   .options = With(Algorithm::kFlat, WeightSite::kBeforeFc2),
                   .ranks = 4});
  cases.back().options.padding = 8;
  // FP32: nearly every addition rounds, so that the order of every sum shows.
  // Two terms commute; so many slots that sums on a rank, in a node and over
  // nodes have three and more.
  const auto add_fp32 = [&](const char* name, const ExchangeOptions& options) {
    cases.push_back({.name = name,
                     .options = options,
                     .ranks = 16,
                     .ranks_per_node = 4,
                     .experts = 64,
                     .slots = 24,
                     .rounding = Rounding::kFp32});
  };
  add_fp32("fp32_flat", flat);
  add_fp32("fp32_rank", rank);
  add_fp32("fp32_rank_v2", rank_v2);
  add_fp32("fp32_node", node);
  add_fp32("fp32_node_v2", node_v2);
  add_fp32("fp32_node_before_fc2",
           With(Algorithm::kNode, WeightSite::kBeforeFc2));
  add_fp32("fp32_titan", titan);
  return cases;
}

}  // namespace isoloss::expert_parallel
