// nvfp4.h5: E2M1 codes under E4M3 scales, with and without a scale of the
// tensor, as TransformerEngine and torchao computed them.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "comparison.h"
#include "isoloss/formats/quantize.h"

namespace isoloss::formats::nvfp4_vectors_test {
namespace {

using isoloss::test_support::H5File;

Quantization Nvfp4(ScaleRule rule, Scaling scaling, Cell cell) {
  Quantization quantization;
  quantization.element = &FormatByName("e2m1");
  quantization.scale_rule = rule;
  quantization.scale_format = ScaleFormat::kE4m3;
  quantization.scaling = scaling;
  quantization.cell = cell;
  quantization.non_finite = NonFinitePolicy::kTe;
  EXPECT_EQ(WrongQuantization(quantization), "");
  return quantization;
}

/// As TransformerEngine's reference packs codes: it stores an element of -0 as
/// +0, where the hardware's cast and ours keep the sign.
QuantizedTensor QuantizeAsTe(MatrixView<const float> values, Cell cell) {
  QuantizedTensor q =
      Quantize(values, Nvfp4(ScaleRule::kTe, Scaling::kTwoLevel, cell));
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      if (values(row, col) == 0) q.codes(row, col) &= 7;
    }
  }
  return q;
}

/// The scale byte of each row, as the file repeats them.
Matrix<uint8_t> RepeatedDownRows(const Matrix<uint8_t>& bytes, size_t cell_rows,
                                 size_t rows) {
  Matrix<uint8_t> repeated(rows, bytes.cols());
  for (size_t row = 0; row < rows; ++row) {
    for (size_t col = 0; col < bytes.cols(); ++col) {
      repeated(row, col) = bytes(row / cell_rows, col);
    }
  }
  return repeated;
}

/// Names of the cases, each of which has all groups.
std::set<std::string> Cases(const H5File& file) {
  const std::set<std::string> cases = Groups(file, "", "");
  EXPECT_FALSE(cases.empty());
  return cases;
}

TEST(Nvfp4Vectors, TransformerEnginesRowsAndColumns) {
  const H5File file = OpenVectors("nvfp4.h5");
  for (const std::string& name : Cases(file)) {
    const auto x = file.Read<float>(name + "/x");
    const Matrix<float> transposed = Transposed(View(x));
    const std::string group = name + "/te_1x16/";

    const QuantizedTensor rows = QuantizeAsTe(View(x), {1, 16});
    const QuantizedTensor cols = QuantizeAsTe(transposed.view(), {1, 16});

    ExpectMatrix(file, group + "codes", rows.codes);
    ExpectMatrix(file, group + "scale_e4m3", rows.scale_bytes);
    ExpectMatrix(file, group + "codes_t", cols.codes);
    ExpectMatrix(file, group + "scale_t_e4m3", cols.scale_bytes);
    // 1 / (2688 / amax): two divisions, each wrong by a factor in 1 +- 2^-24.
    const double amax = double{file.ReadScalar<float>(group + "global_amax")};
    EXPECT_NEAR(double{rows.tensor_scale}, amax / 2688,
                amax / 2688 * 0x1p-23 / (1 - 0x1p-24));
    EXPECT_EQ(cols.tensor_scale, rows.tensor_scale);
  }
}

TEST(Nvfp4Vectors, TransformerEnginesSquares) {
  const H5File file = OpenVectors("nvfp4.h5");
  for (const std::string& name : Cases(file)) {
    const auto x = file.Read<float>(name + "/x");
    const std::string group = name + "/te_16x16/";

    const QuantizedTensor q = QuantizeAsTe(View(x), {16, 16});

    ExpectMatrix(file, group + "codes", q.codes);
    ExpectMatrix(file, group + "scale_e4m3",
                 RepeatedDownRows(q.scale_bytes, 16, x.rows()));
  }
}

TEST(Nvfp4Vectors, TorchaosScalesOfBlocksAlone) {
  const H5File file = OpenVectors("nvfp4.h5");
  for (const std::string& name : Cases(file)) {
    const auto x = file.Read<float>(name + "/x");
    const std::string group = name + "/torchao_single_level/";

    const QuantizedTensor q = Quantize(
        View(x), Nvfp4(ScaleRule::kTorchao, Scaling::kCurrent, {1, 16}));

    ExpectMatrix(file, group + "codes", q.codes);
    ExpectMatrix(file, group + "scale_e4m3", q.scale_bytes);
    EXPECT_EQ(q.tensor_scale, 1.0f);
  }
}

TEST(Nvfp4Vectors, TorchaosScalesOfBlocksUnderOneOfTheTensor) {
  const H5File file = OpenVectors("nvfp4.h5");
  for (const std::string& name : Cases(file)) {
    const auto x = file.Read<float>(name + "/x");
    const std::string group = name + "/torchao_two_level/";

    const QuantizedTensor q = Quantize(
        View(x), Nvfp4(ScaleRule::kTorchao, Scaling::kTwoLevel, {1, 16}));

    ExpectMatrix(file, group + "codes", q.codes);
    ExpectMatrix(file, group + "scale_e4m3", q.scale_bytes);
    EXPECT_EQ(q.tensor_scale,
              file.ReadScalar<float>(group + "per_tensor_scale"));
  }
}

}  // namespace
}  // namespace isoloss::formats::nvfp4_vectors_test
