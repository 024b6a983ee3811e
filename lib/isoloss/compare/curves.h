// What a figure of two arms shows.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// Curves over steps, means over the paired seeds. Not finite where a run is.
struct Curves {
  std::vector<int64_t> step;
  std::vector<double> baseline_nats;
  std::vector<double> candidate_nats;
  /// Mean of 100 (L_c - L_b) / L_b.
  std::vector<double> difference_percent;
};

/// Curves over the steps that all paired runs have. Requires runs that
/// integrity rules `seeds` and `steps` found comparable.
Curves MeanCurves(const Pairing& pairing);

}  // namespace isoloss::compare
