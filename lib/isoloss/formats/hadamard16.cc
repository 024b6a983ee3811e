// A 16-point Hadamard transform that changes no sign.
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/transform.h"

namespace isoloss::formats {
namespace {

uint32_t Negative(uint64_t /*key*/) { return 0; }

void Apply(std::span<float> run, uint64_t key) {
  Hadamard16(run, Negative(key));
}

}  // namespace

extern constinit const Transform kTransform_hadamard16 = {
    .name = "hadamard16",
    .length = kHadamardLength,
    .random = false,
    .apply = Apply,
    .source = "arXiv 2509.25149, section 3",
    .negative = Negative,
};

}  // namespace isoloss::formats
