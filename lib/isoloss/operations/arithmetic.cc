#include "isoloss/operations/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

namespace isoloss::operations {
namespace {

/// Adds the sums of neighbours, then those of neighbouring pairs.
float SumOfNeighbours(std::span<const float> parts) {
  if (parts.size() == 1) return parts[0];
  size_t left = 1;
  while (2 * left < parts.size()) left *= 2;
  return SumOfNeighbours(parts.first(left)) +
         SumOfNeighbours(parts.subspan(left));
}

/// Returns the quotient, rounded up.
size_t Quotient(size_t value, size_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace

std::vector<size_t> SplitK::Ends(size_t depth) const {
  std::vector<size_t> ends;
  size_t end = 0;
  do {
    const size_t length = steps + (ends.size() < longer ? tile : 0);
    end = steps == 0 || depth - end < length ? depth : end + length;
    ends.push_back(end);
  } while (end < depth);
  return ends;
}

float SplitK::Sum(std::vector<float> parts) const {
  for (float& part : parts) part = kernels::Rounded(part, rounding);
  if (order == Order::kNeighbours) return SumOfNeighbours(parts);
  if (order == Order::kHalves) {
    while (parts.size() > 1) {
      const size_t half = (parts.size() + 1) / 2;
      for (size_t i = half; i < parts.size(); ++i) parts[i - half] += parts[i];
      parts.resize(half);
    }
    return parts[0];
  }
  if (order == Order::kDescending) std::ranges::reverse(parts);
  float sum = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) sum += parts[i];
  return sum;
}

std::vector<SplitK> SplitsOf(size_t depth) {
  constexpr size_t kTiles[] = {32, 64, 128};  // steps that kernels load at once
  constexpr size_t kSpreadTile = 64;
  constexpr size_t kMostParts = 256;
  std::set<size_t> lengths;
  std::vector<SplitK> splits;
  for (size_t parts = 2; parts <= kMostParts; ++parts) {
    for (const size_t tile : kTiles) {
      const size_t length = Quotient(Quotient(depth, tile), parts) * tile;
      if (length < depth && lengths.insert(length).second) {
        splits.push_back({.steps = length});
      }
    }
    const size_t tiles = Quotient(depth, kSpreadTile);
    if (parts < tiles && tiles % parts != 0) {
      splits.push_back({.steps = tiles / parts * kSpreadTile,
                        .longer = tiles % parts,
                        .tile = kSpreadTile});
    }
  }
  return splits;
}

std::string Arithmetic::Text() const {
  if (!has_bits()) return "FP32 sums in any order";
  std::string text =
      fmt::format("{} tensor cores, ", accumulation.accumulator->cores);
  text += accumulation.interval == 0
              ? "one chain"
              : fmt::format("promoted every {} steps", accumulation.interval);
  if (split.steps > 0) {
    constexpr const char* kOrders[] = {"in order", "from the last on",
                                       "neighbours first", "by halves"};
    text += fmt::format(
        ", split along k into parts of {}{} steps, {}added {}", split.steps,
        split.longer == 0 ? ""
                          : fmt::format(" or {}", split.steps + split.tile),
        split.rounding == kernels::Rounding::kBf16 ? "rounded to BF16, " : "",
        kOrders[static_cast<size_t>(split.order)]);
  }
  return text;
}

}  // namespace isoloss::operations
