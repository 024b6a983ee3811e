// A GPU computes functions of one FP32 number for all numbers there are.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/e4m3.h"
#include "isoloss/formats/format.h"
#include "isoloss/kernels/elementary.h"

namespace isoloss::device {

enum class Elementary { kExp, kLog, kSigmoid, kRsqrt, kBf16, kE4m3 };

/// Returns the bits of a number; NaNs are alike.
constexpr uint32_t BitsOf(float value) {
  return std::isnan(value) ? 0x7FC00000 : std::bit_cast<uint32_t>(value);
}

/// Returns the bits of function(x) for the number with these bits.
constexpr uint32_t ElementaryBits(Elementary function, uint32_t input) {
  const float x = std::bit_cast<float>(input);
  switch (function) {
    case Elementary::kExp:
      return BitsOf(kernels::Exp(x));
    case Elementary::kLog:
      return BitsOf(kernels::Log(x));
    case Elementary::kSigmoid:
      return BitsOf(kernels::Sigmoid(x));
    case Elementary::kRsqrt:
      return BitsOf(kernels::Rsqrt(x));
    case Elementary::kBf16:
      return BitsOf(formats::RoundToBf16(x));
    case Elementary::kE4m3: {
      constexpr formats::Format format = formats::kE4m3Format;
      return formats::Encode(format, x, formats::Overflow::kSaturate);
    }
  }
  return 0;
}

/// results[i] = ElementaryBits(function, first + i), by the GPU of an executor
/// that MakeCuda returned.
void ComputeOnGpu(Elementary function, uint32_t first,
                  std::span<uint32_t> results, Executor& gpu);

}  // namespace isoloss::device
