// Tells which instruction set the kernels run on, and how to force one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace isoloss::kernels {

/// Returns the names of the targets that this processor can run, best first;
/// the last one is always "scalar", the code that defines every result. Vector
/// targets have a fused multiply-add: "avx3" (AVX-512), "avx2", "neon".
std::vector<std::string> SupportedTargets();

/// Returns the target in use: the best one, or the one forced.
std::string ActiveTarget();

/// Uses `name` from now on, in every thread. "" returns to the best one.
/// Errors   ConfigError that lists SupportedTargets() if it is not one of them.
void ForceTarget(std::string_view name);

/// Applies the environment variable ISOLOSS_FORCE_KERNEL, if set.
/// Errors   as ForceTarget.
void ForceTargetFromEnvironment();

}  // namespace isoloss::kernels
