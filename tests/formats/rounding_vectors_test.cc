// blocks.h5: microxcaling's blocks that are rounded half away from zero and
// toward zero.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>

#include "comparison.h"
#include "isoloss/formats/quantize.h"

namespace isoloss::formats::rounding_vectors_test {
namespace {

using isoloss::test_support::H5File;

/// Compares the elements for which applies(x, scale) with
/// microxcaling/<element>/<column>/dq, in blocks to which it gives our scale:
/// it takes log2 in FP32, which is wrong beside powers of two. Values are
/// compared, for it loses the sign of zero.
template <typename Applies>
void ExpectBlocks(const H5File& file, const std::string& element,
                  const std::string& column, RoundingMode rounding,
                  const Applies& applies) {
  const std::string group = "microxcaling/" + element + "/";
  const auto x = file.Read<float>("x");
  const auto exponents = file.Read<float>(group + "shared_exp").values;
  const Quantization quantization = {.element = &FormatByName(element),
                                     .scale_rule = ScaleRule::kFloor,
                                     .rounding = rounding};

  const QuantizedTensor q = Quantize(View(x), quantization);

  ExpectMatrix(
      file, group + column + "/dq", Dequantize(q, quantization),
      [&](size_t row, size_t col) {
        const float scale = q.scales(row, 0);
        return std::exp2(exponents[row]) == scale &&
               applies(View(x)(row, col), scale);
      },
      [](float expected, float got) { return expected == got; });
}

TEST(RoundingVectors, HalfAwayIsMicroxcalingsNearest) {
  const H5File file = OpenVectors("blocks.h5");
  const std::set<std::string> elements = Groups(file, "microxcaling", "");
  ASSERT_FALSE(elements.empty());
  for (const std::string& element : elements) {
    // The largest float below half the least subnormal rounds up there.
    const float half = Decode(FormatByName(element), 1) / 2;
    const float below = std::nextafter(half, 0.0f);
    ExpectBlocks(
        file, element, "nearest", RoundingMode::kHalfAway,
        [&](float x, float scale) { return std::fabs(x) / scale != below; });
  }
}

TEST(RoundingVectors, TowardZeroIsMicroxcalingsFloor) {
  const H5File file = OpenVectors("blocks.h5");
  size_t compared = 0;
  for (const std::string& element : Groups(file, "microxcaling", "")) {
    if (!file.Has("microxcaling/" + element + "/floor/dq")) continue;
    ++compared;
    // It drops a whole step from values within two last places of a power of
    // two.
    ExpectBlocks(file, element, "floor", RoundingMode::kTowardZero,
                 [](float x, float) {
                   return (std::bit_cast<uint32_t>(x) & 0x7FFFFF) < 0x7FFFFE;
                 });
  }
  EXPECT_GT(compared, 0u);
}

}  // namespace
}  // namespace isoloss::formats::rounding_vectors_test
