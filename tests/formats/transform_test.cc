#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/hadamard.h"
#include "quantize_cases.h"

namespace isoloss::formats::transform_test {
namespace {

using ::testing::Each;

Quantization Transforming(Transform transform) {
  return {.element = &FormatByName("tf32"),
          .scale_format = ScaleFormat::kNone,
          .transform = transform};
}

TEST(TransformTest, RunsAreTransformedAndTheLastIsFilledUpWithZeros) {
  // The first row of the matrix is all ones; row r of element 16, a unit vector
  // of the second run, is the first column: all ones, too.
  std::vector<float> row(18);
  row[0] = 4;
  row[16] = 8;
  const Quantization quantization = Transforming(Transform::kHadamard16);

  const QuantizedTensor q = QuantizeRow(row, quantization);
  const std::vector<float> values = Flat(Dequantize(q, quantization));

  ASSERT_EQ(values.size(), 32u);
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 16),
              Each(1.0f));
  EXPECT_THAT(std::vector<float>(values.begin() + 16, values.end()),
              Each(2.0f));
}

TEST(TransformTest, RowsAreThoseOfSylvestersMatrix) {
  // Entry (i, j) is 1/4 with the sign of the parity of i AND j.
  for (size_t j = 0; j < 16; ++j) {
    std::vector<float> run(16);
    run[j] = 1;

    Hadamard16(run, NegativeElements(Transform::kHadamard16, 0));

    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(run[i], std::popcount(i & j) % 2 == 0 ? 0.25f : -0.25f);
    }
  }
}

TEST(TransformTest, OfBothOperandsKeepTheirProduct) {
  // Small integers: every operation of the transform is exact.
  const CounterRng rng(6, StreamId("transform"));
  std::vector<float> x(20);
  std::vector<float> y(20);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(rng.Below(2 * i, 9)) - 4;
    y[i] = static_cast<float>(rng.Below(2 * i + 1, 9)) - 4;
  }
  const auto dot = [](const std::vector<float>& a,
                      const std::vector<float>& b) {
    float sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  for (const Transform transform :
       {Transform::kHadamard16, Transform::kHadamard16Te,
        Transform::kHadamard16Random}) {
    SCOPED_TRACE(TransformName(transform));
    const Quantization quantization = Transforming(transform);
    const auto values = [&](const std::vector<float>& row, uint64_t key) {
      return Flat(
          Dequantize(QuantizeRow(row, quantization, {.transform_key = key}),
                     quantization));
    };

    EXPECT_EQ(dot(values(x, 0xBEEF), values(y, 0xBEEF)), dot(x, y));
    EXPECT_NE(values(x, 0xBEEF), x);
    EXPECT_EQ(values(x, 0xBEEF) != values(x, 0x1234),
              transform == Transform::kHadamard16Random);
  }
}

}  // namespace
}  // namespace isoloss::formats::transform_test
