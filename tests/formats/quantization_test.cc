#include "isoloss/formats/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::formats::quantization_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Quantization E4m3() { return {.element = &FormatByName("e4m3")}; }

/// E2M1 in blocks of 16 under E4M3 scales and one of the tensor.
Quantization Nvfp4() {
  return {.element = &FormatByName("e2m1"),
          .scale_rule = ScaleRule::kTe,
          .scale_format = ScaleFormat::kE4m3,
          .scaling = Scaling::kTwoLevel,
          .cell = {1, 16}};
}

Quantization Delayed() {
  return {.element = &FormatByName("e4m3"),
          .scale_rule = ScaleRule::kTe,
          .scale_format = ScaleFormat::kFp32,
          .scaling = Scaling::kDelayed,
          .cell = {0, 0},
          .history = 16};
}

Quantization Bf16() {
  return {.element = &FormatByName("bf16"), .scale_format = ScaleFormat::kNone};
}

template <typename Change>
Quantization Changed(Quantization quantization, const Change& change) {
  change(quantization);
  return quantization;
}

/// Descriptions that differ in one thing each, all of them sound.
std::vector<Quantization> Different() {
  std::vector<Quantization> list = {E4m3(), Nvfp4(), Delayed(), Bf16()};
  for (const ScaleRule rule :
       {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kEven}) {
    list.push_back(Changed(E4m3(), [&](auto& q) { q.scale_rule = rule; }));
  }
  list.push_back(
      Changed(E4m3(), [](auto& q) { q.non_finite = NonFinitePolicy::kTe; }));
  list.push_back(
      Changed(E4m3(), [](auto& q) { q.element = &FormatByName("int8"); }));
  for (const Cell cell : {Cell{1, 16}, Cell{32, 1}, Cell{0, 0}, Cell{1, 0}}) {
    list.push_back(Changed(E4m3(), [&](auto& q) { q.cell = cell; }));
  }
  for (const RoundingMode rounding :
       {RoundingMode::kHalfAway, RoundingMode::kTowardZero}) {
    list.push_back(Changed(E4m3(), [&](auto& q) { q.rounding = rounding; }));
  }
  for (const int bits : {1, 8, 16}) {
    list.push_back(Changed(Nvfp4(), [&](auto& q) {
      q.rounding = RoundingMode::kStochastic;
      q.random_bits = bits;
    }));
  }
  for (const Transform transform :
       {Transform::kHadamard16, Transform::kHadamard16Te,
        Transform::kHadamard16Random}) {
    list.push_back(Changed(Nvfp4(), [&](auto& q) { q.transform = transform; }));
  }
  for (const ScaleRule rule : {ScaleRule::kTe, ScaleRule::kTorchao}) {
    list.push_back(Changed(Nvfp4(), [&](auto& q) {
      q.scale_rule = rule;
      q.scaling = Scaling::kCurrent;
    }));
  }
  list.push_back(
      Changed(Nvfp4(), [](auto& q) { q.scale_rule = ScaleRule::kTorchao; }));
  list.push_back(Changed(Nvfp4(), [](auto& q) { q.cell = {16, 16}; }));
  for (const ScaleFormat format : {ScaleFormat::kFp32, ScaleFormat::kPow2}) {
    for (const ScaleRule rule :
         {ScaleRule::kTe, ScaleRule::kDeepgemm, ScaleRule::kTorchao}) {
      list.push_back(Changed(E4m3(), [&](auto& q) {
        q.scale_format = format;
        q.scale_rule = rule;
        q.cell = {1, 128};
      }));
    }
  }
  list.push_back(Changed(Delayed(), [](auto& q) { q.history = 1; }));
  list.push_back(
      Changed(Delayed(), [](auto& q) { q.scale_format = ScaleFormat::kPow2; }));
  list.push_back(
      Changed(Bf16(), [](auto& q) { q.element = &FormatByName("tf32"); }));
  return list;
}

TEST(QuantizationName, OfMxIsElementAndRule) {
  EXPECT_EQ(QuantizationName(E4m3()), "e4m3·rceil");
  EXPECT_EQ(QuantizationName({&FormatByName("e2m1"), ScaleRule::kFloor,
                              NonFinitePolicy::kTe}),
            "e2m1·floor·te");
}

