// Moments in FP8, and weights that copy a master.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "isoloss/formats/format.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_states_test {
namespace {

using formats::RoundToBf16;
using test_support::Random;
using test_support::Zeros;

constexpr size_t kBlock = 64;
const formats::Format& E4m3() { return formats::FormatByName("e4m3"); }

/// Returns the value rounded to BF16 by 16 random bits.
float AtRandom(float value, size_t i) {
  static const CounterRng rng(3, 5);
  const uint32_t bits = std::bit_cast<uint32_t>(value) +
                        static_cast<uint32_t>(rng.Bits(i) & 0xFFFF);
  return std::bit_cast<float>(bits & 0xFFFF0000);
}

/// Stores blocks as torchao does, with scales `times` what they need.
void Store(const Floats& values, const std::string& name, Operation& operation,
           float times = 1.0f, const Floats* twice = nullptr) {
  Codes codes = {.extent = values.extent, .values = {}, .type = "e4m3"};
  Floats scales = {.extent = {values.values.size() / kBlock},
                   .values = {},
                   .type = "float32"};
  const auto code_of = [](float value) {
    return formats::Encode(E4m3(), value, formats::Overflow::kSaturate);
  };
  for (size_t b = 0; b < scales.extent[0]; ++b) {
    float most = 0;
    for (size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      most = std::max(most, std::fabs(values.values[i]));
    }
    scales.values.push_back(most / 448.0f * times);
    for (size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
      float value = values.values[i];
      if (twice != nullptr) {
        const float scale = twice->values[b];
        value = formats::Decode(E4m3(), code_of(value / scale)) * scale;
      }
      codes.values.push_back(
          static_cast<uint8_t>(code_of(value / scales.values[b])));
    }
  }
  operation.codes[name + "_codes"] = codes;
  operation.floats[name + "_scales"] = scales;
}

/// AdamW whose moments are stored in blocks. `times` and `twice` are mistakes.
Operation AdamW(float times = 1.0f, bool twice = false) {
  Operation adamw = {.type = "adamw", .module = "w"};
  const std::vector<size_t> extent = {8, 32};
  adamw.numbers = {{"lr", 0.1},   {"beta1", 0.9},        {"beta2", 0.95},
                   {"eps", 1e-8}, {"weight_decay", 0.5}, {"step", 7}};
  adamw.floats["parameter_before"] = Random(extent, "p", "float32");
  adamw.floats["gradient"] = Random(extent, "g", "float32", 0.1);
  Floats first = Random(extent, "m", "float32", 0.1);
  Floats second = Random(extent, "v", "float32", 0.1);
  for (float& v : second.values) v = v * v;
  Store(first, "exp_avg_before", adamw);
  Store(second, "exp_avg_sq_before", adamw);
  OperationFile file = {.operations = {adamw}};
  DecodeStates(file);
  const Operation& decoded = file.operations[0];
  Floats parameter = adamw.floats["parameter_before"];
  for (size_t i = 0; i < parameter.values.size(); ++i) {
    const float g = adamw.floats["gradient"].values[i];
    float& m = first.values[i] = decoded.Find("exp_avg_before")->values[i];
    float& v = second.values[i] = decoded.Find("exp_avg_sq_before")->values[i];
    m += static_cast<float>(1 - 0.9) * (g - m);
    v = v * static_cast<float>(0.95) + static_cast<float>(1 - 0.95) * g * g;
    const auto root = static_cast<float>(std::sqrt(1 - std::pow(0.95, 7)));
    parameter.values[i] =
        parameter.values[i] * static_cast<float>(1 - 0.1 * 0.5) -
        static_cast<float>(0.1 / (1 - std::pow(0.9, 7))) *
            (m / (std::sqrt(v) / root + 1e-8f));
  }
  const Floats scales = adamw.floats.at("exp_avg_before_scales");
  Store(first, "exp_avg_after", adamw, times, twice ? &scales : nullptr);
  Store(second, "exp_avg_sq_after", adamw);
  adamw.floats["parameter_after"] = parameter;
  return adamw;
}

std::vector<Finding> CheckDecoded(const Operation& operation) {
  OperationFile file = {.operations = {operation}};
  DecodeStates(file);
  return Check(file.operations);
}

TEST(StoredMoments, CodesAndScalesAreThoseOfTheMoment) {
  const std::vector<Finding> right = CheckDecoded(AdamW());
  EXPECT_EQ(right.size(), 5u);
  for (const Finding& finding : right) {
    EXPECT_TRUE(finding.is_right()) << finding.part;
  }
  ExpectNamed(CheckDecoded(AdamW(2.0f)), "exp_avg_after scales",
              "scale_scaled");
  ExpectNamed(CheckDecoded(AdamW(1.0f, true)), "exp_avg_after codes",
              "quantized_twice");
  // A scale of 0 stores nothing but zeros.
  Operation empty = AdamW();
  empty.floats["exp_avg_after_scales"].values[1] = 0.0f;
  EXPECT_FALSE(Part(CheckDecoded(empty), "exp_avg_after scales").is_right());
  EXPECT_FALSE(Part(CheckDecoded(empty), "exp_avg_after codes").is_right());
  Operation stale = AdamW();
  for (const char* part : {"exp_avg_before", "exp_avg_sq_before"}) {
    stale.floats[std::string(part) + "_scales"] =
        AdamW(0.5f).floats.at(std::string(part) + "_scales");
    for (float& scale : stale.floats[std::string(part) + "_scales"].values) {
      scale *= 0.5f;
    }
  }
  EXPECT_FALSE(Part(CheckDecoded(stale), "parameter_after").is_right());
}

TEST(StoredMoments, RefusesCodesWithoutTheirScales) {
  for (const auto& alter :
       {+[](Operation& o) { o.floats.erase("exp_avg_after_scales"); },
        +[](Operation& o) { o.codes.erase("exp_avg_before_codes"); },
        +[](Operation& o) { o.codes["exp_avg_after_codes"].type = "e2m1"; },
        +[](Operation& o) {
          o.floats["exp_avg_after_scales"].values.resize(3);
        }}) {
    Operation operation = AdamW();
    alter(operation);
    EXPECT_THROW(CheckDecoded(operation), Error);
  }
}

TEST(MasterCopy, IsTheMasterRounded) {
  Operation adamw = AdamW();
  const auto copy = [&](const auto& round) {
    Floats weight = adamw.floats.at("parameter_after");
    weight.type = "bfloat16";
    for (size_t i = 0; i < weight.values.size(); ++i) {
      weight.values[i] = round(weight.values[i], i);
    }
    adamw.floats["weight_after"] = weight;
  };
  const auto cut = [](float value) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000);
  };
  copy([](float value, size_t) { return RoundToBf16(value); });
  EXPECT_TRUE(Part(CheckDecoded(adamw), "weight_after").is_right());
  copy([&](float value, size_t) { return cut(value); });
  ExpectNamed(CheckDecoded(adamw), "weight_after", "truncated");
  const Floats& before = adamw.floats.at("parameter_before");
  copy([&](float, size_t i) { return RoundToBf16(before.values[i]); });
  ExpectNamed(CheckDecoded(adamw), "weight_after", "weight_not_copied");
  copy([](float value, size_t i) { return AtRandom(value, i); });
  ExpectNamed(CheckDecoded(adamw), "weight_after", "rounded_stochastically");
  adamw.texts["rounding"] = "stochastic";
  EXPECT_TRUE(Part(CheckDecoded(adamw), "weight_after").is_right());
  EXPECT_TRUE(Part(CheckDecoded(adamw), "weight_after roundings").is_right());
  copy([&](float value, size_t) { return cut(value); });
  ExpectNamed(CheckDecoded(adamw), "weight_after roundings",
              "rounded_toward_zero.weight_after");
}

