#include "isoloss/oracle/flip_clusters.h"

#include <algorithm>
#include <bit>

namespace isoloss::oracle {

void FlipClusters::Add(double exact, bool flip, double probability) {
  if (!flip && probability == 0.0) return;
  constexpr uint64_t kSignificand = (uint64_t{1} << 52) - 1;
  const uint64_t significand = std::bit_cast<uint64_t>(exact) & kSignificand;
  elements_.push_back({significand << 1 | (flip ? 1 : 0), probability});
}

void FlipClusters::Merge(const FlipClusters& part) {
  elements_.insert(elements_.end(), part.elements_.begin(),
                   part.elements_.end());
}

void FlipClusters::Fill(runlog::OracleRow& row) const {
  // The sums below must not depend on the order of Merge.
  std::vector<Element> sorted = elements_;
  std::ranges::sort(sorted);
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    const uint64_t significand = sorted[begin].significand_and_flip >> 1;
    int64_t flips = 0;
    double expected = 0.0;
    double none = 1.0;  // probability that no element of the cluster flips
    for (; end < sorted.size() &&
           sorted[end].significand_and_flip >> 1 == significand;
         ++end) {
      flips += static_cast<int64_t>(sorted[end].significand_and_flip & 1);
      expected += sorted[end].probability;
      none *= 1.0 - sorted[end].probability;
    }
    if (end - begin == 1) continue;
    row.repeated_flips += std::max<int64_t>(0, flips - 1);
    row.expected_repeated_flips += std::max(0.0, expected - (1.0 - none));
  }
}

}  // namespace isoloss::oracle
