// In which type an operation's result is kept.
#pragma once

namespace isoloss::kernels {

/// Results live in FP32 words. kBf16 rounds each one once, to nearest even, to
/// a BF16 value (formats::RoundToBf16); kFp32 leaves it alone.
enum class Rounding { kFp32, kBf16 };

}  // namespace isoloss::kernels
