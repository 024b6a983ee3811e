#include "isoloss/doctor/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/train/numerics_digest.h"

namespace isoloss::doctor {
namespace {

/// A change of numerics changes these digests, in the commit that makes the
/// goldens anew.
constexpr KnownNumerics kKnown[] = {
    {"bf16", 0xbf184ebc4435cd94},
    {"mxfp8_rceil", 0x587166fb3f06fcfd},
    {"mxfp4_rht_sr", 0xc6a3c90c32cd727f},
    {"te_nvfp4", 0x19c7db669f65b72d},
    {"deepseek_v3_fp8", 0x026c19be37d3f8b5},
};

/// Restores the target in use.
class ForcedTarget {
 public:
  ForcedTarget() : before_(kernels::ActiveTarget()) {}
  ~ForcedTarget() { kernels::ForceTarget(before_); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

  const std::string& before() const { return before_; }

 private:
  std::string before_;
};

/// The sizes are 2 and 3, which split loops unevenly, and the number of
/// processors.
std::vector<int> TeamSizes() {
  constexpr int kMost = 16;
  std::set<int> sizes = {2, 3, std::min(AvailableProcessors(), kMost)};
  sizes.erase(1);
  return {sizes.begin(), sizes.end()};
}

/// The scalar code takes ten times as long, so its first recipes are enough.
constexpr size_t kOfScalar = 2;

void Train(std::span<const KnownNumerics> known, const std::string& target,
           Executor& executor, SelfTest& test) {
  for (const KnownNumerics& numerics : known) {
    train::Arm arm;
    arm.recipe = numerics.recipe;
    const uint64_t found = train::NumericsDigest(arm, executor);
    ++test.trainings;
    if (found == numerics.digest) continue;
    test.wrong.push_back(
        {numerics.recipe, target, executor.size(), numerics.digest, found});
  }
}

void TrainOnHost(std::span<const KnownNumerics> known,
                 const std::string& target, int threads, SelfTest& test) {
  if (target == "scalar") {
    known = known.first(std::min(known.size(), kOfScalar));
  }
  kernels::ForceTarget(target);
  Executor executor(threads);
  Train(known, target, executor, test);
}

void TrainOnGpus(std::span<const KnownNumerics> known, SelfTest& test) {
  for (int gpu = 0; gpu < device::CudaDevices(); ++gpu) {
    try {
      const auto executor = device::MakeCuda(gpu, /*host_threads=*/1);
      test.targets.push_back(fmt::format("GPU {}", gpu));
      Train(known, test.targets.back(), *executor, test);
    } catch (const Error& error) {
      test.failures.push_back(error.what());
    }
  }
}

}  // namespace

std::span<const KnownNumerics> AllKnownNumerics() { return kKnown; }

SelfTest RunSelfTest(std::span<const KnownNumerics> known) {
  const ForcedTarget forced;
  SelfTest test;
  test.targets = kernels::SupportedTargets();
  const auto in_use = std::ranges::find(test.targets, forced.before());
  std::rotate(test.targets.begin(), in_use, in_use + 1);
  test.threads = TeamSizes();
  for (const std::string& target : test.targets) {
    TrainOnHost(known, target, 1, test);
  }
  for (const int threads : test.threads) {
    TrainOnHost(known, forced.before(), threads, test);
  }
  TrainOnGpus(known, test);
  return test;
}

std::string DiagnosisOf(const SelfTest& test) {
  if (test.wrong.empty()) return "";
  std::set<std::string> targets;
  std::set<std::string> recipes;
  std::set<uint64_t> found;
  bool threads_only = true;
  for (const WrongNumerics& wrong : test.wrong) {
    targets.insert(wrong.target);
    recipes.insert(wrong.recipe);
    found.insert(wrong.found);
    threads_only = threads_only && wrong.threads > 1;
  }
  const WrongNumerics& first = test.wrong.front();
  const std::string example =
      fmt::format("{} has {:016x}, known is {:016x}", first.recipe, first.found,
                  first.expected);
  const std::string count =
      fmt::format("{} of {} trainings", test.wrong.size(), test.trainings);
  if (threads_only) {
    return fmt::format(
        "{} differ from the known bits, with several threads only: {} with {} "
        "threads",
        count, example, first.threads);
  }
  if (targets.size() == 1 && test.targets.size() > 1) {
    return fmt::format(
        "{} differ from the known bits, on kernel target {} only: {}", count,
        first.target, example);
  }
  if (found.size() == recipes.size()) {
    return fmt::format(
        "{} differ from the known bits, and alike on all kernel targets: {}",
        count, example);
  }
  return fmt::format("{} differ from the known bits and from each other: {}",
                     count, example);
}

}  // namespace isoloss::doctor
