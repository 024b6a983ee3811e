// Sends rows as they are: BF16 words, or FP32 words if activations are FP32.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "isoloss/expert_parallel/payload.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/wire.h"

namespace isoloss::expert_parallel {
namespace {

void EncodeFp32(const float* row, size_t width, std::byte* bytes) {
  if (width > 0) std::memcpy(bytes, row, width * sizeof(float));
}

void DecodeFp32(const std::byte* bytes, size_t width,
                kernels::Rounding rounding, float* row) {
  if (width > 0) std::memcpy(row, bytes, width * sizeof(float));
  if (rounding == kernels::Rounding::kBf16) {
    std::transform(row, row + width, row, formats::RoundToBf16);
  }
}

void DecodeBf16(const std::byte* bytes, size_t width,
                kernels::Rounding /*rounding*/, float* row) {
  kernels::DecodeBf16Row(bytes, width, row);  // BF16 values already
}

}  // namespace

extern constinit const Payload kPayload_bf16 = {
    .name = "bf16",
    .row_bytes = [](size_t width) { return width * sizeof(uint16_t); },
    .encode = kernels::EncodeBf16Row,
    .decode = DecodeBf16,
};

extern constinit const Payload kPayload_fp32 = {
    .name = "fp32",
    .row_bytes = [](size_t width) { return width * sizeof(float); },
    .encode = EncodeFp32,
    .decode = DecodeFp32,
};

}  // namespace isoloss::expert_parallel
