#include "isoloss/model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "model/reference.h"

namespace isoloss::model::rope_test {
namespace {

class RopeReferenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(RopeReferenceTest, TableMatchesTorchtitans) {
  const test_support::H5File file(
      test_support::GoldenPath("reference", std::string(GetParam()) + ".h5"));
  const auto cos = file.Read<float>("rope/cos_f32");
  const auto sin = file.Read<float>("rope/sin_f32");
  RopeTable table(test_support::ReadConfig(file));

  table.Reach(cos.rows());

  // Both sides round f_i, the angle and the result to FP32. f_i comes from a
  // power good to 1 ulp (2^-23 relative) there and to half an ulp here, with
  // up to three more roundings of half an ulp each under YaRN; the angle adds
  // half an ulp per side. In all less than 5 ulp of the angle, then half an
  // ulp of the result per side.
  const RopeTable& made = table;
  const auto frequencies = RopeFrequencies(test_support::ReadConfig(file));
  ASSERT_EQ(cos.cols(), frequencies.size());
  for (size_t position = 0; position < cos.rows(); ++position) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double angle =
          static_cast<double>(position) * static_cast<double>(frequencies[i]);
      const double limit = 5 * 0x1p-23 * angle + 0x1p-23;
      const size_t at = position * frequencies.size() + i;
      EXPECT_NEAR(made.cos()(position, i), cos.values[at], limit);
      EXPECT_NEAR(made.sin()(position, i), sin.values[at], limit);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RopeReferenceTest,
                         ::testing::Values("S1", "S2", "S3", "S4"),
                         [](const ::testing::TestParamInfo<const char*>& file) {
                           return std::string(file.param);
                         });

TEST(RopeTable, KeepsItsValuesWhenItGrows) {
  RopeTable table(ModelConfig{});
  table.Reach(3);
  const float before = table.cos()(2, 1);

  table.Reach(1000);

  EXPECT_GE(table.cos().rows(), 1000u);
  EXPECT_EQ(table.cos()(2, 1), before);
}

TEST(RopeTable, RotatesByTheFp32Angle) {
  // Where the angle is large its FP32 rounding shows: at position 16383 the
  // first pair turns by exactly 16383 radians, the second by a rounded product.
  const ModelConfig config;
  RopeTable table(config);

  table.Reach(16384);

  const float angle = 16383.0f * RopeFrequencies(config)[1];
  EXPECT_NEAR(table.cos()(16383, 0), std::cos(16383.0), 0x1p-24);
  EXPECT_NEAR(table.cos()(16383, 1), std::cos(static_cast<double>(angle)),
              0x1p-24);
}

}  // namespace
}  // namespace isoloss::model::rope_test
