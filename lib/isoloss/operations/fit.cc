#include "isoloss/operations/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

namespace isoloss::operations {
namespace {

/// To so many significant digits, as text and back: 0.72 is the double that
/// `0.72` means.
double ToDigits(double value, int digits) {
  return std::strtod(fmt::format("{:.{}e}", value, digits - 1).c_str(),
                     nullptr);
}

/// From the roundest one on.
std::vector<double> Candidates(double factor, double error) {
  constexpr int kMostDigits = 9;  // those of FP32
  constexpr double kErrors = 8.0;
  // Least squares of many equal ratios still round their sums.
  const double room = kErrors * error + 1e-6 * std::fabs(factor);
  std::vector<double> result;
  const auto add = [&](double candidate) {
    if (std::fabs(candidate - factor) <= room &&
        std::ranges::find(result, candidate) == result.end()) {
      result.push_back(candidate);
    }
  };
  add(0.0);
  for (int digits = 1; digits <= kMostDigits; ++digits) {
    add(ToDigits(factor, digits));
    add(1 / ToDigits(1 / factor, digits));
  }
  return result;
}

std::optional<Trial> ConfirmedFit(const Fit& fit) {
  const double factor = fit.sums.factor();
  const double error = fit.sums.error();
  constexpr double kTold = 0.1;
  if (!std::isfinite(factor) ||
      !(error <= kTold * std::max(std::fabs(fit.right), std::fabs(factor)))) {
    return std::nullopt;
  }
  for (const double number : Candidates(factor, error)) {
    if (number == fit.right || (fit.not_zero && number == 0.0)) continue;
    oracle::Comparison comparison = fit.compare(number);
    if (comparison.other() > 0) continue;
    return Trial{.name = fit.name,
                 .sentence = fit.sentence(number),
                 .compare = [comparison] { return std::optional(comparison); }};
  }
  return std::nullopt;
}

}  // namespace

void LeastSquares::Add(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y) || x == 0.0) return;
  xx_ += x * x;
  xy_ += x * y;
  yy_ += y * y;
  ++count_;
}

double LeastSquares::factor() const {
  return xx_ > 0.0 ? xy_ / xx_ : std::numeric_limits<double>::quiet_NaN();
}

double LeastSquares::error() const {
  if (count_ < 2 || !(xx_ > 0.0)) return HUGE_VAL;
  const double rest = std::max(0.0, yy_ - xy_ * xy_ / xx_);
  return std::sqrt(rest / static_cast<double>(count_ - 1) / xx_);
}

std::vector<Trial> Confirmed(const std::vector<Fit>& fits) {
  std::vector<Trial> trials;
  for (const Fit& fit : fits) {
    if (std::optional<Trial> trial = ConfirmedFit(fit)) {
      trials.push_back(std::move(*trial));
    }
  }
  return trials;
}

}  // namespace isoloss::operations
