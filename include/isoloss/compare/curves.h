// Computes the curves that a figure of two arms shows.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::compare {

/// The curves are means over the paired seeds; not finite where a run is not.
struct Curves {
  std::vector<int64_t> step;
  std::vector<double> baseline_nats;
  std::vector<double> candidate_nats;
  std::vector<double> difference_percent;  ///< mean of 100 (L_c - L_b) / L_b
};

/// Returns curves over the steps that all paired runs have. Requires runs that
/// integrity rules `seeds` and `steps` found comparable.
Curves MeanCurves(const Pairing& pairing);

}  // namespace isoloss::compare
