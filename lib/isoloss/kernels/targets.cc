#include "isoloss/kernels/targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include "isoloss/base/error.h"

// Compiles this file once per target. CMakeLists.txt settles which targets
// these are.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/targets.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

int64_t ThisTarget() { return HWY_TARGET; }

}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(ThisTarget);

constexpr int64_t kFallbackTargets = HWY_SCALAR | HWY_EMU128;
constexpr int64_t kVectorTargets = HWY_TARGETS & ~kFallbackTargets;

std::string NameOf(int64_t target) {
  if ((target & kFallbackTargets) != 0) return "scalar";
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return name;
}

/// The processor is asked once: hwy::SupportedTargets chooses the best target
/// whenever it is called (1.0.3), and a forced one would be lost.
int64_t Supported() {
  static const int64_t targets = hwy::SupportedTargets();
  return targets;
}

/// Finds the target called `name`; 0 stands for the scalar code, -1 for none.
int64_t SupportedTarget(std::string_view name) {
  if (name == "scalar") return 0;
  for (int64_t left = Supported() & kVectorTargets; left != 0;
       left &= left - 1) {
    const int64_t target = left & -left;
    if (NameOf(target) == name) return target;
  }
  return -1;
}

}  // namespace

std::vector<std::string> SupportedTargets() {
  std::vector<std::string> names;
  for (int64_t left = Supported() & kVectorTargets; left != 0;
       left &= left - 1) {
    names.push_back(NameOf(left & -left));
  }
  names.push_back("scalar");
  return names;
}

std::string ActiveTarget() {
  return NameOf(HWY_DYNAMIC_DISPATCH(ThisTarget)());
}

void ForceTarget(std::string_view name) {
  const int64_t supported = Supported();
  const int64_t target = name.empty() ? supported : SupportedTarget(name);
  if (target < 0) {
    ThrowError(ErrorKind::kConfig,
               "kernel target (ISOLOSS_FORCE_KERNEL): `{}` is given, but this "
               "processor runs {}. Choose one of these.",
               name, fmt::join(SupportedTargets(), ", "));
  }
  // Every dispatch reads this atomic mask; no bit set means the fallback.
  hwy::GetChosenTarget().Update(target);
}

void ForceTargetFromEnvironment() {
  const char* name = std::getenv("ISOLOSS_FORCE_KERNEL");
  if (name != nullptr) ForceTarget(name);
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
