#include "isoloss/stats/equivalence.h"

#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::stats {
namespace {

constexpr int64_t kMostPairs = 1 << 20;

void CheckOptions(const EquivalenceOptions& options) {
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

/// Written so that a NaN bound is neither inside nor outside.
Equivalence Classify(double lower, double upper,
                     const EquivalenceOptions& options) {
  const double margin = options.margin;
  const bool above_floor = options.one_sided || lower > -margin;
  if (above_floor && upper < margin) return Equivalence::kInside;
  const bool below = !options.one_sided && upper <= -margin;
  if (below || lower >= margin) return Equivalence::kOutside;
  return Equivalence::kUndecided;
}

}  // namespace

EquivalenceResult TestEquivalence(const Summary& differences,
                                  const EquivalenceOptions& options) {
  CheckOptions(options);
  EquivalenceResult result;
  if (differences.count < 2) {
    result.lower = -std::numeric_limits<double>::infinity();
    result.upper = std::numeric_limits<double>::infinity();
    return result;
  }
  const double n = static_cast<double>(differences.count);
  // By symmetry t_{1-alpha} = -t_{alpha}; 1 - alpha would round to 1.
  const double half_width =
      -StudentTQuantile(options.alpha, n - 1) * differences.sd / std::sqrt(n);
  result.lower = differences.mean - half_width;
  result.upper = differences.mean + half_width;
  result.outcome = Classify(result.lower, result.upper, options);
  result.required_pairs = RequiredPairs(differences, options);
  return result;
}

std::optional<int64_t> RequiredPairs(const Summary& differences,
                                     const EquivalenceOptions& options) {
  CheckOptions(options);
  const double offset =
      options.one_sided ? differences.mean : std::fabs(differences.mean);
  const double room = options.margin - offset;
  if (differences.count < 2 || !(room > 0) || !std::isfinite(differences.sd)) {
    return std::nullopt;
  }
  const auto suffices = [&](int64_t pairs) {
    const double n = static_cast<double>(pairs);
    const double t = StudentTQuantile(options.power, n - 1) -
                     StudentTQuantile(options.alpha, n - 1);
    const double root = t * differences.sd / room;
    return n >= root * root;
  };
  // The quantiles fall with n, so `suffices` changes once, from false to true:
  // double until it holds, then bisect.
  int64_t low = 2;
  int64_t high = 2;
  while (!suffices(high)) {
    low = high + 1;
    high *= 2;
    if (high > kMostPairs) return std::nullopt;
  }
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (suffices(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace isoloss::stats
