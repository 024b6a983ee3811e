// What exact arithmetic gives, and how far FP32 arithmetic may be from it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "isoloss/formats/bf16.h"

namespace isoloss::oracle {

/// A rounding to FP32 is off by at most this much of the value: half the
/// spacing of numbers in [1, 2).
inline constexpr double kUnitRoundoff = 0x1p-24;
/// Spacing of subnormal FP32 numbers; no rounding is finer.
inline constexpr double kTiny = 0x1p-149;

/// The values that a tensor may hold.
enum class Grid { kBf16, kFp16, kFp32 };

/// Relative error of n roundings in a row, n u / (1 - n u).
inline double Gamma(size_t n) {
  const double nu = static_cast<double>(n) * kUnitRoundoff;
  return nu / (1.0 - nu);
}

struct Estimate;

namespace internal {

/// The number beyond `value` among those whose FP32 bits are multiples of
/// 2^`shift`: FP32 itself for 0, BF16 for 16.
inline float Beyond(float value, bool up, int shift) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t step = uint32_t{1} << shift;
  if ((bits & 0x7FFFFFFF) == 0) {
    return std::bit_cast<float>(up ? step : step | 0x80000000);
  }
  const bool away = up == ((bits & 0x80000000) == 0);
  return std::bit_cast<float>(away ? bits + step : bits - step);
}

/// To FP16, ties to even, and as Beyond on its grid.
float RoundToFp16(double exact);
float Fp16Beyond(float value, bool up);

/// What RoundedOnTheWay adds to `rounded` where another number than `want` may
/// come out.
void AddJump(Grid grid, const Estimate& a, float want, Estimate& rounded);

/// P(N(0, 1) > t), 0 <= t < kFarthestTail.
double TailBeyond(double t);
/// Where it is taken for 0: it is below 1e-15.
inline constexpr double kFarthestTail = 8.0;

}  // namespace internal

/// `exact` rounded once to the grid, ties to even; never by way of FP32.
inline float RoundTo(Grid grid, double exact) {
  if (grid == Grid::kFp16) return internal::RoundToFp16(exact);
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
  return formats::RoundToBf16(
      internal::Beyond(rounded, /*up=*/back < exact, 0));
}

/// The next number of the grid above or below `value`, which lies on it.
inline float Neighbour(Grid grid, float value, bool up) {
  if (grid == Grid::kFp16) return internal::Fp16Beyond(value, up);
  return internal::Beyond(value, up, grid == Grid::kBf16 ? 16 : 0);
}

/// Where rounding to the nearest leaves `value` for that neighbour.
inline double Boundary(Grid grid, float value, bool up) {
  const auto here = static_cast<double>(value);
  const auto beyond = static_cast<double>(Neighbour(grid, value, up));
  if (std::isfinite(beyond)) return 0.5 * (here + beyond);
  // The largest value's interval is as wide on both sides.
  return here + 0.5 * (here - static_cast<double>(Neighbour(grid, value, !up)));
}

/// Whether it is clear at first sight that all numbers within `reach` of
/// `exact` round to `value` in BF16. Never where that is subnormal or next to
/// overflow.
inline bool SurelyRoundsToBf16(double exact, double reach, float value) {
  constexpr uint64_t kExponent = 0x7FF0'0000'0000'0000;
  const auto center = static_cast<double>(value);
  const double size = std::fabs(center);
  const auto power =
      std::bit_cast<double>(std::bit_cast<uint64_t>(size) & kExponent);
  // Half a spacing, which is half as large below a power of two, less what the
  // sum may be rounded.
  const double room =
      (size == power ? 0x1p-9 : 0x1p-8) * (1.0 - 0x1p-20) * power;
  return std::fabs(exact - center) + reach <= room &&
         (std::bit_cast<uint32_t>(value) & 0xFFFF) == 0 && size >= 0x1p-120 &&
         size <= 0x1p120;
}
/// Spacing of FP32 numbers at `value`; that of the largest for infinity.
inline double Ulp(double value) {
  const double size = std::fabs(value);
  if (!(size >= 0x1p-126)) return kTiny;
  if (size >= 0x1p127) return 0x1p104;
  // The power of two at or below it is its exponent field alone.
  constexpr uint64_t kExponent = 0x7FF0'0000'0000'0000;
  return 0x1p-23 *
         std::bit_cast<double>(std::bit_cast<uint64_t>(size) & kExponent);
}

