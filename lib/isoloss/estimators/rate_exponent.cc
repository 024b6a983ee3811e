#include "isoloss/estimators/rate_exponent.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/portable_math.h"

namespace isoloss::estimators {
namespace {

constexpr double kLeastExponent = -1.5;
constexpr double kLargestExponent = 0.25;

}  // namespace

bool WidthsTellExponent(size_t a, size_t b) {
  const auto [less, more] = std::minmax(a, b);
  return static_cast<double>(more) >=
         kLeastWidthFactor * static_cast<double>(less);
}

RateExponent ExponentBetween(const RateAtWidth& a, const RateAtWidth& b) {
  if (!WidthsTellExponent(a.width, b.width)) {
    return {.why_assumed = fmt::format(
                "the swept widths, {} and {}, differ by less than a factor {}",
                a.width, b.width, kLeastWidthFactor)};
  }
  const double widths = portable::Log(static_cast<double>(b.width) /
                                      static_cast<double>(a.width));
  const auto between = [&](double of_a, double of_b) {
    return portable::Log(of_b / of_a) / widths;
  };
  RateExponent exponent{.value = between(a.rate, b.rate)};
  if (exponent.value < kLeastExponent || exponent.value > kLargestExponent) {
    return {.why_assumed = fmt::format(
                "the optima of both sweeps, {:.3g} at width {} and {:.3g} at "
                "width {}, give {:.2f}, outside [{}, {}], so that more seeds "
                "or a width farther off must tell",
                a.rate, a.width, b.rate, b.width, exponent.value,
                kLeastExponent, kLargestExponent)};
  }
  std::vector<double> of_seeds;
  for (const double of_a : a.seed_optima) {
    for (const double of_b : b.seed_optima) {
      of_seeds.push_back(between(of_a, of_b));
    }
  }
  if (of_seeds.empty()) {
    return {.why_assumed =
                "a sweep has a seed without an inner optimum, so that nobody "
                "knows how far chance moves the power"};
  }
  exponent.least = std::ranges::min(of_seeds);
  exponent.largest = std::ranges::max(of_seeds);
  if (!(exponent.least >= kLeastExponent &&
        exponent.largest <= kLargestExponent)) {
    return {.why_assumed = fmt::format(
                "single seeds give powers from {:.2f} to {:.2f}, not inside "
                "[{}, {}], so that more seeds or a width farther off must tell",
                exponent.least, exponent.largest, kLeastExponent,
                kLargestExponent)};
  }
  return exponent;
}

}  // namespace isoloss::estimators
