// sr_rht.h5: stochastic rounding with given random bits as gfloat computed it,
// and TransformerEngine's Hadamard transform.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <string>

#include "comparison.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/hadamard.h"
#include "isoloss/formats/rounding_mode.h"

namespace isoloss::formats::sr_rht_vectors_test {
namespace {

using isoloss::test_support::H5File;
using ::testing::IsSupersetOf;

TEST(SrRhtVectors, StochasticRoundingIsGfloatsFastest) {
  const H5File file = OpenVectors("sr_rht.h5");
  const std::string mark = "_srbits";
  std::set<std::string> elements;
  for (const std::string& group : Groups(file, "", "")) {
    const size_t split = group.find(mark);
    if (split == std::string::npos) continue;
    SCOPED_TRACE(group);
    const Format& format = FormatByName(group.substr(0, split));
    const int count = std::stoi(group.substr(split + mark.size()));
    // FP8 and FP4 saturate in the file, BF16 has infinities.
    const Overflow overflow =
        format.bits() <= 8 ? Overflow::kSaturate : Overflow::kNonFinite;
    const auto in = file.Read<uint32_t>(group + "/in_bits");
    const auto random = file.Read<uint32_t>(group + "/srbits");
    const auto expected = file.Read<uint32_t>(group + "/fastest");
    ASSERT_EQ(random.values.size(), in.values.size());
    ASSERT_EQ(expected.values.size(), in.values.size());

    Comparison comparison;
    for (size_t i = 0; i < in.values.size(); ++i) {
      ASSERT_EQ(random.values[i] >> count, 0u);
      const uint32_t code =
          Encode(format, std::bit_cast<float>(in.values[i]), overflow,
                 RoundingMode::kStochastic, {random.values[i], count});
      comparison.Row(code == expected.values[i], [&] {
        return fmt::format(
            "input {:#010x}, random {:#x}: {:#x}, but {:#x} was expected",
            in.values[i], random.values[i], code, expected.values[i]);
      });
    }

    comparison.ExpectAllEqual(in.values.size());
    elements.insert(std::string(format.name));
  }
  EXPECT_THAT(elements, IsSupersetOf({"e4m3", "e5m2", "e2m1", "bf16"}));
}

Matrix<float> Transformed(MatrixView<const float> values, Transform transform) {
  Matrix<float> result(values.rows(), values.cols());
  for (size_t row = 0; row < values.rows(); ++row) {
    std::copy_n(values.Row(row), values.cols(), result.Row(row));
    for (size_t col = 0; col < values.cols(); col += kHadamardLength) {
      Hadamard16({result.Row(row) + col, kHadamardLength},
                 NegativeElements(transform, 0));
    }
  }
  return result;
}

TEST(SrRhtVectors, HadamardTransformsAreTransformerEngines) {
  const H5File file = OpenVectors("sr_rht.h5");
  const auto x = file.Read<float>("rht16/x");
  ASSERT_EQ(x.cols() % 16, 0u);

  const Matrix<float> with_signs =
      Transformed(View(x), Transform::kHadamard16Te);
  const Matrix<float> without = Transformed(View(x), Transform::kHadamard16);

  ExpectMatrix(file, "rht16/y_signed", with_signs);
  ExpectMatrix(file, "rht16/y_unsigned", without);
}

TEST(SrRhtVectors, SignsOfTheTransformAreThoseOfTheFile) {
  const auto signs =
      OpenVectors("sr_rht.h5").Read<float>("rht16/sign_vector").values;
  ASSERT_EQ(signs.size(), 16u);
  for (size_t i = 0; i < signs.size(); ++i) {
    // The first row of the Hadamard matrix is all ones: element 0 of the
    // transformed unit vector is its sign, times 1/4.
    std::array<float, 16> run = {};
    run[i] = 1;

    Hadamard16(run, NegativeElements(Transform::kHadamard16Te, 0));

    EXPECT_EQ(4 * run[0], signs[i]) << i;
  }
}

}  // namespace
}  // namespace isoloss::formats::sr_rht_vectors_test
