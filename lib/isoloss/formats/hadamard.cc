#include "isoloss/formats/hadamard.h"

#include "isoloss/base/error.h"
#include "isoloss/formats/rules.h"

namespace isoloss::formats {

void Hadamard16(std::span<float> run, uint32_t negative) {
  ISOLOSS_ASSERT(run.size() == kHadamardLength);
  Hadamard16(run.data(), negative);
}

}  // namespace isoloss::formats
