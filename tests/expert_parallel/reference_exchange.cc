#include "reference_exchange.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/scalar/rowwise.h"
#include "isoloss/kernels/scalar/wire.h"

namespace isoloss::expert_parallel::testing {
namespace {

using kernels::Rounding;
using Slots = std::vector<size_t>;

float Round(float value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? formats::RoundToBf16(value) : value;
}

/// What a receiver makes of a row.
std::vector<float> RoundTrip(const std::string& payload,
                             std::span<const float> row, Rounding rounding) {
  const size_t width = row.size();
  std::vector<float> received(row.begin(), row.end());
  std::vector<std::byte> wire(5 * width);  // enough for any payload
  if (payload == "mx1x32") {
    kernels::scalar::EncodeMxRow(row.data(), width, wire.data());
    kernels::scalar::DecodeMxRow(wire.data(), width, rounding, received.data());
  } else if (payload != "unquantized") {
    const bool pow2 = payload == "e4m3_1x128_pow2";
    ISOLOSS_ASSERT(pow2 || payload == "e4m3_1x128_fp32");
    kernels::scalar::EncodeE4m3Row(
        row.data(), width,
        pow2 ? kernels::RunScale::kPow2 : kernels::RunScale::kFp32,
        wire.data());
    kernels::scalar::DecodeE4m3Row(wire.data(), width, rounding,
                                   received.data());
  }
  return received;
}

/// Where the slots of one token are computed.
struct Places {
  Slots experts;
  Slots ranks;
  Slots nodes;
};

Places PlacesOf(size_t token, MatrixView<const int32_t> ids,
                const Topology& topology) {
  const size_t source = topology.RankOfToken(token, ids.rows());
  Places places;
  for (size_t k = 0; k < ids.cols(); ++k) {
    const auto expert = static_cast<size_t>(ids(token, k));
    const size_t rank = topology.OwnerOf(expert, source);
    places.experts.push_back(expert);
    places.ranks.push_back(rank);
    places.nodes.push_back(topology.NodeOf(rank));
  }
  return places;
}

/// Divides slots, given in ascending order, by `group_of_slot`; the groups are
/// in the order in which they are added up.
std::vector<Slots> Grouped(const Slots& slots, const Slots& group_of_slot,
                           CombineOrder order) {
  std::map<size_t, Slots> by_group;
  for (const size_t slot : slots) by_group[group_of_slot[slot]].push_back(slot);
  std::vector<Slots> groups;
  for (const auto& [group, members] : by_group) groups.push_back(members);
  if (order == CombineOrder::kLastSlot) {
    std::sort(groups.begin(), groups.end(), [](const Slots& a, const Slots& b) {
      return a.back() < b.back();
    });
  }
  return groups;
}

/// The sums of one element of one token's rows, one value per slot.
class TokenSum {
 public:
  TokenSum(const Places& places, const ExchangeOptions& options,
           Rounding rounding)
      : places_(places), options_(options), rounding_(rounding) {}

  /// The sum before its last rounding.
  float Of(std::span<const float> values) const {
    Slots all;
    for (size_t k = 0; k < values.size(); ++k) all.push_back(k);
    switch (options_.algorithm) {
      case Algorithm::kFlat:
        return OverSlots(values, all);
      case Algorithm::kRank:
        return OverRanks(values, all);
      case Algorithm::kNode:
        return OverNodes(values, all);
      case Algorithm::kTitanBf16:
        return OverExperts(values, all);
    }
    return 0.0f;
  }

 private:
  static float OverSlots(std::span<const float> values, const Slots& slots) {
    float sum = 0.0f;
    for (const size_t slot : slots) sum += values[slot];
    return sum;
  }

  float OverRanks(std::span<const float> values, const Slots& slots) const {
    float sum = 0.0f;
    for (const Slots& rank : Grouped(slots, places_.ranks, options_.order)) {
      sum += Round(OverSlots(values, rank), rounding_);
    }
    return sum;
  }

  float OverNodes(std::span<const float> values, const Slots& slots) const {
    float sum = 0.0f;
    for (const Slots& node : Grouped(slots, places_.nodes, options_.order)) {
      sum += Round(OverRanks(values, node), rounding_);
    }
    return sum;
  }

  float OverExperts(std::span<const float> values, Slots slots) const {
    std::sort(slots.begin(), slots.end(), [&](size_t a, size_t b) {
      return places_.experts[a] < places_.experts[b];
    });
    float sum = 0.0f;
    for (const size_t slot : slots) sum = Round(sum + values[slot], rounding_);
    return sum;
  }

