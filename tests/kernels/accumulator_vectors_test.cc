// tensorcore.h5: steps of tensor cores as MMA-Sim computes them.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "formats/comparison.h"
#include "isoloss/base/error.h"
#include "isoloss/formats/e8m0.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/truncating_sum.h"

namespace isoloss::kernels::accumulator_vectors_test {
namespace {

using formats::Comparison;
using formats::OpenVectors;

/// A row of the file, as an operand of a product.
struct Row {
  std::vector<float> values;
  std::vector<int16_t> exponents;
};

Row RowOf(const isoloss::test_support::H5Array<uint8_t>& codes, size_t row,
          uint8_t scale) {
  const formats::Format& e4m3 = formats::FormatByName("e4m3");
  Row result;
  for (size_t k = 0; k < codes.cols(); ++k) {
    const uint8_t code = codes.values[row * codes.cols() + k];
    const int field = code >> 3 & 15;
    result.values.push_back(formats::Decode(e4m3, code) *
                            formats::DecodeE8m0(scale));
    result.exponents.push_back(
        static_cast<int16_t>((field == 0 ? 1 : field) - 7 + scale - 127));
  }
  return result;
}

void ExpectColumn(const std::string& accumulator, const std::string& column,
                  bool scaled) {
  const auto file = OpenVectors("tensorcore.h5");
  const auto a = file.Read<uint8_t>("a_e4m3");
  const auto b = file.Read<uint8_t>("b_e4m3");
  const auto scale_a = file.Read<uint8_t>("scale_a");
  const auto scale_b = file.Read<uint8_t>("scale_b");
  const auto c = file.Read<float>("c");
  const auto expected = file.Read<float>(column);
  Comparison comparison;
  for (size_t i = 0; i < a.rows(); ++i) {
    const Row left = RowOf(a, i, scaled ? scale_a.values[i] : 127);
    const Row right = RowOf(b, i, scaled ? scale_b.values[i] : 127);
    const float sum = TruncatingSum(
        AccumulatorByName(accumulator), c.values[i],
        {left.values.data(), left.exponents.data()},
        {right.values.data(), right.exponents.data()}, left.values.size());
    comparison.Row(expected.values[i] == sum, [&] {
      return fmt::format("row {}: {}, but {} was expected", i, sum,
                         expected.values[i]);
    });
  }
  comparison.ExpectAllEqual(a.rows());
}

TEST(AccumulatorVectors, BlackwellsFp8) {
  ExpectColumn("blackwell_f25", "d_blackwell_f8_k32_F25", false);
}

TEST(AccumulatorVectors, BlackwellsMxfp8) {
  ExpectColumn("blackwell_f25", "d_blackwell_mxf8_k32_F25", true);
}

TEST(AccumulatorVectors, HoppersFp8) {
  ExpectColumn("hopper_f13", "d_hopper_wgmma_f8_k32_F13_e8m13", false);
}

TEST(AccumulatorVectors, AnUnknownNameListsThem) {
  try {
    AccumulatorByName("hoper_f13");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("hopper_f13"), std::string::npos);
  }
}

}  // namespace
}  // namespace isoloss::kernels::accumulator_vectors_test
