// Digests of rows are those of the definition on the host and on devices, and
// see each bit.
#include "isoloss/device/digest_forms.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "executors.h"
#include "isoloss/base/error.h"
#include "kernels/gemm_cases.h"

namespace isoloss::device::digest_forms_test {
namespace {

using kernels::RowDigests;
using kernels::Values;

std::vector<NamedExecutor> HostAndDevices() {
  std::vector<NamedExecutor> all = DeviceExecutors();
  all.push_back({"host", std::make_shared<Executor>(2)});
  return all;
}

class DigestFormsTest : public testing::TestWithParam<NamedExecutor> {
 protected:
  std::vector<uint64_t> DigestsOf(const Matrix<float>& host, size_t cols) {
    Executor& executor = *GetParam().executor;
    Matrix<float> there{executor.memory()};
    there.CopyFrom(host);
    std::vector<uint64_t> digests(host.rows(), 1);
    RowDigests(there.cview().Cols(0, cols), digests, executor);
    return digests;
  }
};

INSTANTIATE_TEST_SUITE_P(Executors, DigestFormsTest,
                         testing::ValuesIn(HostAndDevices()),
                         [](const auto& test) { return test.param.name; });

TEST_P(DigestFormsTest, IsTheDefinition) {
  for (const size_t cols : {1, 15, 16, 17, 100, 1003}) {
    // The last column belongs to no digest.
    const Matrix<float> x = kernels::Filled(21, cols + 1, Values::kWild, cols);
    std::vector<uint64_t> expected(x.rows());
    for (size_t i = 0; i < x.rows(); ++i) {
      for (size_t j = 0; j < cols; ++j) {
        expected[i] +=
            kernels::DigestFactor(j) * std::bit_cast<uint32_t>(x(i, j));
      }
    }

    EXPECT_EQ(DigestsOf(x, cols), expected);
  }
  EXPECT_TRUE(DigestsOf(Matrix<float>(0, 4), 4).empty());
}

TEST_P(DigestFormsTest, SeesEachBit) {
  Matrix<float> x = kernels::Filled(9, 40, Values::kBf16, 1);
  const std::vector<uint64_t> before = DigestsOf(x, 40);
  for (uint32_t bit = 0; bit < 32; ++bit) {
    float& element = x(bit % 9, (bit * 7) % 40);
    const float kept = element;
    element = std::bit_cast<float>(std::bit_cast<uint32_t>(kept) ^ 1u << bit);

    const std::vector<uint64_t> after = DigestsOf(x, 40);

    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(after[i] == before[i], i != bit % 9) << bit;
    }
    element = kept;
  }
}

/// Flips of one bit in columns of a lane have sums of zero, also if they are
/// weighted by the numbers of their columns: +1 -1 -1 +1.
TEST_P(DigestFormsTest, SeesFlipsThatAreRegular) {
  Matrix<float> x(1, 64);
  Matrix<float> flipped(1, 64);
  for (const size_t col : {3, 27}) x(0, col) = std::bit_cast<float>(1u << 13);
  for (const size_t col : {11, 19}) {
    flipped(0, col) = std::bit_cast<float>(1u << 13);
  }

  EXPECT_NE(DigestsOf(x, 64), DigestsOf(flipped, 64));
}

TEST_P(DigestFormsTest, RefusesWhatDoesNotFit) {
  const Matrix<float> x;
  std::vector<uint64_t> digests(1);
  EXPECT_THROW(RowDigests(x.cview(), digests, *GetParam().executor), Error);
}

}  // namespace
}  // namespace isoloss::device::digest_forms_test
