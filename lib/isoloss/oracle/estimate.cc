#include "isoloss/oracle/estimate.h"

#include <algorithm>
#include <array>
#include <limits>

#include "isoloss/base/portable_math.h"

namespace isoloss::oracle {
namespace {

/// The number beyond `value` among those whose FP32 bits are multiples of
/// 2^`shift`: FP32 itself for 0, BF16 for 16.
float Beyond(float value, bool up, int shift) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t step = uint32_t{1} << shift;
  if ((bits & 0x7FFFFFFF) == 0) {
    return std::bit_cast<float>(up ? step : step | 0x80000000);
  }
  const bool away = up == ((bits & 0x80000000) == 0);
  return std::bit_cast<float>(away ? bits + step : bits - step);
}

/// FP16: 10 bits after the leading one, exponents from -14 to 15.
constexpr int kFp16Bits = 10;
constexpr int kFp16Least = -14;
constexpr double kFp16Most = 65504.0;

/// Spacing of FP16 numbers from `size` on.
double Fp16Spacing(double size) {
  const int exponent = size > 0.0 ? std::ilogb(size) : kFp16Least;
  return std::ldexp(1.0, std::max(exponent, kFp16Least) - kFp16Bits);
}

float RoundToFp16(double exact) {
  // Halfway from the largest number to the next power of two.
  constexpr double kFirstInfinite = 65520.0;
  const double size = std::fabs(exact);
  if (!(size < kFirstInfinite)) {
    return static_cast<float>(
        std::isnan(exact) ? exact : std::copysign(HUGE_VAL, exact));
  }
  const double spacing = Fp16Spacing(size);
  return static_cast<float>(std::nearbyint(exact / spacing) * spacing);
}

/// As Beyond() on FP16's grid.
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

/// The tail beyond is below 1e-15.
constexpr double kFarthest = 8.0;

/// P(N(0, 1) > t) for 0 <= t < kFarthest: a straight line between values 1 /
/// 256 apart, which is off by (1 / 256)^2 / 8 times the second derivative: at
/// most 2e-6 t^2 of the value and 5e-7. Erfc itself took a third of a probe's
/// time.
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
  // One more than a place just below the end needs.
  std::array<double, static_cast<size_t>(kFarthest* kSteps) + 2> values_;
};

}  // namespace

float RoundTo(Grid grid, double exact) {
  if (grid == Grid::kFp16) return RoundToFp16(exact);
  const auto rounded = static_cast<float>(exact);
  if (grid == Grid::kFp32 || !std::isfinite(rounded)) {
    return grid == Grid::kFp32 ? rounded : formats::RoundToBf16(rounded);
  }
  // Through FP32 a value just off a tie would become one. Of the two FP32
  // numbers around it the odd one keeps it off.
  const auto back = static_cast<double>(rounded);
  if (back == exact || (std::bit_cast<uint32_t>(rounded) & 1) != 0) {
    return formats::RoundToBf16(rounded);
  }
  return formats::RoundToBf16(Beyond(rounded, /*up=*/back < exact, 0));
}

float Neighbour(Grid grid, float value, bool up) {
  if (grid == Grid::kFp16) return Fp16Beyond(value, up);
  return Beyond(value, up, grid == Grid::kBf16 ? 16 : 0);
}

double Boundary(Grid grid, float value, bool up) {
  const auto here = static_cast<double>(value);
  const auto beyond = static_cast<double>(Neighbour(grid, value, up));
  if (std::isfinite(beyond)) return 0.5 * (here + beyond);
  // The largest value's interval is as wide on both sides.
  return here + 0.5 * (here - static_cast<double>(Neighbour(grid, value, !up)));
}

double Ulp(double value) {
  const double size = std::fabs(value);
  if (!(size >= 0x1p-126)) return kTiny;
  if (size >= 0x1p127) return 0x1p104;
  // The power of two at or below it is its exponent field alone.
  constexpr uint64_t kExponent = 0x7FF0'0000'0000'0000;
  return 0x1p-23 *
         std::bit_cast<double>(std::bit_cast<uint64_t>(size) & kExponent);
}

double TailProbability(double distance, double noise) {
  static const TailTable kTable;
  if (!(distance < kFarthest * noise)) return 0.0;  // or no noise
  return kTable.At(distance / noise);
}

Estimate operator+(const Estimate& a, const Estimate& b) {
  const Estimate& likelier = a.jump_probability >= b.jump_probability ? a : b;
  return {.exact = a.exact + b.exact,
          .bound = a.bound + b.bound,
          .noise = RootOfSquares(a.noise, b.noise),
          .jump_probability = likelier.jump_probability,
          .jump = likelier.jump,
          .lean = a.lean + b.lean};
}

Estimate operator*(const Estimate& a, double factor) {
  const double size = std::fabs(factor);
  return {.exact = a.exact * factor,
          .bound = a.bound * size,
          .noise = a.noise * size,
          .jump_probability = a.jump_probability,
          .jump = a.jump * factor,
          .lean = a.lean * size};
}

Estimate Overflowed32(const Estimate& a) {
  // Halfway from the largest FP32 number to the next power of two.
  constexpr double kFirstInfinite = 0x1.ffffffp127;
  if (!std::isfinite(a.exact)) return {.exact = a.exact};
  if (std::fabs(a.exact) - a.bound < kFirstInfinite) return a;
  return {.exact = std::copysign(HUGE_VAL, a.exact)};
}

Estimate Rounded32(const Estimate& unbounded, size_t roundings) {
  const Estimate a = Overflowed32(unbounded);
  if (!std::isfinite(a.exact)) return a;
  const bool representable =
      roundings == 1 && a.noise == 0.0 && FitsFp32(a.exact);
  if (representable && a.bound == 0.0) return a;
  Estimate result = a;
  result.bound += Gamma(roundings) * (std::fabs(a.exact) + a.bound) +
                  static_cast<double>(roundings) * kTiny;
  if (representable) return result;
  result.noise = RootOfSquares(
      a.noise, std::sqrt(static_cast<double>(roundings) / 12.0) * Ulp(a.exact));
  return result;
}

Estimate RoundedOnTheWay(Grid grid, const Estimate& a) {
  if (grid == Grid::kFp32) return a;
  const float want = RoundTo(grid, a.exact);
  const auto center = static_cast<double>(want);
  Estimate result = {.exact = center};
  if (!std::isfinite(center)) return result;
  const auto low = static_cast<double>(RoundTo(grid, a.exact - a.bound));
  const auto high = static_cast<double>(RoundTo(grid, a.exact + a.bound));
  result.bound = std::max(center - low, high - center);
  if (result.bound == 0.0) return result;
  const bool up = a.exact >= center;
  const double distance = std::fabs(Boundary(grid, want, up) - a.exact);
  result.jump_probability = TailProbability(distance, a.noise);
  result.jump = static_cast<double>(Neighbour(grid, want, up)) - center;
  const double jumped =
      static_cast<double>(RoundTo(grid, a.exact + a.jump)) - center;
  if (jumped != 0.0 && a.jump_probability > result.jump_probability) {
    result.jump = jumped;
    result.jump_probability = a.jump_probability;
  }
  return result;
}

}  // namespace isoloss::oracle
