// An operation's result is kept in one of these types.
#pragma once

#include "isoloss/formats/bf16.h"

namespace isoloss::kernels {

/// Results live in FP32 words. kBf16 rounds each word once, to nearest even, to
/// a BF16 value (formats::RoundToBf16); kFp32 leaves the word alone.
enum class Rounding { kFp32, kBf16 };

constexpr float Rounded(float value, Rounding rounding) {
  return rounding == Rounding::kBf16 ? formats::RoundToBf16(value) : value;
}

}  // namespace isoloss::kernels
