#include "isoloss/oracle/estimate.h"

#include <algorithm>
#include <array>
#include <limits>

#include "isoloss/base/portable_math.h"

namespace isoloss::oracle {
namespace {

/// FP16 has 10 bits after the leading one and exponents from -14 to 15.
constexpr int kFp16Bits = 10;
constexpr int kFp16Least = -14;
constexpr double kFp16Most = 65504.0;

/// Returns the spacing of FP16 numbers from `size` on.
double Fp16Spacing(double size) {
  const int exponent = size > 0.0 ? std::ilogb(size) : kFp16Least;
  return std::ldexp(1.0, std::max(exponent, kFp16Least) - kFp16Bits);
}

/// Tabulates P(N(0, 1) > t) for 0 <= t < kFarthestTail, since Erfc took a third
/// of a probe's time. Values 1 / 256 apart are joined by straight lines. Such a
/// line is off by (1 / 256)^2 / 8 times the second derivative: at most 2e-6 t^2
/// of the value and 5e-7.
class TailTable {
 public:
  TailTable() {
    for (size_t i = 0; i < values_.size(); ++i) {
      const double t = static_cast<double>(i) / kSteps;
      values_[i] = 0.5 * portable::Erfc(t / std::sqrt(2.0));
    }
  }
  double At(double t) const {
    const double place = t * kSteps;
    const auto i = static_cast<size_t>(place);
    return values_[i] +
           (place - static_cast<double>(i)) * (values_[i + 1] - values_[i]);
  }

 private:
  static constexpr double kSteps = 256.0;
  // Interpolation just below the end reads one more value.
  std::array<double, static_cast<size_t>(internal::kFarthestTail* kSteps) + 2>
      values_;
};

}  // namespace

namespace internal {

float RoundToFp16(double exact) {
  // This lies halfway from the largest number to the next power of two.
  constexpr double kFirstInfinite = 65520.0;
  const double size = std::fabs(exact);
  if (!(size < kFirstInfinite)) {
    return static_cast<float>(
        std::isnan(exact) ? exact : std::copysign(HUGE_VAL, exact));
  }
  const double spacing = Fp16Spacing(size);
  return static_cast<float>(std::nearbyint(exact / spacing) * spacing);
}

float Fp16Beyond(float value, bool up) {
  const auto here = static_cast<double>(value);
  const double size = std::fabs(here);
  if (std::isinf(here)) {
    const bool away = up == (here > 0.0);
    return away ? std::nanf("")
                : static_cast<float>(std::copysign(kFp16Most, here));
  }
  const bool away = size == 0.0 || up == (here > 0.0);
  const double sign =
      size == 0.0 ? (up ? 1.0 : -1.0) : std::copysign(1.0, here);
  // Just below a power of two numbers lie half as far apart.
  const double spacing = Fp16Spacing(away ? size : std::nextafter(size, 0.0));
  const double beyond = away ? size + spacing : size - spacing;
  return static_cast<float>(sign * (beyond > kFp16Most ? HUGE_VAL : beyond));
}

double TailBeyond(double t) {
  static const TailTable kTable;
  return kTable.At(t);
}

void AddJump(Grid grid, const Estimate& a, float want, Estimate& rounded) {
  const auto center = static_cast<double>(want);
  const bool up = a.exact >= center;
  const double distance = std::fabs(Boundary(grid, want, up) - a.exact);
  rounded.jump_probability = TailProbability(distance, a.noise);
  rounded.jump = static_cast<double>(Neighbour(grid, want, up)) - center;
  const double jumped =
      static_cast<double>(RoundTo(grid, a.exact + a.jump)) - center;
  if (jumped != 0.0 && a.jump_probability > rounded.jump_probability) {
    rounded.jump = jumped;
    rounded.jump_probability = a.jump_probability;
  }
}

}  // namespace internal

}  // namespace isoloss::oracle
