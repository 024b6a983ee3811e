// Descriptions as words, and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/formats/quantization.h"

namespace isoloss::formats::quantization_name_test {
namespace {

TEST(QuantizationByName, ReadsWhatQuantizationNameWrites) {
  int described = 0;
  for (const Format* element : AllFormats()) {
    for (const auto rule : {ScaleRule::kFloor, ScaleRule::kRceil,
                            ScaleRule::kTe, ScaleRule::kTorchao}) {
      for (const auto format : {ScaleFormat::kNone, ScaleFormat::kE8m0,
                                ScaleFormat::kE4m3, ScaleFormat::kFp32}) {
        for (const auto& [name_of_scaling, scaling] : kScalingNames) {
          for (const auto& [name_of_transform, transform] : kTransformNames) {
            Quantization q = {.element = element,
                              .scale_rule = rule,
                              .non_finite = NonFinitePolicy::kTe,
                              .scale_format = format,
                              .scaling = scaling,
                              .rounding = RoundingMode::kStochastic,
                              .random_bits = 5,
                              .transform = transform};
            // What is without a scale is written without a rule and a cell.
            if (format == ScaleFormat::kNone) q.scale_rule = ScaleRule::kRceil;
            if (format != ScaleFormat::kNone) q.cell = {128, 64};
            if (q.reads_history()) {
              q.history = 16;
              q.cell = {0, 0};
            }
            if (!WrongQuantization(q).empty()) continue;
            const std::string name = QuantizationName(q);
            EXPECT_EQ(QuantizationByName(name), q) << name;
            ++described;
          }
        }
      }
    }
  }
  EXPECT_GT(described, 100);
}

TEST(QuantizationByName, ADotMayBeTypedAndNvfp4HasAName) {
  EXPECT_EQ(QuantizationByName("e5m2.rceil"), QuantizationByName("e5m2·rceil"));
  EXPECT_TRUE(QuantizationByName("e5m2.rceil").is_mx());
  const Quantization nvfp4 = QuantizationByName("nvfp4");
  EXPECT_EQ(nvfp4.scaling, Scaling::kTwoLevel);
  EXPECT_EQ(nvfp4.cell, (Cell{1, 16}));
  EXPECT_EQ(nvfp4.scale_format, ScaleFormat::kE4m3);
}

TEST(QuantizationByName, RefusesWhatIsNoDescription) {
  for (const char* name :
       {"", "e4m3", "e9m9.rceil", "e4m3.best", "e4m3.rceil.", "e4m3.rceil.x",
        "e4m3.rceil.rceil", "e4m3.rceil.1x32", "e4m3.rceil.1x", "e4m3.rceil.x2",
        "e4m3.te.fp32.1x99999999999999999999", "e4m3.rceil.stochastic",
        "e4m3.rceil.stochastic17", "e4m3.rceil.stochastic8x", "bf16.rceil",
        "e4m3.rceil.history3", "e4m3.rceil.hadamard16.stochastic8",
        "nvfp4.stochastic8"}) {
    EXPECT_THROW(QuantizationByName(name), Error) << name;
  }
}

TEST(QuantizationByName, LimitsCellsAndHistories) {
  for (const char* name :
       {"e2m1.rceil.1048577x32", "e2m1.rceil.18446744073709551615x32",
        "e2m1.rceil.1x18446744073709551600"}) {
    EXPECT_THROW(QuantizationByName(name), Error) << name;
  }
  EXPECT_EQ(QuantizationByName("e2m1.rceil.1048576x32").cell.rows, kMaxCell);
}

}  // namespace
}  // namespace isoloss::formats::quantization_name_test
