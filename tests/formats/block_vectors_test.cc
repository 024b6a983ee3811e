// blocks.h5 and the E8M0 casts of casts.h5: scales, codes and values of whole
// blocks as other tools computed them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "comparison.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "support/mx_elements.h"

namespace isoloss::formats::block_vectors_test {
namespace {

using isoloss::test_support::H5File;

struct TorchaoMode {
  ScaleRule mode;
  const char* name;
};
constexpr TorchaoMode kTorchaoModes[] = {{ScaleRule::kFloor, "FLOOR"},
                                         {ScaleRule::kCeil, "CEIL"},
                                         {ScaleRule::kEven, "EVEN"},
                                         {ScaleRule::kRceil, "RCEIL"}};

class BlockVectors : public ::testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }
  std::string name() const { return std::string(format().name); }
};

INSTANTIATE_TEST_SUITE_P(Formats, BlockVectors,
                         ::testing::ValuesIn(MxElements()),
                         [](const auto& test) {
                           return std::string(test.param->name);
                         });

/// True for each row of `values` that holds finite numbers only.
std::vector<bool> FiniteRows(MatrixView<const float> values) {
  std::vector<bool> finite(values.rows());
  for (size_t row = 0; row < values.rows(); ++row) {
    finite[row] = std::all_of(values.Row(row), values.Row(row) + values.cols(),
                              [](float value) { return std::isfinite(value); });
  }
  return finite;
}

// ---- blocks.h5 -------------------------------------------------------------

TEST_P(BlockVectors, EveryScaleModeIsTorchaos) {
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  for (const TorchaoMode& torchao : kTorchaoModes) {
    const std::string group =
        fmt::format("torchao/{}/{}/", name(), torchao.name);
    const Quantization spec{&format(), torchao.mode,
                            NonFinitePolicy::kBlockNan};

    const MxMatrix q = QuantizeMx(View(x), spec);
    const Matrix<float> values = DequantizeMx(q, format());

    ExpectMatrix(file, group + "scale", q.scales);
    // torchao leaves arbitrary codes in NaN blocks of formats without a NaN.
    ExpectMatrix(file, group + "codes", q.codes, [&](size_t row, size_t) {
      return format().has_nan() || q.scales(row, 0) != 255;
    });
    // The README stores values for all modes of FP8, for two of the others.
    if (format().has_nan() || torchao.mode == ScaleRule::kFloor ||
        torchao.mode == ScaleRule::kRceil) {
      ExpectMatrix(file, group + "dq", values);
    }
  }
}

TEST_P(BlockVectors, OperandDefinitionGivesTorchaosValues) {
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  for (const TorchaoMode& torchao : {kTorchaoModes[0], kTorchaoModes[3]}) {
    const Quantization spec{&format(), torchao.mode,
                            NonFinitePolicy::kBlockNan};
    Matrix<float> values(x.rows(), x.cols());

    for (size_t row = 0; row < x.rows(); ++row) {
      QuantizeDequantizeBlock({View(x).Row(row), x.cols()}, spec,
                              {values.Row(row), x.cols()});
    }

    ExpectMatrix(file, fmt::format("torchao/{}/{}/dq", name(), torchao.name),
                 values);
  }
}

TEST_P(BlockVectors, FloorIsGfloatsWhereTheBlockIsFinite) {
  // gfloat gives an infinity scale 254 and raises for a NaN into FP6 and FP4:
  // another policy, not ours.
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  const auto status = file.Read<uint8_t>("gfloat/" + name() + "/status");
  const std::vector<bool> finite = FiniteRows(View(x));
  const Quantization spec{&format(), ScaleRule::kFloor,
                          NonFinitePolicy::kBlockNan};

  const MxMatrix q = QuantizeMx(View(x), spec);

  for (size_t row = 0; row < x.rows(); ++row) {
    ASSERT_TRUE(!finite[row] || status.values[row] == 0) << row;
  }
  const auto applies = [&](size_t row, size_t) { return finite[row]; };
  ExpectMatrix(file, "gfloat/" + name() + "/scale", q.scales, applies);
  ExpectMatrix(file, "gfloat/" + name() + "/codes", q.codes, applies);
}

TEST_P(BlockVectors, FloorValuesAreMicroxcalingsWhereItHasNoKnownFault) {
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  const std::string group = "microxcaling/" + name() + "/even/";
  const auto deviates = file.Read<uint8_t>(group + "deviates");
  const std::vector<bool> finite = FiniteRows(View(x));
  const Quantization spec{&format(), ScaleRule::kFloor,
                          NonFinitePolicy::kBlockNan};

  const Matrix<float> values =
      DequantizeMx(QuantizeMx(View(x), spec), format());

  ExpectMatrix(file, group + "dq", values, [&](size_t row, size_t col) {
    return finite[row] && deviates.values[row * x.cols() + col] == 0;
  });
}

