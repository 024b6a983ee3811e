// Rule `schedule` of level L0: did both runs of a pair follow one schedule?
#include <algorithm>
#include <cmath>

#include "isoloss/compare/integrity_rules.h"

namespace isoloss::compare {
namespace {

/// A rate is a handful of FP64 operations on the configuration alone.
constexpr double kTolerance = 1e-12;

}  // namespace

Findings CheckSchedule(const Pairing& pairing, Question) {
  Findings findings;
  for (const SeedPair& pair : pairing.pairs) {
    const auto& baseline = pair.baseline->log.steps;
    const auto& candidate = pair.candidate->log.steps;
    const size_t common = std::min(baseline.lr.size(), candidate.lr.size());
    for (size_t i = 0; i < common; ++i) {
      const double allowed = kTolerance * std::abs(baseline.lr[i]);
      if (std::abs(candidate.lr[i] - baseline.lr[i]) <= allowed) continue;
      Report(findings, Severity::kBad,
             "{}: the learning rate of step {} is {:.9g}, but {} has {:.9g}, "
             "and it follows from the configuration, which is the same. One of "
             "the programs computes the schedule wrongly.",
             Label(*pair.candidate), candidate.step[i], candidate.lr[i],
             Label(*pair.baseline), baseline.lr[i]);
      break;
    }
  }
  return findings;
}

}  // namespace isoloss::compare
