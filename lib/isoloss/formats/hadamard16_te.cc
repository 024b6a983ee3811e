// A 16-point Hadamard transform with TransformerEngine's signs.
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/transform.h"

namespace isoloss::formats {
namespace {

/// + + + - + - - - - - - + - + - -, bit i of element i.
constexpr uint32_t kNegative = 0b1101'0111'1110'1000;

uint32_t Negative(uint64_t /*key*/) { return kNegative; }

void Apply(std::span<float> run, uint64_t key) {
  Hadamard16(run, Negative(key));
}

}  // namespace

extern constinit const Transform kTransform_hadamard16_te = {
    .name = "hadamard16_te",
    .length = kHadamardLength,
    .random = false,
    .apply = Apply,
    .source = "TransformerEngine d0067d0, its sign vector of NVFP4",
    .negative = Negative,
};

}  // namespace isoloss::formats
