// A GPU's tensor cores add as their accumulator is defined, to the bit.
#include "gpu_fragments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "executors.h"
#include "gpu_elementary.h"
#include "isoloss/base/rng.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/cuda/tensor_cores.h"
#include "isoloss/device/emulation.h"
#include "isoloss/formats/bf16.h"

namespace isoloss::device::gpu_fragments_test {
namespace {

/// Which factors and sums there are. Exponents are uniform in a range, and one
/// factor in `special_every` is any BF16 number at all.
struct Numbers {
  const char* name;
  int least_exponent;
  int most_exponent;
  uint64_t special_every;  ///< 0: none is
};

class GpuFragmentsTest : public testing::TestWithParam<Numbers> {};

/// Deals out the numbers of one kind.
class Dealer {
 public:
  explicit Dealer(const Numbers& numbers) : numbers_(numbers), rng_(11, 0) {}

  float Next() {
    const uint64_t bits = rng_.Bits(next_++);
    if (numbers_.special_every != 0 && bits % numbers_.special_every == 0) {
      return std::bit_cast<float>(static_cast<uint32_t>(bits >> 32));
    }
    const auto exponents = static_cast<uint64_t>(numbers_.most_exponent -
                                                 numbers_.least_exponent + 1);
    const float significand =
        1 + static_cast<float>(bits >> 41) / static_cast<float>(1 << 23);
    const float value =
        std::ldexp(significand, numbers_.least_exponent +
                                    static_cast<int>(bits % exponents));
    return (bits >> 20 & 1) != 0 ? -value : value;
  }
  uint32_t NextPair() {
    const uint32_t lower = formats::EncodeBf16(Next());
    const uint32_t upper = formats::EncodeBf16(Next());
    return upper << 16 | lower;
  }

 private:
  const Numbers numbers_;
  const CounterRng rng_;
  uint64_t next_ = 0;
};

std::vector<LaneFragments> LanesOf(const Numbers& numbers, size_t warps) {
  Dealer dealer(numbers);
  std::vector<LaneFragments> lanes(warps * kWarp);
  for (LaneFragments& lane : lanes) {
    for (uint32_t& word : lane.a) word = dealer.NextPair();
    for (uint32_t& word : lane.b) word = dealer.NextPair();
    // A sum has the size of products, or is the beginning of a chain.
    for (float& sum : lane.sums) sum = dealer.Next() * dealer.Next();
    lane.sums[0] = 0.0f;
  }
  return lanes;
}

void AddProductsOnHost(const kernels::Accumulator& accumulator,
                       std::span<LaneFragments> lanes, Executor& host) {
  host.ParallelFor(lanes.size() / kWarp, [&](size_t warp) {
    std::array<Fragments, kWarp> fragments;
    for (size_t i = 0; i < kWarp; ++i) {
      fragments[i] = lanes[warp * kWarp + i].View();
    }
    AddProducts(accumulator, fragments);
  });
}

TEST_P(GpuFragmentsTest, HaveTheBitsOfTheAccumulator) {
  const CudaInfo info = DescribeCuda(0);
  const kernels::Accumulator* const accumulator =
      AccumulatorOfMma(info.major, info.minor);
  if (accumulator == nullptr) {
    GTEST_SKIP() << "it is not known how " << info.name << " adds";
  }
  constexpr size_t kWarps = 1 << 14;
  for (const NamedExecutor& gpu : DeviceExecutors()) {
    std::vector<LaneFragments> actual = LanesOf(GetParam(), kWarps);
    std::vector<LaneFragments> expected = actual;
    AddProductsOnGpu(actual, *gpu.executor);
    AddProductsOnHost(*accumulator, expected, *gpu.executor);
    size_t wrong = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      for (size_t j = 0; j < 4; ++j) {
        const float on_gpu = actual[i].sums[j];
        const float on_host = expected[i].sums[j];
        if (BitsOf(on_gpu) == BitsOf(on_host)) continue;
        if (++wrong > 5) continue;
        ADD_FAILURE() << "sum " << j << " of lane " << i << " is " << on_gpu
                      << ", and " << accumulator->name << " gives " << on_host;
      }
    }
    EXPECT_EQ(wrong, 0) << "of " << 4 * actual.size();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, GpuFragmentsTest,
    testing::Values(Numbers{"Near", -3, 0, 0}, Numbers{"Wide", -20, 20, 0},
                    Numbers{"VeryWide", -60, 60, 0},
                    Numbers{"SubnormalSums", -70, -60, 0},
                    Numbers{"SubnormalFactors", -133, -120, 0},
                    Numbers{"Overflow", 55, 64, 0},
                    Numbers{"AnyBits", -10, 10, 40}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace isoloss::device::gpu_fragments_test
