#include "isoloss/stats/power.h"

#include <algorithm>
#include <boost/math/quadrature/gauss_kronrod.hpp>
#include <boost/math/special_functions/erf.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <numbers>
#include <string_view>

#include "isoloss/base/error.h"
#include "isoloss/stats/non_central_t.h"
#include "isoloss/stats/student_t.h"

namespace isoloss::stats {
namespace {

constexpr int64_t kMostPairs = 1 << 20;

/// Beyond this many standard deviations a normal tail, 1e-12, is left out.
constexpr double kNormalTail = 7;

double NormalCdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

double NormalQuantile(double probability) {
  return -std::numbers::sqrt2 * boost::math::erfc_inv(2 * probability);
}

/// Returns the density of the root of (a chi-squared variable / its degrees of
/// freedom).
double ScaledChiDensity(double u, double degrees_of_freedom) {
  if (!(u > 0)) return 0;
  return boost::math::gamma_p_derivative(degrees_of_freedom / 2,
                                         degrees_of_freedom * u * u / 2) *
         degrees_of_freedom * u;
}

void CheckTruth(double mean, double standard_error) {
  if (!(std::isfinite(mean) && standard_error >= 0 &&
        std::isfinite(standard_error))) {
    ThrowError(ErrorKind::kConfig,
               "power of the equivalence test: mean is {} and its standard "
               "error {}, but both must be finite and the error not negative.",
               mean, standard_error);
  }
}

void CheckPairs(std::string_view function, int64_t pairs) {
  if (pairs >= 2) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} pairs, but a spread needs at least 2. Give more pairs.",
             function, pairs);
}

/// Integrates `function` from `low` to `high`. The range is split at `edge`,
/// where the function may be as steep as a step.
template <typename Function>
double Integrate(const Function& function, double low, double high,
                 double edge) {
  using Quadrature = boost::math::quadrature::gauss_kronrod<double, 31>;
  const double middle = std::clamp(edge, low, high);
  // The tolerance is for the difference of the Gauss and Kronrod rules. The
  // Kronrod rule gives the result and is far better: power_test finds 1e-9.
  const unsigned depth = 10;
  const double tolerance = 1e-7;
  double sum = 0;
  if (low < middle) {
    sum += Quadrature::integrate(function, low, middle, depth, tolerance);
  }
  if (middle < high) {
    sum += Quadrature::integrate(function, middle, high, depth, tolerance);
  }
  return sum;
}

}  // namespace

double TwoOneSidedPower(double mean, double standard_error,
                        double degrees_of_freedom,
                        const EquivalenceOptions& options,
                        const std::optional<UpperTest>& also) {
  CheckEquivalenceOptions(options);
  CheckTruth(mean, standard_error);
  const double t = -StudentTQuantile(options.alpha, degrees_of_freedom);
  if (standard_error == 0) {
    const double offset = options.one_sided ? mean : std::fabs(mean);
    return offset < options.margin && (!also || mean < also->margin) ? 1 : 0;
  }
  const double also_t =
      also ? -StudentTQuantile(also->alpha, degrees_of_freedom) : 0;
  // Both limits are in units of the standard error, with the true mean as
  // origin.
  const double above = (options.margin - mean) / standard_error;
  const double below = (-options.margin - mean) / standard_error;
  const auto integrand = [&](double u) {
    double upper = above - t * u;
    if (also) {
      upper =
          std::min(upper, (also->margin - mean) / standard_error - also_t * u);
    }
    double pass = NormalCdf(upper);
    if (!options.one_sided) pass -= NormalCdf(below + t * u);
    return std::max(0.0, pass) * ScaledChiDensity(u, degrees_of_freedom);
  };
  // u is within `spread` of 1 except for a negligible rest. It is a Lipschitz
  // function, with constant 1 / sqrt(nu), of nu normal variables, and its mean
  // is above 1 - 1 / (2 nu).
  const double spread = (kNormalTail + 1 / std::sqrt(degrees_of_freedom)) /
                        std::sqrt(degrees_of_freedom);
  const double low = std::max(0.0, 1 - spread);
  double high = std::min(1 + spread, (above + kNormalTail) / t);
  if (!options.one_sided) high = std::min(high, (above - below) / (2 * t));
  if (!(high > low)) return 0;
  const double power =
      Integrate(integrand, low, high, std::min(above, -below) / t);
  return std::clamp(power, 0.0, 1.0);
}

double EquivalencePower(double mean, double sd, int64_t pairs,
                        const EquivalenceOptions& options,
                        const std::optional<UpperTest>& also) {
  CheckPairs("EquivalencePower", pairs);
  const double n = static_cast<double>(pairs);
  return TwoOneSidedPower(mean, sd / std::sqrt(n), n - 1, options, also);
}

std::optional<int64_t> PairsForPower(double mean, double sd,
                                     const EquivalenceOptions& options) {
  CheckEquivalenceOptions(options);
  CheckTruth(mean, sd);
  const double offset = options.one_sided ? mean : std::fabs(mean);
  if (!(offset < options.margin)) return std::nullopt;
  const auto suffices = [&](int64_t pairs) {
    return EquivalencePower(mean, sd, pairs, options) >= options.power;
  };
  // `suffices` changes once, from false to true. The search starts at the
  // number for a known spread, goes up and then down in growing steps, and
  // bisects.
  const double root =
      (NormalQuantile(options.power) - NormalQuantile(options.alpha)) * sd /
      (options.margin - offset);
  int64_t low = 2;
  int64_t high = static_cast<int64_t>(
      std::clamp(root * root, 2.0, static_cast<double>(kMostPairs)));
  for (int64_t step = 1; !suffices(high); step *= 2) {
    if (high == kMostPairs) return std::nullopt;
    low = high + 1;
    high = std::min(high + step, kMostPairs);
  }
  for (int64_t step = 1; low < high; step *= 2) {
    const int64_t below = std::max(low, high - step);
    if (!suffices(below)) {
      low = below + 1;
      break;
    }
    high = below;
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

double DetectableDifference(double sd, int64_t pairs,
                            const EquivalenceOptions& options) {
  CheckEquivalenceOptions(options);
  CheckPairs("DetectableDifference", pairs);
  CheckTruth(options.margin, sd);
  const double n = static_cast<double>(pairs);
  const double t = -StudentTQuantile(options.alpha, n - 1);
  const auto suffices = [&](double delta) {
    return NonCentralTUpperTail(t, n - 1, delta) >= options.power;
  };
  // The probability rises with delta, from alpha at 0.
  double low = 0;
  double high = 1;
  for (; !suffices(high); high *= 2) low = high;
  constexpr double kPrecision = 1e-12;
  while (high - low > kPrecision * high) {
    const double middle = low + (high - low) / 2;
    (suffices(middle) ? high : low) = middle;
  }
  return options.margin + high * sd / std::sqrt(n);
}

double UpperLimitOfSd(double sd, int64_t count, double confidence) {
  CheckPairs("UpperLimitOfSd", count);
  if (!(confidence > 0 && confidence < 1)) {
    ThrowError(ErrorKind::kConfig,
               "UpperLimitOfSd: confidence is {}, but must be in (0, 1).",
               confidence);
  }
  const auto degrees_of_freedom = static_cast<double>(count - 1);
  const double chi_squared =
      2 * boost::math::gamma_p_inv(degrees_of_freedom / 2, 1 - confidence);
  return sd * std::sqrt(degrees_of_freedom / chi_squared);
}

}  // namespace isoloss::stats
