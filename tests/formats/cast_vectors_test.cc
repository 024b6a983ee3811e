// decode.h5 and casts.h5: every code and cast as other tools computed them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "comparison.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/formats/rounding_mode.h"
#include "support/mx_elements.h"

namespace isoloss::formats::cast_vectors_test {
namespace {

using isoloss::test_support::H5File;

class ElementVectors : public ::testing::TestWithParam<const Format*> {
 protected:
  const Format& format() const { return *GetParam(); }
  std::string name() const { return std::string(format().name); }
  /// gfloat uses INT8's lowest code, -2, which is nearest from -127.5 / 64 on.
  uint32_t WithLowestCode(float value, uint32_t code) const {
    const bool lowest = format().twos_complement && value <= -127.5f / 64;
    return lowest && code == 0x81 ? 0x80 : code;
  }
};

/// Formats of codes that the files list.
std::vector<const Format*> Elements() {
  std::vector<const Format*> elements = MxElements();
  elements.push_back(&FormatByName("int8"));
  return elements;
}

INSTANTIATE_TEST_SUITE_P(Formats, ElementVectors,
                         ::testing::ValuesIn(Elements()), [](const auto& test) {
                           return std::string(test.param->name);
                         });

TEST_P(ElementVectors, EveryCodeDecodesAsInDecodeH5) {
  const auto expected = OpenVectors("decode.h5").Read<float>("codes/" + name());

  Comparison comparison;
  for (size_t code = 0; code < expected.values.size(); ++code) {
    const float actual = Decode(format(), static_cast<uint32_t>(code));
    comparison.Row(SameBits(expected.values[code], actual), [&] {
      return fmt::format("code {:#x}: {} but {} was expected", code, actual,
                         expected.values[code]);
    });
  }

  comparison.ExpectAllEqual(size_t{1} << format().bits());
}

TEST_P(ElementVectors, EveryCodeTimesEveryScaleIsAsInDecodeH5) {
  const H5File file = OpenVectors("decode.h5");
  const auto scales = file.Read<uint8_t>("scaled/scale_bytes");
  const auto expected = file.Read<float>("scaled/" + name());
  const size_t codes = size_t{1} << format().bits();
  ASSERT_EQ(expected.shape, (std::vector<size_t>{scales.values.size(), codes}));

  Comparison comparison;
  for (size_t s = 0; s < scales.values.size(); ++s) {
    MxMatrix quantized;
    quantized.codes.Resize(codes, 1);
    quantized.scales.Resize(codes, 1);
    for (size_t code = 0; code < codes; ++code) {
      quantized.codes(code, 0) = static_cast<uint8_t>(code);
      quantized.scales(code, 0) = scales.values[s];
    }
    const Matrix<float> actual = DequantizeMx(quantized, format());
    for (size_t code = 0; code < codes; ++code) {
      const float wanted = expected.values[s * codes + code];
      comparison.Row(SameBits(wanted, actual(code, 0)), [&] {
        return fmt::format("code {:#x} scale {}: {} but {} was expected", code,
                           scales.values[s], actual(code, 0), wanted);
      });
    }
  }

  comparison.ExpectAllEqual(expected.values.size());
}

TEST(E8m0Vectors, EveryByteDecodesAsInDecodeH5) {
  const auto expected = OpenVectors("decode.h5").Read<float>("e8m0");

  Comparison comparison;
  for (size_t byte = 0; byte < expected.values.size(); ++byte) {
    const float actual = DecodeE8m0(static_cast<uint8_t>(byte));
    comparison.Row(SameBits(expected.values[byte], actual), [&] {
      return fmt::format("byte {}: {} but {} was expected", byte, actual,
                         expected.values[byte]);
    });
  }

  comparison.ExpectAllEqual(256);
}

// ---- casts.h5
// -----------------------------------------------------------------

/// Which rows of a column are promised, and up to what.
enum class Rows {
  kAll,     ///< every bit of every row, NaN codes included
  kNotNan,  ///< rows whose input is not NaN
};

template <typename Code, typename EncodeBits>
void ExpectColumn(const H5File& file, const std::string& group,
                  const std::string& column, Rows rows,
                  const EncodeBits& encode) {
  SCOPED_TRACE(group + "/" + column);
  const auto in = file.Read<uint32_t>(group + "/in_bits");
  const auto expected = file.Read<Code>(group + "/" + column);
  ASSERT_EQ(in.values.size(), expected.values.size());
  size_t applicable = 0;
  Comparison comparison;
  for (size_t i = 0; i < in.values.size(); ++i) {
    const float value = std::bit_cast<float>(in.values[i]);
    if (rows == Rows::kNotNan && std::isnan(value)) continue;
    ++applicable;
    const uint32_t actual = encode(value);
    comparison.Row(actual == expected.values[i], [&] {
      return fmt::format(
          "row {}, input {:#010x}: {:#x}, but {:#x} was expected", i,
          in.values[i], actual, expected.values[i]);
    });
  }
  comparison.ExpectAllEqual(applicable);
}

TEST_P(ElementVectors, SaturatingCastsAreAsInCastsH5) {
  const H5File file = OpenVectors("casts.h5");
  const auto encode = [&](float value) {
    return Encode(format(), value, Overflow::kSaturate);
  };

  ExpectColumn<uint8_t>(
      file, name(), "gfloat_sat", Rows::kNotNan,
      [&](float value) { return WithLowestCode(value, encode(value)); });
  if (format().twos_complement) return;  // the others have no INT8
  if (!format().has_nan()) {
    ExpectColumn<uint8_t>(file, name(), "torchao", Rows::kNotNan, encode);
    ExpectColumn<uint8_t>(file, name(), "ml_dtypes", Rows::kNotNan, encode);
  } else if (!format().has_infinity) {
    // torch saturates E4M3 since 2.13 and keeps a NaN's sign as we do.
    ExpectColumn<uint8_t>(file, name(), "torch", Rows::kAll, encode);
  }
}

TEST_P(ElementVectors, NonSaturatingCastsAreAsInCastsH5) {
  const H5File file = OpenVectors("casts.h5");
  const auto encode = [&](float value) {
    return Encode(format(), value, Overflow::kNonFinite);
  };

  if (!format().has_nan()) {  // nothing but saturation is left
    ExpectColumn<uint8_t>(
        file, name(), "gfloat_sat", Rows::kNotNan,
        [&](float value) { return WithLowestCode(value, encode(value)); });
    return;
  }
  if (format().has_infinity) {
    ExpectColumn<uint8_t>(file, name(), "torch", Rows::kAll, encode);
    ExpectColumn<uint8_t>(file, name(), "gfloat_nosat", Rows::kNotNan, encode);
    ExpectColumn<uint8_t>(file, name(), "ml_dtypes", Rows::kNotNan, encode);
    return;
  }
  ExpectColumn<uint8_t>(file, name(), "ml_dtypes", Rows::kAll, encode);
  // gfloat's overflow is 0xFF whatever the sign.
  ExpectColumn<uint8_t>(
      file, name(), "gfloat_nosat", Rows::kNotNan, [&](float value) {
        const uint32_t code = encode(value);
        return (code & 0x7F) == format().nan_code ? 0xFF : code;
      });
}

/// Compares values, not bits: microxcaling loses the sign of zero.
void ExpectMicroxcaling(const Format& format, const std::string& column,
                        RoundingMode rounding) {
  SCOPED_TRACE(column);
  const H5File file = OpenVectors("casts.h5");
  const std::string group = std::string(format.name) + "/";
  const auto in = file.Read<uint32_t>(group + "in_bits");
  const auto expected = file.Read<float>(group + column);
  ASSERT_EQ(in.values.size(), expected.values.size());
  // Its known faults: the largest float below half the least subnormal rounds
  // up (0.49999997 + 0.5 = 1 in FP32), FLT_MAX becomes NaN (0 * Inf) and
  // infinities stay.
  const float least = Decode(format, 1);
  const float below_half = std::nextafter(least / 2, 0.0f);
  size_t applicable = 0;
  Comparison comparison;
  for (size_t i = 0; i < in.values.size(); ++i) {
    const float value = std::bit_cast<float>(in.values[i]);
    const float magnitude = std::fabs(value);
    if (!(magnitude < std::numeric_limits<float>::max())) continue;
    if (magnitude == below_half) continue;
    ++applicable;
    const float actual =
        Decode(format, Encode(format, value, Overflow::kSaturate, rounding));
    comparison.Row(actual == expected.values[i], [&] {
      return fmt::format("row {}, input {:#010x}: {}, but {} was expected", i,
                         in.values[i], actual, expected.values[i]);
    });
  }
  comparison.ExpectAllEqual(applicable);
}

TEST_P(ElementVectors, RoundedValuesOfFiniteInputsEqualMicroxcalings) {
  ExpectMicroxcaling(format(), "microxcaling_even", RoundingMode::kNearestEven);
  ExpectMicroxcaling(format(), "microxcaling_nearest", RoundingMode::kHalfAway);
}

TEST(Bf16Vectors, CastsAreAsInCastsH5) {
  const H5File file = OpenVectors("casts.h5");

  // NaN codes differ between tools; ml_dtypes has ours, 0x7FC0 with the sign.
  ExpectColumn<uint16_t>(file, "bf16", "ml_dtypes", Rows::kAll, EncodeBf16);
  ExpectColumn<uint16_t>(file, "bf16", "torch", Rows::kNotNan, EncodeBf16);
  ExpectColumn<uint16_t>(file, "bf16", "gfloat", Rows::kNotNan, EncodeBf16);
  // The format of the table is the same cast.
  ExpectColumn<uint16_t>(
      file, "bf16", "ml_dtypes", Rows::kAll, [](float value) {
        return Encode(FormatByName("bf16"), value, Overflow::kNonFinite);
      });
}

}  // namespace
}  // namespace isoloss::formats::cast_vectors_test
