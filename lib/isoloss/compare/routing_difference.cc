#include "isoloss/compare/routing_difference.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::MoeColumns;
using Experts = std::span<const int32_t>;

/// Returns the experts of one step and layer, [tokens, slots]. A slot without
/// an expert (dropped) is negative and no choice.
Experts ExpertsOf(const MoeColumns& moe, size_t row, size_t layer) {
  const auto count = static_cast<size_t>(moe.tokens * moe.top_k);
  const auto layers = static_cast<size_t>(moe.layers);
  return Experts(moe.expert_ids).subspan((row * layers + layer) * count, count);
}

int64_t CountFlips(Experts a, Experts b, size_t slots) {
  int64_t flips = 0;
  std::vector<int32_t> chosen(slots);
  for (size_t first = 0; first < b.size(); first += slots) {
    std::ranges::copy(a.subspan(first, slots), chosen.begin());
    std::ranges::sort(chosen);
    for (const int32_t expert : b.subspan(first, slots)) {
      const bool found = std::ranges::binary_search(chosen, expert);
      if (expert >= 0 && !found) ++flips;
    }
  }
  return flips;
}

bool SameExtent(const MoeColumns& a, const MoeColumns& b) {
  return !a.expert_ids.empty() && !b.expert_ids.empty() &&
         a.tokens == b.tokens && a.top_k == b.top_k && a.top_k > 0;
}

void CompareExperts(const MoeColumns& a, const MoeColumns& b, size_t row_a,
                    size_t row_b, RoutingDifference& difference) {
  for (size_t layer = 0; layer < static_cast<size_t>(a.layers); ++layer) {
    const Experts of_a = ExpertsOf(a, row_a, layer);
    const Experts of_b = ExpertsOf(b, row_b, layer);
    difference.flips.push_back(
        CountFlips(of_a, of_b, static_cast<size_t>(a.top_k)));
    difference.equal += std::ranges::equal(of_a, of_b) ? 1 : 0;
  }
}

}  // namespace

std::optional<RoutingDifference> CompareRouting(const MoeColumns& a,
                                                const MoeColumns& b) {
  if (a.layers != b.layers || a.layers == 0) return std::nullopt;
  RoutingDifference difference;
  const auto rows = runlog::MatchRows(a.step, b.step);
  difference.layers = a.layers;
  const bool by_expert = SameExtent(a, b);
  const bool by_digest = !a.routing_digest.empty() && !b.routing_digest.empty();
  if (rows.empty() || (!by_expert && !by_digest)) {
    return std::nullopt;
  }
  if (by_expert) difference.choices = a.tokens * a.top_k;
  const auto layers = static_cast<size_t>(a.layers);
  for (const runlog::SharedRow& row : rows) {
    difference.step.push_back(row.step);
    if (by_expert) {
      CompareExperts(a, b, row.a, row.b, difference);
      continue;
    }
    for (size_t layer = 0; layer < layers; ++layer) {
      difference.equal += a.routing_digest[row.a * layers + layer] ==
                                  b.routing_digest[row.b * layers + layer]
                              ? 1
                              : 0;
    }
  }
  return difference;
}

}  // namespace isoloss::compare
