// MXINT8 in blocks.h5 and tail.h5: gfloat uses the code 0x80, -2, where
// docs/numerics.md has 0x81, -127/64. Casts are in cast_vectors_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "comparison.h"
#include "isoloss/formats/quantize.h"

namespace isoloss::formats::int8_vectors_test {
namespace {

using isoloss::test_support::H5File;

constexpr uint32_t kMinusTwo = 0x80;

Quantization Int8() {
  return {&FormatByName("int8"), ScaleRule::kFloor, NonFinitePolicy::kBlockNan};
}

bool IsFinite(MatrixView<const float> values, size_t row) {
  for (size_t col = 0; col < values.cols(); ++col) {
    if (!std::isfinite(values(row, col))) return false;
  }
  return true;
}

bool IsGfloatsCode(uint32_t expected, uint32_t got) {
  return got == (expected == kMinusTwo ? 0x81 : expected);
}

TEST(Int8Vectors, FloorIsGfloatsWhereTheBlockIsFinite) {
  // gfloat raises for a NaN and gives an infinity the scale 254: not our
  // policy.
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  const auto finite = [&](size_t row, size_t) {
    return IsFinite(View(x), row);
  };
  const auto gfloat = file.Read<uint32_t>("gfloat/int8/codes");

  const QuantizedTensor q = Quantize(View(x), Int8());

  ExpectMatrix(file, "gfloat/int8/scale", q.scale_bytes, finite);
  ExpectMatrix(file, "gfloat/int8/codes", q.codes, finite, IsGfloatsCode);
  ExpectMatrix(file, "gfloat/int8/dq", Dequantize(q, Int8()),
               [&](size_t row, size_t col) {
                 return finite(row, col) &&
                        gfloat.values[row * x.cols() + col] != kMinusTwo;
               });
}

TEST(Int8Vectors, FloorValuesAreMicroxcalingsWhereItHasNoKnownFault) {
  // `deviates` is 0 where its value is gfloat's. It never has -2, but may have
  // that value where it takes a scale twice too large.
  const H5File file = OpenVectors("blocks.h5");
  const auto x = file.Read<float>("x");
  const auto deviates =
      file.Read<uint8_t>("microxcaling/int8/even/deviates").values;
  const auto gfloat = file.Read<uint32_t>("gfloat/int8/codes").values;

  const Matrix<float> values = Dequantize(Quantize(View(x), Int8()), Int8());

  ExpectMatrix(file, "microxcaling/int8/even/dq", values,
               [&](size_t row, size_t col) {
                 const size_t i = row * x.cols() + col;
                 return IsFinite(View(x), row) && deviates[i] == 0 &&
                        gfloat[i] != kMinusTwo;
               });
}

TEST(Int8Vectors, EveryLengthIsQuantisedAsOtherToolsDo) {
  const H5File file = OpenVectors("tail.h5");
  const std::set<std::string> lengths = Groups(file, "", "L");
  ASSERT_FALSE(lengths.empty());
  for (const std::string& length : lengths) {
    const auto x = file.Read<float>(length + "/x");

    const QuantizedTensor q = Quantize(View(x), Int8());

    const std::string gfloat = length + "/gfloat_floor/int8";
    ExpectMatrix(file, gfloat + "/scale", q.scale_bytes);
    ExpectMatrix(
        file, gfloat + "/codes", q.codes, [](size_t, size_t) { return true; },
        IsGfloatsCode);
    ExpectMatrixValues(file, length + "/microxcaling_even/int8",
                       Dequantize(q, Int8()));
  }
}

}  // namespace
}  // namespace isoloss::formats::int8_vectors_test
