#include "isoloss/certify/fixed_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include "isoloss/operations/arithmetic.h"

namespace isoloss::certify {
namespace {

using operations::Product;
using operations::ProductGroup;
using operations::Side;
using operations::SplitK;

/// Says how the factors of one part of k are added.
struct Chain {
  size_t lanes = 1;  ///< sums side by side, which are then added by halves
  bool descends = false;
  bool is_fused = true;
};

float ValueOf(const Side& side, size_t row, size_t step) {
  return side.down ? side.values(step, row) : side.values(row, step);
}

/// Holds both rows of factors of one element.
struct Factors {
  std::vector<float> left = {};
  std::vector<float> right = {};
  float found = 0;
  OutputPlace place = {};
};

float SumOf(std::span<const float> left, std::span<const float> right,
            const Chain& chain) {
  std::vector<float> lanes(chain.lanes, 0.0f);
  for (size_t i = 0; i < left.size(); ++i) {
    const size_t k = chain.descends ? left.size() - 1 - i : i;
    float& sum = lanes[i % chain.lanes];
    sum = chain.is_fused ? std::fma(left[k], right[k], sum)
                         : sum + left[k] * right[k];
  }
  while (lanes.size() > 1) {
    const size_t half = lanes.size() / 2;
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    lanes.resize(half);
  }
  return lanes[0];
}

bool Predicts(const Product& product, const Factors& factors,
              const Chain& chain, const SplitK& split) {
  std::vector<float> parts;
  size_t begin = 0;
  for (const size_t end : split.Ends(factors.left.size())) {
    parts.push_back(SumOf(std::span(factors.left).subspan(begin, end - begin),
                          std::span(factors.right).subspan(begin, end - begin),
                          chain));
    begin = end;
  }
  const float result =
      operations::ResultOf(product, split.Sum(std::move(parts)),
                           factors.place.first, factors.place.second);
  return std::bit_cast<uint32_t>(result) ==
         std::bit_cast<uint32_t>(factors.found);
}

/// Returns nothing if an operand is quantised: its codes are not at hand here.
std::optional<Factors> FactorsOf(const Product& product, OutputPlace place) {
  for (const ProductGroup& group : product.groups) {
    const Side& left = group.left;
    const Side& right = group.right;
    if (place.first < group.first_row ||
        place.first >= group.first_row + left.extent()) {
      continue;
    }
    if (left.quantization || right.quantization) return std::nullopt;
    Factors factors = {.found = product.output(place.first, place.second),
                       .place = place};
    for (size_t k = 0; k < left.depth(); ++k) {
      factors.left.push_back(ValueOf(left, place.first - group.first_row, k));
      factors.right.push_back(ValueOf(right, place.second, k));
    }
    return factors;
  }
  return std::nullopt;
}

std::string Text(const Chain& chain, const SplitK& split) {
  constexpr const char* kOrders[] = {"in order", "from the last on",
                                     "neighbours first", "by halves"};
  std::string text = fmt::format(
      "FP32 {} in {} k",
      chain.lanes == 1 ? "chains"
                       : fmt::format("sums in {} lanes", chain.lanes),
      chain.descends ? "descending" : "ascending");
  if (!chain.is_fused) text += ", products rounded";
  if (split.steps > 0) {
    text += fmt::format(", split along k into parts of {} steps, added {}",
                        split.steps, kOrders[static_cast<size_t>(split.order)]);
  }
  return text;
}

/// Lists parts of equal length, too, which tiles of kernels do not have.
std::vector<SplitK> SplitsWithHalves(size_t depth) {
  std::vector<SplitK> splits = {{}};
  for (size_t parts = 2; parts <= 16 && 2 * parts <= depth; parts *= 2) {
    splits.push_back({.steps = (depth + parts - 1) / parts});
  }
  for (const SplitK& split : operations::SplitsOf(depth)) {
    splits.push_back(split);
  }
  return splits;
}

}  // namespace

std::string FixedOrderOf(const Product& product,
                         const std::vector<OutputPlace>& places) {
  constexpr size_t kMostPlaces = 96;
  constexpr double kMostMultiplyAdds = 0x1p29;
  std::vector<Factors> elements;
  for (size_t i = 0; i < std::min(kMostPlaces, places.size()); ++i) {
    auto factors = FactorsOf(product, places[i]);
    if (!factors) return "";
    elements.push_back(std::move(*factors));
  }
  if (elements.empty() || elements[0].left.empty()) return "";
  double done = 0;
  for (const SplitK& way : SplitsWithHalves(elements[0].left.size())) {
    for (const Chain& chain :
         {Chain{}, Chain{.is_fused = false}, Chain{.descends = true},
          Chain{.lanes = 4}, Chain{.lanes = 8}, Chain{.lanes = 16},
          Chain{.lanes = 32}}) {
      for (const SplitK::Order order :
           {SplitK::Order::kAscending, SplitK::Order::kDescending,
            SplitK::Order::kNeighbours, SplitK::Order::kHalves}) {
        if (way.steps == 0 && order != SplitK::Order::kAscending) continue;
        if (done > kMostMultiplyAdds) return "";
        SplitK split = way;
        split.order = order;
        const bool fits = std::ranges::all_of(elements, [&](const auto& each) {
          done += static_cast<double>(each.left.size());
          return Predicts(product, each, chain, split);
        });
        if (fits) return Text(chain, split);
      }
    }
  }
  return "";
}

}  // namespace isoloss::certify
