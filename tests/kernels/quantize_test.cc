#include "isoloss/kernels/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "gemm_cases.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "support/mx_elements.h"
#include "support/quantize_transposed.h"

namespace isoloss::kernels::quantize_test {
namespace {

/// The definition, along rows.
Matrix<float> Quantized(MatrixView<const float> source,
                        const formats::Quantization& spec) {
  Matrix<float> out(source.rows(), source.cols());
  for (size_t i = 0; i < source.rows(); ++i) {
    for (size_t k = 0; k < source.cols(); k += formats::kMxBlockSize) {
      const size_t count = std::min(formats::kMxBlockSize, source.cols() - k);
      formats::QuantizeDequantizeBlock({source.Row(i) + k, count}, spec,
                                       {out.Row(i) + k, count});
    }
  }
  return out;
}

class QuantizeOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, QuantizeOn,
                         testing::ValuesIn(SupportedTargets()), TargetTestName);

TEST_P(QuantizeOn, EqualsTheDefinitionInBothDirections) {
  Executor executor(2);
  for (const formats::Format* format : formats::MxElements()) {
    for (const auto mode :
         {formats::ScaleRule::kFloor, formats::ScaleRule::kCeil,
          formats::ScaleRule::kEven, formats::ScaleRule::kRceil}) {
      for (const auto policy : {formats::NonFinitePolicy::kBlockNan,
                                formats::NonFinitePolicy::kTe}) {
        const formats::Quantization spec{format, mode, policy};
        for (const Values kind : {Values::kFp32, Values::kWild}) {
          for (const size_t rows : {1, 33, 64}) {
            for (const size_t cols : {1, 31, 96, 530}) {
              StridedMatrix source(rows, cols, 3, 2);
              Fill(source.view(), kind, 1);
              Matrix<float> along(rows, cols);
              Matrix<float> down(cols, rows);

              QuantizeDequantize(source.view(), spec, along.view(), executor);
              QuantizeDequantizeTransposed(source.view(), spec, down.view(),
                                           executor);

              const auto what = std::string(format->name) + " " +
                                std::string(ScaleRuleName(mode));
              ASSERT_TRUE(SameResults(along.view(),
                                      Quantized(source.view(), spec).view()))
                  << what;
              ASSERT_TRUE(SameResults(
                  down.view(),
                  Quantized(Transposed(source.view()).view(), spec).view()))
                  << what << ", transposing";
            }
          }
        }
      }
    }
  }
}

TEST_P(QuantizeOn, WritesItsWindowOnlyAndInPlace) {
  const formats::Quantization spec{&formats::FormatByName("e4m3")};
  Executor executor(1);
  StridedMatrix window(21, 75, 5, 4);
  std::fill_n(window.memory().data(), window.memory().size(), 7.0f);
  Fill(window.view(), Values::kFp32, 1);
  const Matrix<float> expected = Quantized(window.view(), spec);

  QuantizeDequantize(window.view(), spec, window.view(), executor);

  EXPECT_TRUE(SameResults(window.view(), expected.view()));
  for (size_t i = 0; i < 21; ++i) {
    for (size_t j = 0; j < window.memory().cols(); ++j) {
      if (!window.IsOutside(j)) continue;
      EXPECT_EQ(window.memory()(i, j), 7.0f);
    }
  }
}

TEST_P(QuantizeOn, AMatrixLargerThanCachesGivesTheSameBits) {
  // 64 MB and a row: results of this size are written around the caches.
  const formats::Quantization spec{&formats::FormatByName("e4m3")};
  Executor executor(2);
  const size_t rows = 2049, cols = 8192;
  const Matrix<float> source = Filled(rows, cols, Values::kBf16, 1);
  Matrix<float> whole(rows, cols);
  Matrix<float> row(1, cols);

  QuantizeDequantize(source.view(), spec, whole.view(), executor);

  for (size_t i = 0; i < rows; ++i) {
    QuantizeDequantize(source.view().Rows(i, 1), spec, row.view(), executor);
    ASSERT_TRUE(SameResults(whole.view().Rows(i, 1), row.view())) << i;
  }
}

TEST(Quantize, RejectsShapesThatDoNotFit) {
  const formats::Quantization spec{&formats::FormatByName("e4m3")};
  Executor executor(1);
  const Matrix<float> source(3, 40);
  Matrix<float> same(3, 40);
  Matrix<float> transposed(40, 3);
  EXPECT_THROW(
      QuantizeDequantize(source.view(), spec, transposed.view(), executor),
      Error);
  EXPECT_THROW(
      QuantizeDequantizeTransposed(source.view(), spec, same.view(), executor),
      Error);
}

}  // namespace
}  // namespace isoloss::kernels::quantize_test