  const Places& places_;
  const ExchangeOptions& options_;
  Rounding rounding_;
};

/// FP32 weights inside the sum over slots.
float SourceWeightedSum(std::span<const float> values,
                        std::span<const float> weights) {
  float sum = 0.0f;
  for (size_t k = 0; k < values.size(); ++k) {
    sum = std::fma(weights[k], values[k], sum);
  }
  return sum;
}

/// Element i of the rows of one token, one value per slot.
std::vector<float> Column(MatrixView<const float> rows, size_t token,
                          size_t slots, size_t i) {
  std::vector<float> values;
  for (size_t k = 0; k < slots; ++k) {
    values.push_back(rows(token * slots + k, i));
  }
  return values;
}

}  // namespace

Matrix<float> ReferenceDispatch(MatrixView<const float> x,
                                MatrixView<const int32_t> ids,
                                const ExchangeOptions& options,
                                Rounding rounding) {
  Matrix<float> rows(x.rows() * ids.cols(), x.cols());
  for (size_t t = 0; t < x.rows(); ++t) {
    const std::vector<float> received =
        RoundTrip(options.payload, {x.Row(t), x.cols()}, rounding);
    for (size_t k = 0; k < ids.cols(); ++k) {
      std::copy(received.begin(), received.end(), rows.Row(t * ids.cols() + k));
    }
  }
  return rows;
}

Matrix<float> ReferenceCombine(MatrixView<const float> rows,
                               MatrixView<const int32_t> ids,
                               MatrixView<const float> weights,
                               const Topology& topology,
                               const ExchangeOptions& options,
                               Rounding rounding) {
  const size_t slots = ids.cols();
  Matrix<float> out(ids.rows(), rows.cols());
  for (size_t t = 0; t < ids.rows(); ++t) {
    const Places places = PlacesOf(t, ids, topology);
    const TokenSum sum(places, options, rounding);
    for (size_t i = 0; i < rows.cols(); ++i) {
      std::vector<float> values = Column(rows, t, slots, i);
      if (options.weight_site == WeightSite::kSource) {
        ISOLOSS_ASSERT(options.algorithm == Algorithm::kFlat);
        out(t, i) =
            Round(SourceWeightedSum(values, {weights.Row(t), slots}), rounding);
        continue;
      }
      if (options.weight_site == WeightSite::kExpertOut) {
        for (size_t k = 0; k < slots; ++k) {
          values[k] = Round(std::fma(weights(t, k), values[k], 0.0f), rounding);
        }
      }
      out(t, i) = Round(sum.Of(values), rounding);
    }
  }
  return out;
}

CombineGradients ReferenceCombineBackward(MatrixView<const float> rows,
                                          MatrixView<const int32_t> ids,
                                          MatrixView<const float> weights,
                                          MatrixView<const float> dout,
                                          const Topology& /*topology*/,
                                          const ExchangeOptions& options,
                                          Rounding rounding) {
  const size_t slots = ids.cols();
  const size_t width = rows.cols();
  CombineGradients gradients;
  gradients.drows.Resize(rows.rows(), width);
  gradients.dweights.Resize(ids.rows(), slots);
  for (size_t t = 0; t < ids.rows(); ++t) {
    const std::vector<float> d =
        RoundTrip(options.gradient_payload, {dout.Row(t), width}, rounding);
    for (size_t k = 0; k < slots; ++k) {
      const size_t row = t * slots + k;
      float* const drow = gradients.drows.Row(row);
      if (options.weight_site == WeightSite::kBeforeFc2) {
        std::copy(d.begin(), d.end(), drow);
        continue;
      }
      for (size_t i = 0; i < width; ++i) {
        drow[i] = Round(std::fma(weights(t, k), d[i], 0.0f), rounding);
      }
      gradients.dweights(t, k) =
          kernels::scalar::RowDot(d, {rows.Row(row), width});
    }
  }
  return gradients;
}

Matrix<float> ReferenceDispatchBackward(MatrixView<const float> drows,
                                        MatrixView<const int32_t> ids,
                                        const Topology& topology,
                                        const ExchangeOptions& options,
                                        MatrixView<const float> addend,
                                        Rounding rounding) {
  Matrix<float> dx(ids.rows(), drows.cols());
  for (size_t t = 0; t < ids.rows(); ++t) {
    const Places places = PlacesOf(t, ids, topology);
    const TokenSum sum(places, options, rounding);
    for (size_t i = 0; i < drows.cols(); ++i) {
      float total = sum.Of(Column(drows, t, ids.cols(), i));
      if (!addend.empty()) total += addend(t, i);
      dx(t, i) = Round(total, rounding);
    }
  }
  return dx;
}

}  // namespace isoloss::expert_parallel::testing
