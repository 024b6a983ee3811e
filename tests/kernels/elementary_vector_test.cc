// The vector versions of the elementary functions equal the scalar ones, bit
// for bit, on every target of this processor.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/targets.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elementary_vector_test.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/bf16-inl.h"
#include "isoloss/kernels/elementary-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

/// Applies the functions to x, whose size is a multiple of 16.
void Evaluate(std::span<const float> x, float* exp, float* log, float* sigmoid,
              float* bf16) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  for (size_t i = 0; i < x.size(); ++i) {
    exp[i] = kernels::Exp(x[i]);
    log[i] = kernels::Log(x[i]);
    sigmoid[i] = kernels::Sigmoid(x[i]);
    bf16[i] = formats::RoundToBf16(x[i]);
  }
#else
  const hn::CappedTag<float, 16> d;
  for (size_t i = 0; i < x.size(); i += hn::MaxLanes(d)) {
    const auto v = hn::LoadU(d, x.data() + i);
    hn::StoreU(Exp(d, v), d, exp + i);
    hn::StoreU(Log(d, v), d, log + i);
    hn::StoreU(Sigmoid(d, v), d, sigmoid + i);
    hn::StoreU(RoundToBf16(d, v), d, bf16 + i);
  }
#endif
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(Evaluate);

/// 2,048 values of each sign and exponent, subnormals, infinities and NaN
/// included: the ends of the mantissa and random ones between.
std::vector<float> EveryExponent() {
  constexpr uint32_t kPerExponent = 2048;
  const CounterRng rng(1, 0);
  std::vector<float> values;
  for (uint32_t top = 0; top < 512; ++top) {
    for (uint32_t i = 0; i < kPerExponent; ++i) {
      const uint32_t random = static_cast<uint32_t>(rng.Bits(values.size()));
      const uint32_t mantissa = i < 8 ? i
                                : i >= kPerExponent - 8
                                    ? 0u - (kPerExponent - i)
                                    : random;
      values.push_back(std::bit_cast<float>(top << 23 | (mantissa & 0x7FFFFF)));
    }
  }
  return values;
}

class ElementaryVectorTest : public testing::TestWithParam<std::string> {
 protected:
  ElementaryVectorTest() { ForceTarget(GetParam()); }
  ~ElementaryVectorTest() override { ForceTarget(""); }
};

TEST_P(ElementaryVectorTest, EqualsScalarBitForBit) {
  const std::vector<float> x = EveryExponent();
  std::vector<float> exp(x.size());
  std::vector<float> log(x.size());
  std::vector<float> sigmoid(x.size());
  std::vector<float> bf16(x.size());

  HWY_DYNAMIC_DISPATCH(Evaluate)
  (x, exp.data(), log.data(), sigmoid.data(), bf16.data());

  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  for (size_t i = 0; i < x.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "bits " << std::hex << bits(x[i]));
    ASSERT_EQ(bits(exp[i]), bits(Exp(x[i])));
    ASSERT_EQ(bits(log[i]), bits(Log(x[i])));
    ASSERT_EQ(bits(sigmoid[i]), bits(Sigmoid(x[i])));
    ASSERT_EQ(bits(bf16[i]), bits(formats::RoundToBf16(x[i])));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ElementaryVectorTest,
                         testing::ValuesIn(SupportedTargets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace isoloss::kernels

#endif  // HWY_ONCE
