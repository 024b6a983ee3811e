// Scalar and vector code use the same constants of the elementary functions,
// which are these.
#pragma once

#include <array>
#include <cstdint>

namespace isoloss::kernels {

/// The constants include log2(e), and ln 2 cut in two: `kLn2High` has so few
/// bits that its product with any exponent is exact (Cody and Waite).
template <typename T>
struct ElementaryConstants;

template <>
struct ElementaryConstants<float> {
  using Integer = int32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr int32_t kExponentBias = 127;
  static constexpr float kLog2E = 0x1.715476p+0f;
  static constexpr float kLn2High = 0x1.62e4p-1f;
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  /// To add and then subtract this number rounds to an integer, ties to even.
  static constexpr float kRoundToInteger = 0x1.8p+23f;

  /// Above and below these limits e^x overflows and underflows to zero; both
  /// limits are still inside the range that the scaling by two powers of two
  /// can express.
  static constexpr float kExpMin = -104.0f;
  static constexpr float kExpMax = 89.0f;
  /// This is the Taylor series of (e^r - 1 - r) / r^2, highest power first. For
  /// |r| <= ln(2)/2 the remainder is below r^8 / 8! < 5.2e-9, 0.09 ulp.
  static constexpr std::array<float, 6> kExp = {
      1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2};

  /// These are the bits of sqrt(1/2): log takes mantissas from [sqrt(1/2),
  /// sqrt(2)).
  static constexpr int32_t kSqrtHalfBits = 0x3F3504F3;
  static constexpr float kSmallestNormal = 0x1p-126f;
  static constexpr int kSubnormalShift = 25;
  static constexpr float kSubnormalScale = 0x1p+25f;
  /// This is the series of (2 atanh(s) - 2s) / (s * z), z = s^2 <= 0.0295,
  /// highest power first. The remainder contributes less than 3e-9 relative to
  /// the logarithm.
  static constexpr std::array<float, 4> kLog = {2.0f / 9, 2.0f / 7, 2.0f / 5,
                                                2.0f / 3};
};

template <>
struct ElementaryConstants<double> {
  using Integer = int64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr int64_t kExponentBias = 1023;
  static constexpr double kLog2E = 0x1.71547652b82fep+0;
  static constexpr double kLn2High = 0x1.62e42feep-1;
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kRoundToInteger = 0x1.8p+52;

  static constexpr double kExpMin = -746.0;
  static constexpr double kExpMax = 710.0;
  /// As above, but the remainder is below r^14 / 14! < 5e-18.
  static constexpr std::array<double, 12> kExp = {
      1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
      1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
      1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};

  static constexpr int64_t kSqrtHalfBits = 0x3FE6A09E667F3BCD;
  static constexpr double kSmallestNormal = 0x1p-1022;
  static constexpr int kSubnormalShift = 54;
  static constexpr double kSubnormalScale = 0x1p+54;
  /// As above, but the remainder contributes less than 1e-18.
  static constexpr std::array<double, 9> kLog = {2.0 / 19, 2.0 / 17, 2.0 / 15,
                                                 2.0 / 13, 2.0 / 11, 2.0 / 9,
                                                 2.0 / 7,  2.0 / 5,  2.0 / 3};
};

}  // namespace isoloss::kernels
