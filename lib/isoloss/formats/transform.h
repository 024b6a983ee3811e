// What is done to runs of an operand along the contraction axis before it is
// quantised. Both operands of a product get it, so that their product stays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace isoloss::formats {

/// An orthogonal transform of runs of `length` elements. Registered in
/// transforms.def; one file each, which defines kTransform_<name>.
struct Transform {
  std::string_view name;
  size_t length;
  /// Depends on `key`, which both operands of a product must share.
  bool random;
  /// In place; run.size() == length. Each operation is one FP32 operation.
  void (*apply)(std::span<float> run, uint64_t key);
  std::string_view source;
  /// Of Hadamard16 (hadamard.h): which elements change their sign, for kernels
  /// that do many runs at once. Null: another transform.
  uint32_t (*negative)(uint64_t key) = nullptr;
};

/// All registered transforms, in the order of transforms.def.
std::span<const Transform* const> AllTransforms();

/// Errors   ConfigError that lists the registered names.
const Transform& TransformByName(std::string_view name);

}  // namespace isoloss::formats
