#include "isoloss/stats/equivalence.h"

#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/stats/mean_interval.h"
#include "isoloss/stats/power.h"

namespace isoloss::stats {

Equivalence WhereIs(double lower, double upper,
                    const EquivalenceOptions& options) {
  // These conditions make a NaN bound neither inside nor outside.
  const double margin = options.margin;
  const bool above_floor = options.one_sided || lower > -margin;
  if (above_floor && upper < margin) return Equivalence::kInside;
  const bool below = !options.one_sided && upper <= -margin;
  if (below || lower >= margin) return Equivalence::kOutside;
  return Equivalence::kUndecided;
}

void CheckEquivalenceOptions(const EquivalenceOptions& options) {
  if (!(options.margin > 0 && std::isfinite(options.margin))) {
    ThrowError(ErrorKind::kConfig,
               "equivalence test: margin is {}, but it must be positive and "
               "finite.",
               options.margin);
  }
  if (!(options.alpha > 0 && options.alpha < 0.5)) {
    ThrowError(ErrorKind::kConfig,
               "equivalence test: alpha is {}, but it must lie in (0, 0.5).",
               options.alpha);
  }
  if (!(options.power > 0.5 && options.power < 1)) {
    ThrowError(ErrorKind::kConfig,
               "equivalence test: power is {}, but it must lie in (0.5, 1).",
               options.power);
  }
}

EquivalenceResult TestEquivalence(const Summary& differences,
                                  const EquivalenceOptions& options) {
  CheckEquivalenceOptions(options);
  EquivalenceResult result;
  const MeanInterval interval = IntervalOfMean(differences, options.alpha);
  result.lower = interval.lower;
  result.upper = interval.upper;
  if (differences.count < 2) return result;
  result.outcome = WhereIs(result.lower, result.upper, options);
  return result;
}

std::optional<int64_t> RequiredPairs(const Summary& differences,
                                     const EquivalenceOptions& options) {
  CheckEquivalenceOptions(options);
  if (differences.count < 2 || !std::isfinite(differences.mean) ||
      !std::isfinite(differences.sd)) {
    return std::nullopt;
  }
  return PairsForPower(differences.mean, differences.sd, options);
}

}  // namespace isoloss::stats
