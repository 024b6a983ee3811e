// Is the 16-point Walsh-Hadamard transform with signs. It may be applied to
// runs of an operand along the contraction axis before the operand is
// quantised. Both operands of a product get it, so that their product stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/base/named.h"

namespace isoloss::formats {

/// Transforms differ in the signs that they change.
/// Source   arXiv 2509.25149, section 3; TransformerEngine d0067d0, its sign
///          vector of NVFP4 (kHadamard16Te).
enum class Transform {
  kNone,
  kHadamard16,        ///< changes no sign
  kHadamard16Te,      ///< with TransformerEngine's signs
  kHadamard16Random,  ///< with the signs that a key gives, which both operands
                      ///< of a product must share
};
inline constexpr Named<Transform> kTransformNames[] = {
    {"none", Transform::kNone},
    {"hadamard16", Transform::kHadamard16},
    {"hadamard16_te", Transform::kHadamard16Te},
    {"hadamard16_random", Transform::kHadamard16Random}};

inline constexpr size_t kHadamardLength = 16;

/// Returns the number of elements of a run; 1 for kNone.
constexpr size_t RunLength(Transform transform) {
  return transform == Transform::kNone ? 1 : kHadamardLength;
}

/// Says which elements change their sign: bit i is for element i.
constexpr uint32_t NegativeElements(Transform transform, uint64_t key) {
  switch (transform) {
    case Transform::kNone:
    case Transform::kHadamard16:
      break;
    case Transform::kHadamard16Te:  // + + + - + - - - - - - + - + - -
      return 0b1101'0111'1110'1000;
    case Transform::kHadamard16Random:
      return static_cast<uint32_t>(key & 0xFFFF);
  }
  return 0;
}

/// Sets run = (1/4) H diag(signs) run, with H in Sylvester's order. Element i
/// changes its sign if bit i of `negative` is set. Four stages of sums and
/// differences of elements 1, 2, 4 and 8 apart follow. Then all elements are
/// multiplied by 1/4. Each operation is one FP32 operation.
void Hadamard16(std::span<float> run, uint32_t negative);

}  // namespace isoloss::formats