TEST(QuantizationName, SaysWhatIsNotAsInMx) {
  const Quantization everything = Changed(Nvfp4(), [](auto& q) {
    q.rounding = RoundingMode::kStochastic;
    q.random_bits = 8;
    q.transform = Transform::kHadamard16Te;
  });

  EXPECT_EQ(QuantizationName(everything),
            "e2m1·te·e4m3·1x16·two_level·stochastic8·hadamard16_te");
  EXPECT_EQ(QuantizationName(Delayed()), "e4m3·te·fp32·0x0·delayed·history16");
  EXPECT_EQ(QuantizationName(Bf16()), "bf16·none");
}

TEST(QuantizationName, OfDifferentDescriptionsDiffer) {
  std::map<std::string, size_t> seen;
  const std::vector<Quantization> list = Different();
  for (size_t i = 0; i < list.size(); ++i) {
    const auto [entry, is_new] = seen.emplace(QuantizationName(list[i]), i);
    EXPECT_TRUE(is_new) << entry->first << ": " << i << ", " << entry->second;
    EXPECT_EQ(WrongQuantization(list[i]), "") << entry->first;
  }
}

TEST(Quantization, MxIsWhatPackedKernelsTake) {
  EXPECT_TRUE(E4m3().is_mx());
  for (const Quantization& q : Different()) {
    const bool mx = q == Quantization{.element = q.element,
                                      .scale_rule = q.scale_rule,
                                      .non_finite = q.non_finite} &&
                    q.element->is_small_float();
    EXPECT_EQ(q.is_mx(), mx) << QuantizationName(q);
  }
  EXPECT_FALSE(Quantization{}.is_mx());
}

// ---- What cannot be ---------------------------------------------------------

TEST(WrongQuantization, NamesTheRuleThatIsBroken) {
  struct Case {
    Quantization quantization;
    const char* says;
  };
  const Case cases[] = {
      {Changed(E4m3(), [](auto& q) { q.scale_rule = ScaleRule::kTe; }),
       "scales in e8m0 by the rule te"},
      {Changed(Nvfp4(), [](auto& q) { q.scale_rule = ScaleRule::kRceil; }),
       "scales in e4m3 by the rule rceil"},
      {Changed(Nvfp4(), [](auto& q) { q.scale_rule = ScaleRule::kDeepgemm; }),
       "rule deepgemm, which has none"},
      {Changed(E4m3(), [](auto& q) { q.element = &FormatByName("fp16"); }),
       "elements in fp16 and a scale"},
      {Changed(Nvfp4(), [](auto& q) { q.scale_format = ScaleFormat::kFp32; }),
       "scaling two_level with scales in fp32"},
      {Changed(Delayed(), [](auto& q) { q.scale_format = ScaleFormat::kNone; }),
       "no scale, but scaling delayed"},
      {Changed(Delayed(), [](auto& q) { q.history = 0; }),
       "history of 0 steps and scaling delayed"},
      {Changed(E4m3(), [](auto& q) { q.history = 4; }),
       "history of 4 steps and scaling current"},
      {Changed(Delayed(),
               [](auto& q) {
                 q.cell = {1, 128};
               }),
       "delayed for cells of 1 x 128"},
      {Changed(E4m3(), [](auto& q) { q.rounding = RoundingMode::kStochastic; }),
       "0 random bits and rounding stochastic"},
      {Changed(E4m3(),
               [](auto& q) {
                 q.rounding = RoundingMode::kStochastic;
                 q.random_bits = 17;
               }),
       "17 random bits and rounding stochastic"},
      {Changed(E4m3(), [](auto& q) { q.random_bits = 8; }),
       "8 random bits and rounding nearest_even"},
  };
  for (const Case& wrong : cases) {
    EXPECT_THAT(WrongQuantization(wrong.quantization), HasSubstr(wrong.says));
  }
}

TEST(Quantization, NamesOfItsPartsRoundTripAndUnknownOnesListTheKnown) {
  for (const char* name :
       {"floor", "ceil", "even", "rceil", "te", "deepgemm", "torchao"}) {
    EXPECT_EQ(ScaleRuleName(ScaleRuleByName(name)), name);
  }
  for (const auto& [name, format] : kScaleFormatNames) {
    EXPECT_EQ(ScaleFormatName(format), name);
  }
  EXPECT_THAT([] { ScaleRuleByName("up"); },
              ThrowsMessage<Error>(HasSubstr("te, deepgemm, torchao")));
}

}  // namespace
}  // namespace isoloss::formats::quantization_test
