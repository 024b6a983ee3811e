// A 16-point Hadamard transform with TransformerEngine's signs.
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/transform.h"

namespace isoloss::formats {
namespace {

void Apply(std::span<float> run, uint64_t /*key*/) {
  // + + + - + - - - - - - + - + - -, bit i of element i.
  constexpr uint32_t kNegative = 0b1101'0111'1110'1000;
  Hadamard16(run, kNegative);
}

}  // namespace

extern constinit const Transform kTransform_hadamard16_te = {
    .name = "hadamard16_te",
    .length = kHadamardLength,
    .random = false,
    .apply = Apply,
    .source = "TransformerEngine d0067d0, its sign vector of NVFP4",
};

}  // namespace isoloss::formats