inline bool FitsFp32(double value) {
  return static_cast<double>(static_cast<float>(value)) == value;
}
/// sqrt(a^2 + b^2); squares of what FP32 computes with are far inside double.
inline double RootOfSquares(double a, double b) {
  // The root of a square is the number itself, to the bit.
  if (a == 0.0 && b > 0x1p-400 && b < 0x1p400) return b;
  if (b == 0.0 && a > 0x1p-400 && a < 0x1p400) return a;
  return std::sqrt(a * a + b * b);
}
/// P(N(0, noise^2) > distance), distance >= 0.
inline double TailProbability(double distance, double noise) {
  // Also where there is no noise.
  if (!(distance < internal::kFarthestTail * noise)) return 0.0;
  return internal::TailBeyond(distance / noise);
}

/// A value that FP32 arithmetic computes with unknown roundings.
struct Estimate {
  double exact = 0.0;
  /// Largest error of the arithmetic in any order, absolute.
  double bound = 0.0;
  /// Standard deviation of the error of the ascending order.
  double noise = 0.0;
  /// A rounding to BF16 on the way falls to the other side with this
  /// probability; the value is then off by `jump`.
  double jump_probability = 0.0;
  double jump = 0.0;
  /// What the mean of the error may be, either way, over elements that share
  /// what they are multiplied by (kScaledLean).
  double lean = 0.0;
};

/// Mean size, in spacings, of the error of a rounding: that of values between
/// -1/2 and 1/2. Where sums of few bits are multiplied by one scale in FP32,
/// what is left behind the last place follows from the bits of the scale, so
/// that errors are no independent draws and all signs may agree. 110 scales of
/// tensors in E4M3 gave means of up to 0.17, 0.07 and 0.04 with sums of 2, 6
/// and 8 bits; 0.10 was seen of sums of 14 bits in a weight gradient under a
/// scale in E5M2. Elements of fewer than four significands may lean more.
inline constexpr double kScaledLean = 0.25;

/// In exact arithmetic; errors add up.
inline Estimate operator+(const Estimate& a, const Estimate& b) {
  const Estimate& likelier = a.jump_probability >= b.jump_probability ? a : b;
  return {.exact = a.exact + b.exact,
          .bound = a.bound + b.bound,
          .noise = RootOfSquares(a.noise, b.noise),
          .jump_probability = likelier.jump_probability,
          .jump = likelier.jump,
          .lean = a.lean + b.lean};
}

inline Estimate operator*(const Estimate& a, double factor) {
  const double size = std::fabs(factor);
  return {.exact = a.exact * factor,
          .bound = a.bound * size,
          .noise = a.noise * size,
          .jump_probability = a.jump_probability,
          .jump = a.jump * factor,
          .lean = a.lean * size};
}

/// `a`, but an infinity or NaN without any error where no FP32 arithmetic can
/// give a finite number.
inline Estimate Overflowed32(const Estimate& a) {
  // Halfway from the largest FP32 number to the next power of two.
  constexpr double kFirstInfinite = 0x1.ffffffp127;
  if (!std::isfinite(a.exact)) return {.exact = a.exact};
  if (std::fabs(a.exact) - a.bound < kFirstInfinite) return a;
  return {.exact = std::copysign(HUGE_VAL, a.exact)};
}

/// `a` after `roundings` roundings to FP32 at about its own size. One rounding
/// of an exact FP32 number changes nothing, and most likely nothing if only a
/// rare jump makes it inexact.
inline Estimate Rounded32(const Estimate& unbounded, size_t roundings = 1) {
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

/// `a` after a rounding to the grid on the way to something else. kBf16: the
/// exact value is RoundTo(a.exact), and only where the error of `a` reaches a
/// rounding boundary anything else may come out. kFp32: a itself.
inline Estimate RoundedOnTheWay(Grid grid, const Estimate& a) {
  if (grid == Grid::kFp32) return a;
  const float want = RoundTo(grid, a.exact);
  const auto center = static_cast<double>(want);
  Estimate result = {.exact = center};
  if (grid == Grid::kBf16 && SurelyRoundsToBf16(a.exact, a.bound, want)) {
    return result;
  }
  if (!std::isfinite(center)) return result;
  const auto low = static_cast<double>(RoundTo(grid, a.exact - a.bound));
  const auto high = static_cast<double>(RoundTo(grid, a.exact + a.bound));
  result.bound = std::max(center - low, high - center);
  if (result.bound == 0.0) return result;
  internal::AddJump(grid, a, want, result);
  return result;
}

}  // namespace isoloss::oracle
