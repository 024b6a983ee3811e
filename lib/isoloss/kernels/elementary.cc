#include "isoloss/kernels/elementary.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "isoloss/base/error.h"

namespace isoloss::kernels {
void SinCos(double x, double* sin, double* cos) {
  ISOLOSS_ASSERT(std::fabs(x) <= 0x1p20);
  // These are the two parts of pi/2. The first has 33 bits, so that its product
  // with the quadrant number (20 bits) is exact; the parts omit less than 1e-20
  // in all.
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kHalfPiHigh = 0x1.921fb544p+0;
  constexpr double kHalfPiLow = 0x1.0b4611a626331p-34;
  constexpr double kRound = ElementaryConstants<double>::kRoundToInteger;
  const double n = std::fma(x, kTwoOverPi, kRound) - kRound;
  const double r = std::fma(-n, kHalfPiLow, std::fma(-n, kHalfPiHigh, x));
  // These are Taylor series in z = r^2, |r| <= pi/4. The remainders are below
  // r^17 / 17! and r^18 / 18!, both < 5e-17.
  constexpr std::array<double, 7> kSin = {
      -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
      -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  constexpr std::array<double, 8> kCos = {
      1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
      1.0 / 40320,          -1.0 / 720,         1.0 / 24,        -1.0 / 2};
  const double z = r * r;
  const double s = std::fma(r * z, Horner(z, kSin), r);
  const double c = std::fma(z, Horner(z, kCos), 1.0);
  const auto quadrant = static_cast<int64_t>(n) & 3;
  const double abs_sin = (quadrant & 1) != 0 ? c : s;
  const double abs_cos = (quadrant & 1) != 0 ? s : c;
  *sin = (quadrant & 2) != 0 ? -abs_sin : abs_sin;
  *cos = quadrant == 1 || quadrant == 2 ? -abs_cos : abs_cos;
}

}  // namespace isoloss::kernels
