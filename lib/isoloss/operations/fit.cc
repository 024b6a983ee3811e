#include "isoloss/operations/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace isoloss::operations {
namespace {

/// Rounds to `digits` significant digits, as text and back: 0.72 is the double
/// that `0.72` means.
double ToDigits(double value, int digits) {
  return std::strtod(fmt::format("{:.{}e}", value, digits - 1).c_str(),
                     nullptr);
}

/// Returns the candidates in the range, the roundest first.
std::vector<double> Candidates(const FactorRange& range) {
  std::vector<double> result;
  const auto add = [&](double candidate) {
    if (candidate >= range.low() && candidate <= range.high() &&
        std::ranges::find(result, candidate) == result.end()) {
      result.push_back(candidate);
    }
  };
  add(0.0);
  std::ranges::for_each(
      RoundNumbersNear(range.low() + (range.high() - range.low()) / 2), add);
  return result;
}

std::optional<Trial> ConfirmedFit(const Fit& fit) {
  const double low = fit.range.low();
  const double high = fit.range.high();
  constexpr double kTold = 0.25;
  if (!(low <= high) ||
      !(high - low <= kTold * std::max({std::fabs(fit.right), std::fabs(low),
                                        std::fabs(high)}))) {
    return std::nullopt;
  }
  // A nearer number is noise of another error.
  constexpr double kNear = 1e-5;
  size_t tried = 0;
  constexpr size_t kMostTried = 6;
  for (const double number : Candidates(fit.range)) {
    if (std::fabs(number - fit.right) <= kNear * std::fabs(fit.right) ||
        (fit.not_zero && number == 0.0)) {
      continue;
    }
    if (tried++ == kMostTried) break;
    oracle::Comparison comparison = fit.compare(number);
    if (comparison.other() > 0) continue;
    return Trial{.name = fit.name,
                 .sentence = fit.sentence(number),
                 .compare = [comparison] { return std::optional(comparison); }};
  }
  return std::nullopt;
}

}  // namespace

std::vector<double> RoundNumbersNear(double number) {
  constexpr int kMostDigits = 9;  // digits of FP32
  std::vector<double> result;
  for (int digits = 1; digits <= kMostDigits; ++digits) {
    result.push_back(ToDigits(number, digits));
    result.push_back(1 / ToDigits(1 / number, digits));
  }
  return result;
}

void FactorRange::Narrow(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return;
  low_ = std::max(low_, std::min(a, b));
  high_ = std::min(high_, std::max(a, b));
}

void FactorRange::Add(double x, double others, float value, oracle::Grid grid,
                      double bound, bool at_random) {
  if (!std::isfinite(value) || x == 0.0) return;
  const double owed = static_cast<double>(value) - others;
  const double slack = bound * std::max(1.0, std::fabs(owed / x));
  Narrow((EdgeOf(grid, value, false, at_random) - others - slack) / x,
         (EdgeOf(grid, value, true, at_random) - others + slack) / x);
}

double EdgeOf(oracle::Grid grid, float value, bool up, bool at_random) {
  return at_random ? static_cast<double>(Neighbour(grid, value, up))
                   : Boundary(grid, value, up);
}

std::string GradientText(double factor) {
  if (factor == 0.0) return "the gradient was taken as zero";
  if (factor == -1.0) return "the gradient had the other sign";
  return fmt::format(
      "the gradient was {:.9g} times what was recorded: clipped or averaged "
      "otherwise",
      factor);
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
