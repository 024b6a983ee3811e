#include "isoloss/formats/hadamard.h"

#include <bit>

#include "isoloss/base/error.h"

namespace isoloss::formats {

namespace {

/// Replaces pairs of elements that are kApart apart by their sums and
/// differences.
template <size_t kApart>
void Stage(float (&x)[kHadamardLength]) {
  for (size_t first = 0; first < kHadamardLength; first += 2 * kApart) {
    for (size_t i = first; i < first + kApart; ++i) {
      const float a = x[i];
      const float b = x[i + kApart];
      x[i] = a + b;
      x[i + kApart] = a - b;
    }
  }
}

}  // namespace

void Hadamard16(std::span<float> run, uint32_t negative) {
  ISOLOSS_ASSERT(run.size() == kHadamardLength);
  float x[kHadamardLength];
  for (size_t i = 0; i < kHadamardLength; ++i) {
    const uint32_t sign = (negative >> i & 1) << 31;
    x[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(run[i]) ^ sign);
  }
  Stage<1>(x);
  Stage<2>(x);
  Stage<4>(x);
  Stage<8>(x);
  for (size_t i = 0; i < kHadamardLength; ++i) run[i] = x[i] * 0.25f;
}

}  // namespace isoloss::formats
