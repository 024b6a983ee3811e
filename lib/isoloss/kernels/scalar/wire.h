// Defines every wire format: scalar, built on formats/. Formulas and sizes
// stand in wire.h.
#pragma once

#include <cstddef>

#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/wire.h"

namespace isoloss::kernels::scalar {

void EncodeBf16Row(const float* row, size_t width, std::byte* bytes);
void DecodeBf16Row(const std::byte* bytes, size_t width, float* row);

void EncodeMxRow(const float* row, size_t width, std::byte* bytes);
void DecodeMxRow(const std::byte* bytes, size_t width, Rounding rounding,
                 float* row);

void EncodeE4m3Row(const float* row, size_t width, RunScale run_scale,
                   std::byte* bytes);
void DecodeE4m3Row(const std::byte* bytes, size_t width, Rounding rounding,
                   float* row);

}  // namespace isoloss::kernels::scalar
