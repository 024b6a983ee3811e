#include "isoloss/formats/hadamard.h"

#include "isoloss/base/error.h"

namespace isoloss::formats {

void Hadamard16(std::span<float> run, uint32_t negative) {
  ISOLOSS_ASSERT(run.size() == kHadamardLength);
  for (size_t i = 0; i < kHadamardLength; ++i) {
    if ((negative >> i & 1) != 0) run[i] = -run[i];
  }
  for (size_t apart = 1; apart < kHadamardLength; apart *= 2) {
    for (size_t i = 0; i < kHadamardLength; ++i) {
      if ((i & apart) != 0) continue;
      const float a = run[i];
      const float b = run[i + apart];
      run[i] = a + b;
      run[i + apart] = a - b;
    }
  }
  for (float& value : run) value *= 0.25f;
}

}  // namespace isoloss::formats
