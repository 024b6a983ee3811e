#include "isoloss/stats/equivalence.h"

#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/stats/power.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::stats {
Equivalence ClassifyInterval(double lower, double upper,
                             const EquivalenceOptions& options) {
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

Interval MeanInterval(const Summary& differences,
                      const EquivalenceOptions& options) {
  CheckEquivalenceOptions(options);
  if (differences.count < 2) {
    return {-std::numeric_limits<double>::infinity(),
            std::numeric_limits<double>::infinity()};
  }
  const double n = static_cast<double>(differences.count);
  // By symmetry t_{1-alpha} = -t_{alpha}; 1 - alpha would round to 1.
  const double half_width =
      -StudentTQuantile(options.alpha, n - 1) * differences.sd / std::sqrt(n);
  return {differences.mean - half_width, differences.mean + half_width};
}

EquivalenceResult TestEquivalence(const Summary& differences,
                                  const EquivalenceOptions& options) {
  const Interval interval = MeanInterval(differences, options);
  EquivalenceResult result{.lower = interval.lower,
                           .upper = interval.upper,
                           .required_pairs = std::nullopt};
  if (differences.count < 2) return result;
  result.outcome = ClassifyInterval(result.lower, result.upper, options);
  result.required_pairs = RequiredPairs(differences, options);
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