/// A step of torchao's optimizers on BF16 weights without a master, small
/// beside the distance of two weights.
Operation RandomStep(double rate = 3e-3) {
  Operation adamw = {.type = "adamw", .module = "w"};
  const std::vector<size_t> extent = {64, 32};
  adamw.numbers = {{"lr", 3e-3},  {"beta1", 0.9},        {"beta2", 0.95},
                   {"eps", 1e-8}, {"weight_decay", 0.1}, {"step", 1}};
  adamw.floats["gradient"] = Random(extent, "g");
  Floats after = Random(extent, "p");
  for (float& p : after.values) p = RoundToBf16(1.1f + 0.8f * std::fabs(p));
  adamw.floats["parameter_before"] = after;
  adamw.floats["exp_avg_before"] = Zeros(extent);
  adamw.floats["exp_avg_sq_before"] = Zeros(extent);
  for (size_t i = 0; i < after.values.size(); ++i) {
    const auto g = static_cast<double>(adamw.floats["gradient"].values[i]);
    const double kept = static_cast<double>(after.values[i]) * (1 - rate * 0.1);
    after.values[i] = AtRandom(
        static_cast<float>(kept - rate * g / (std::fabs(g) + 1e-8)), i);
  }
  adamw.floats["parameter_after"] = after;
  return adamw;
}

TEST(RandomParameter, FitsItsStepOrIsNamed) {
  Operation adamw = RandomStep();
  ExpectNamed({adamw}, "parameter_after", "rounded_stochastically");
  adamw.texts["rounding"] = "stochastic";
  ExpectRight({adamw});
  EXPECT_EQ(
      Part(Check({adamw}), "parameter_after roundings").comparison.other(), 0);
  // A step of less than half the distance is lost if it is rounded to nearest.
  Operation nearest = adamw;
  nearest.floats["parameter_after"] = adamw.floats["parameter_before"];
  ExpectNamed({nearest}, "parameter_after roundings",
              "rounded_to_nearest.parameter_after");
  // Half the step has the same neighbours, but roundings do not fit.
  Operation half = RandomStep(1.5e-3);
  half.texts["rounding"] = "stochastic";
  EXPECT_TRUE(Part(Check({half}), "parameter_after").is_right());
  EXPECT_FALSE(Part(Check({half}), "parameter_after roundings").is_right());
  Operation fast = RandomStep(0.03);
  fast.texts["rounding"] = "stochastic";
  EXPECT_EQ(Part(Check({fast}), "parameter_after").explanation->name, "lr_off");
  for (float& value : adamw.floats["parameter_after"].values) {
    value = std::nextafter(value, 2.0f);  // it is no number of BF16
  }
  EXPECT_FALSE(Part(Check({adamw}), "parameter_after").is_right());
}

}  // namespace
}  // namespace isoloss::operations::recorded_states_test