TEST(TeVectors, TePolicyIsTransformerEngines) {
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  const std::set<std::string> names = Groups(file, "te", "");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    const Quantization spec{&FormatByName(name), ScaleRule::kRceil,
                            NonFinitePolicy::kTe};

    const MxMatrix q = QuantizeMx(View(x), spec);

    ExpectMatrix(file, "te/" + name + "/scale", q.scales);
    ExpectMatrix(file, "te/" + name + "/codes", q.codes);
  }
}

// ---- casts.h5, e8m0 ---------------------------------------------------------

/// Round-up to E8M0 of a non-negative FP32 value, from its definition
/// (docs/numerics.md, section 5). `beyond`: what values above 2^127 become.
int RoundUpToE8m0(float value, int beyond) {
  const uint32_t exponent = std::bit_cast<uint32_t>(value) >> 23;
  const uint32_t mantissa = std::bit_cast<uint32_t>(value) & 0x7FFFFF;
  if (std::isnan(value)) return 255;
  if (exponent == 0) return mantissa > 0x400000 ? 1 : 0;
  return std::min(static_cast<int>(exponent + (mantissa != 0 ? 1 : 0)), beyond);
}

TEST(E8m0Vectors, RoundingUpIsTheCastOfTorchaoAndTransformerEngine) {
  // The cast alone is no function of the library: this certifies the definition
  // that the next tests hold MxScale to.
  const H5File file = OpenVectors("casts.h5");
  const auto in = file.Read<uint32_t>("e8m0/in_bits");
  const auto torchao = file.Read<uint8_t>("e8m0/torchao_rceil");
  const auto te = file.Read<uint8_t>("e8m0/te_rceil_satfinite");
  ASSERT_EQ(torchao.values.size(), in.values.size());
  ASSERT_EQ(te.values.size(), in.values.size());

  Comparison comparison;
  for (size_t i = 0; i < in.values.size(); ++i) {
    const float value = std::bit_cast<float>(in.values[i]);
    comparison.Row(RoundUpToE8m0(value, 255) == torchao.values[i] &&
                       RoundUpToE8m0(value, 254) == te.values[i],
                   [&] {
                     return fmt::format("input {:#010x}: torchao {}, te {}",
                                        in.values[i], torchao.values[i],
                                        te.values[i]);
                   });
  }

  comparison.ExpectAllEqual(in.values.size());
}

TEST_P(BlockVectors, RceilIsTheRoundedUpQuotientOfEveryE8m0Input) {
  const auto in = OpenVectors("casts.h5").Read<uint32_t>("e8m0/in_bits");
  const Quantization spec{&format(), ScaleRule::kRceil,
                          NonFinitePolicy::kBlockNan};
  const float reciprocal = 1.0f / MaxFinite(format());

  Comparison comparison;
  for (const uint32_t bits : in.values) {
    const float amax = std::bit_cast<float>(bits);
    const int scale = MxScale({&amax, 1}, spec);
    const int expected = RoundUpToE8m0(amax * reciprocal, 255);
    comparison.Row(scale == expected, [&] {
      return fmt::format("amax {:#010x}: {}, but {} was expected", bits, scale,
                         expected);
    });
  }

  comparison.ExpectAllEqual(in.values.size());
}

TEST_P(BlockVectors, RceilIsTheRoundedUpQuotientWhereItsRuleBends) {
  // All exponents, and mantissas on both sides of every place where the integer
  // rule changes: 0, half, and the largest value's own mantissa.
  const Quantization spec{&format(), ScaleRule::kRceil,
                          NonFinitePolicy::kBlockNan};
  const float reciprocal = 1.0f / MaxFinite(format());
  const uint32_t bend = format().max_mantissa_field();
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const uint32_t mantissa :
         {0u, 1u, 0x400000u, 0x400001u, bend - 1, bend, bend + 1, bend + 2,
          0x7FFFFEu, 0x7FFFFFu}) {
      const float amax = std::bit_cast<float>(exponent << 23 | mantissa);

      const int scale = MxScale({&amax, 1}, spec);

      ASSERT_EQ(scale, RoundUpToE8m0(amax * reciprocal, 255)) << amax;
    }
  }
}

}  // namespace
}  // namespace isoloss::formats::block_vectors_test
