#include "isoloss/kernels/normal.h"

#include <cmath>
#include <numbers>

#include "isoloss/kernels/elementary.h"

namespace isoloss::kernels {

double StandardNormal(const std::array<uint32_t, 4>& bits) {
  const uint64_t first = uint64_t{bits[1]} << 32 | bits[0];
  const uint64_t second = uint64_t{bits[3]} << 32 | bits[2];
  // The number lies in (0, 1], so that the logarithm stays finite.
  const double radius_uniform =
      static_cast<double>((first >> 11) + 1) * 0x1p-53;
  const double angle_uniform = static_cast<double>(second >> 11) * 0x1p-53;
  double sine = 0.0;
  double cosine = 0.0;
  SinCos(2.0 * std::numbers::pi * angle_uniform, &sine, &cosine);
  return std::sqrt(-2.0 * Log(radius_uniform)) * cosine;
}

}  // namespace isoloss::kernels
