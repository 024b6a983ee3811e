#include "isoloss/compare/curves.h"

#include <algorithm>

#include "isoloss/compare/final_window.h"
#include "isoloss/stats/summary.h"

namespace isoloss::compare {

Curves MeanCurves(const Pairing& pairing) {
  Curves curves;
  if (pairing.pairs.empty()) return curves;
  size_t steps = pairing.pairs[0].baseline->log.steps.step.size();
  for (const Run* run : pairing.All()) {
    steps = std::min(steps, run->log.steps.step.size());
  }
  std::vector<double> baseline;
  std::vector<double> candidate;
  std::vector<double> percent;
  for (size_t i = 0; i < steps; ++i) {
    baseline.clear();
    candidate.clear();
    percent.clear();
    for (const SeedPair& pair : pairing.pairs) {
      const double b = pair.baseline->log.steps.loss_nats[i];
      const double c = pair.candidate->log.steps.loss_nats[i];
      baseline.push_back(b);
      candidate.push_back(c);
      percent.push_back(PercentDifference(c, b));
    }
    curves.step.push_back(pairing.pairs[0].baseline->log.steps.step[i]);
    curves.baseline_nats.push_back(stats::Mean(baseline));
    curves.candidate_nats.push_back(stats::Mean(candidate));
    curves.difference_percent.push_back(stats::Mean(percent));
  }
  return curves;
}

}  // namespace isoloss::compare
