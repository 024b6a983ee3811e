// A GPU's memory gives back what was copied into it, in the order of the calls,
// and says what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "executors.h"
#include "isoloss/base/error.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"

namespace isoloss::device::gpu_memory_test {
namespace {

Memory& GpuMemory() { return DeviceExecutors().front().executor->memory(); }

std::vector<float> Download(const Matrix<float>& values) {
  std::vector<float> copy(values.size());
  values.memory().CopyToHost(values.data(), copy.size() * sizeof(float),
                             copy.data());
  return copy;
}

TEST(GpuMemory, GivesBackWhatWasCopiedWhateverItsSize) {
  // Copies go in pieces of 2^16 numbers, of which 64 are on their way at once.
  for (const size_t size :
       {size_t{1}, size_t{65535}, size_t{65536}, size_t{65537},
        size_t{64} << 16, (size_t{64} << 16) + 1, size_t{10'000'019}}) {
    const CounterRng rng(7, size);
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) {
      values[i] = static_cast<float>(rng.Uniform(i));
    }
    const std::vector<float> original = values;
    Matrix<float> first(GpuMemory());
    Matrix<float> second(GpuMemory());
    first.ResizeUninitialized(1, size);

    GpuMemory().CopyFromHost(values.data(), size * sizeof(float), first.data());
    values.assign(size, -1.0f);
    second.CopyFrom(first);
    first.SetZero();

    EXPECT_EQ(Download(second), original) << size;
    EXPECT_EQ(Download(first), std::vector<float>(size)) << size;
  }
}

TEST(GpuMemory, KeepsTheOrderOfManySmallCopies) {
  Matrix<float> value(GpuMemory());
  value.Resize(1, 1);
  for (int i = 0; i < 1000; ++i) {
    const auto next = static_cast<float>(i);
    GpuMemory().CopyFromHost(&next, sizeof next, value.data());
    if (i % 97 == 0) {
      ASSERT_EQ(Download(value).front(), next);
    }
  }
  EXPECT_EQ(Download(value).front(), 999.0f);
}

TEST(GpuMemory, SaysWhatIsMissingAndStaysUsable) {
  Matrix<float> values(GpuMemory());
  try {
    values.Resize(size_t{1} << 20, size_t{1} << 24);
    FAIL() << "64 TiB were given";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(),
                testing::HasSubstr("67108864.0 MiB more are needed, but "));
  }
  values.Resize(3, 3);
  EXPECT_EQ(Download(values), std::vector<float>(9));
}

}  // namespace
}  // namespace isoloss::device::gpu_memory_test
