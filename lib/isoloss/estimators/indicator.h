// Names the indicators that may announce that a run will diverge.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace isoloss::estimators {

/// An indicator is a number of one step of one run.
enum class Indicator : size_t {
  kResidualKurtosis,
  kResidualAmax,
  kSwigluKurtosis,
  kSwigluAmax,
  kSqnr,
  kSaturation,
  kGradientToNoise,
  kRoutingFlips,
  kGradientNorm,  ///< from the run's log, like the next
  kLossRise,
};
inline constexpr size_t kIndicators = 10;
/// The first eight are recorded while a run trains.
inline constexpr size_t kRecorded = 8;

using IndicatorValues = std::array<double, kIndicators>;

struct IndicatorKind {
  Indicator indicator = {};
  std::string_view name = {};  ///< "residual_kurtosis"
  std::string_view unit = {};  ///< "1", "dB", …
  std::string_view what = {};  ///< one sentence
  bool falls = false;          ///< before a divergence; else it rises
  bool decibels = false;
};

std::span<const IndicatorKind> AllIndicators();
const IndicatorKind& IndicatorKindOf(Indicator indicator);

/// Returns how alarming a value is, in doublings: its log2, negated if the
/// indicator falls. For decibels a doubling is 20 log10(2).
/// Special  minus infinity for 0 of an indicator that rises; NaN stays.
double Alarm(const IndicatorKind& kind, double value);

}  // namespace isoloss::estimators
