#include "isoloss/oracle/uncertain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::oracle::uncertain_test {
namespace {

using formats::Quantization;

constexpr size_t kRows = 37;
constexpr size_t kCols = 45;

/// Many magnitudes, signs and zeros; rows of zeros, too.
Matrix<float> Values(uint64_t stream) {
  const CounterRng rng(23, stream);
  Matrix<float> values(kRows, kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    if (i / kCols == 7 || rng.Uniform(3 * i) < 0.2) continue;
    const double size = std::exp2(-12.0 * rng.Uniform(3 * i + 1));
    values.data()[i] =
        static_cast<float>(rng.Uniform(3 * i + 2) < 0.5 ? -size : size);
  }
  return values;
}

std::vector<Quantization> Descriptions() {
  std::vector<Quantization> result;
  for (const char* name :
       {"e4m3.rceil", "e5m2.floor", "e2m3.even", "int8.ceil", "bf16.none",
        "e4m3.none", "bf16.none.toward_zero", "e4m3.te.fp32.0x0",
        "e4m3.te.fp32.1x16.te", "e4m3.deepgemm.fp32.16x16",
        "e4m3.torchao.fp32.1x16", "e5m2.te.pow2.0x0", "e2m1.te.e4m3.1x16",
        "e2m1.te.e4m3.1x16.two_level", "e2m1.torchao.e4m3.1x16.two_level",
        "e4m3.te.fp32.1x16.stochastic8", "e4m3.rceil.half_away"}) {
    result.push_back(formats::QuantizationByName(name));
  }
  return result;
}

const formats::TensorState kState = {.seed = 5, .stream = 6};

/// With errors of `relative` size.
Matrix<Uncertain> Around(const Matrix<float>& values, double relative) {
  Matrix<Uncertain> result(values.rows(), values.cols());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto exact = static_cast<double>(values.data()[i]);
    result.data()[i].exact = exact;
    result.data()[i].bound = std::fabs(exact) * relative;
    result.data()[i].variance = std::pow(exact * relative / 4, 2);
  }
  return result;
}

double ValueOf(const ScalarTensor& tensor, size_t i, size_t j) {
  return static_cast<double>(tensor.codes(i, j)) *
         static_cast<double>(tensor.ScaleAt(i, j).decode) *
         static_cast<double>(tensor.tensor_scale);
}

TEST(QuantizedUncertain, IsScalarQuantizeOfCertainNumbers) {
  const Matrix<float> values = Values(1);
  for (const Quantization& quantization : Descriptions()) {
    const ScalarTensor tensor =
        ScalarQuantize(values.cview(), quantization, kState);

    const Matrix<Uncertain> result =
        QuantizedUncertain(Around(values, 0.0), quantization, kState);

    for (size_t i = 0; i < kRows; ++i) {
      for (size_t j = 0; j < kCols; ++j) {
        ASSERT_EQ(result(i, j).exact, ValueOf(tensor, i, j))
            << QuantizationName(quantization);
        ASSERT_EQ(result(i, j).bound, 0.0) << QuantizationName(quantization);
        ASSERT_EQ(result(i, j).variance, 0.0);
      }
    }
  }
}

// Errors are large, so that codes and scales do become others; or larger than
// the numbers, so that a magnitude may be nearly nothing.
TEST(QuantizedUncertain, BoundsWhatNumbersWithinTheBoundsBecome) {
  const Matrix<float> values = Values(2);
  for (const Quantization& quantization : Descriptions()) {
    for (const double relative : {1e-6, 1e-2, 2.0}) {
      const Matrix<Uncertain> result =
          QuantizedUncertain(Around(values, relative), quantization, kState);
      size_t others = 0;
      for (uint64_t trial = 0; trial < 20; ++trial) {
        const CounterRng rng(trial, 9);
        Matrix<float> moved(kRows, kCols);
        for (size_t i = 0; i < values.size(); ++i) {
          // At most nine tenths of the bound, which rounding does not leave.
          const double factor = 1.0 + relative * (1.8 * rng.Uniform(i) - 0.9);
          moved.data()[i] = static_cast<float>(
              static_cast<double>(values.data()[i]) * factor);
        }
        const ScalarTensor tensor =
            ScalarQuantize(moved.cview(), quantization, kState);
        for (size_t i = 0; i < kRows; ++i) {
          for (size_t j = 0; j < kCols; ++j) {
            const double value = ValueOf(tensor, i, j);
            ASSERT_LE(std::fabs(value - result(i, j).exact),
                      result(i, j).bound * (1 + 1e-12))
                << QuantizationName(quantization) << " [" << i << ", " << j
                << "]";
            if (value != result(i, j).exact) ++others;
          }
        }
      }
      if (relative > 1e-3) {
        EXPECT_GT(others, 100) << QuantizationName(quantization);
      }
    }
  }
}

/// Most codes are certain, or a wrong one would never be found.
TEST(QuantizedUncertain, KnowsNearlyAllCodes) {
  const Matrix<float> values = Values(3);
  for (const Quantization& quantization : Descriptions()) {
    const Matrix<Uncertain> result =
        QuantizedUncertain(Around(values, 1e-6), quantization, kState);
    size_t wide = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      const Uncertain& x = result.data()[i];
      if (x.bound > 1e-5 * std::fabs(x.exact)) ++wide;
    }
    // A code of BF16 is 2^-8 wide: one in about 4000 lies within 1e-6 of a
    // boundary, of stochastic rounding the more, the more bits there are.
    EXPECT_LE(wide, result.size() / 50) << QuantizationName(quantization);
  }
}

}  // namespace
}  // namespace isoloss::oracle::uncertain_test
