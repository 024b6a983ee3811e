// A 16-point Hadamard transform with the signs that a key gives.
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/transform.h"

namespace isoloss::formats {
namespace {

uint32_t Negative(uint64_t key) { return static_cast<uint32_t>(key & 0xFFFF); }

void Apply(std::span<float> run, uint64_t key) {
  Hadamard16(run, Negative(key));
}

}  // namespace

extern constinit const Transform kTransform_hadamard16_random = {
    .name = "hadamard16_random",
    .length = kHadamardLength,
    .random = true,
    .apply = Apply,
    .source = "arXiv 2509.25149, section 3: a random sign vector",
    .negative = Negative,
};

}  // namespace isoloss::formats
