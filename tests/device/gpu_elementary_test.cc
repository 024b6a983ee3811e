// On a GPU the elementary functions have the bits of their scalar text, for all
// 2^32 inputs.
#include "gpu_elementary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "executors.h"

namespace isoloss::device::gpu_elementary_test {
namespace {

struct NamedFunction {
  const char* name;
  Elementary function;
};

class GpuElementaryTest : public testing::TestWithParam<NamedFunction> {};

/// Says how many results differ from the scalar text, and which is the first.
struct Differences {
  size_t count = 0;
  uint32_t first = 0;
};

Differences Compare(Elementary function, uint32_t first,
                    std::span<const uint32_t> results) {
  Differences differences;
  for (size_t i = 0; i < results.size(); ++i) {
    const uint32_t input = first + static_cast<uint32_t>(i);
    if (results[i] == ElementaryBits(function, input)) continue;
    if (differences.count++ == 0) differences.first = input;
  }
  return differences;
}

TEST_P(GpuElementaryTest, HasTheBitsOfTheScalarTextForEveryInput) {
  constexpr size_t kInputs = size_t{1} << 32;
  constexpr size_t kChunk = size_t{1} << 24;
  constexpr size_t kTasks = 1024;
  const Elementary function = GetParam().function;
  for (const NamedExecutor& gpu : DeviceExecutors()) {
    std::vector<uint32_t> results(kChunk);
    for (size_t chunk = 0; chunk < kInputs; chunk += kChunk) {
      ComputeOnGpu(function, static_cast<uint32_t>(chunk), results,
                   *gpu.executor);
      std::vector<Differences> differences(kTasks);
      gpu.executor->ParallelFor(kTasks, [&](size_t task) {
        constexpr size_t kShare = kChunk / kTasks;
        differences[task] =
            Compare(function, static_cast<uint32_t>(chunk + task * kShare),
                    std::span(results).subspan(task * kShare, kShare));
      });
      for (const auto& [count, first] : differences) {
        ASSERT_EQ(count, 0)
            << gpu.name << ": first at the input " << std::hex << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Functions, GpuElementaryTest,
    testing::Values(NamedFunction{"Exp", Elementary::kExp},
                    NamedFunction{"Log", Elementary::kLog},
                    NamedFunction{"Sigmoid", Elementary::kSigmoid},
                    NamedFunction{"Rsqrt", Elementary::kRsqrt},
                    NamedFunction{"Bf16", Elementary::kBf16},
                    NamedFunction{"E4m3", Elementary::kE4m3}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace isoloss::device::gpu_elementary_test
