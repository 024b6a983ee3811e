// Defines how a row of values travels: its bytes on the wire, and the values
// that the receiver decodes from them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/travel.h"

namespace isoloss::expert_parallel {

/// Is one encoding of rows of `width` FP32 words.
struct Payload {
  std::string_view name;
  size_t (*row_bytes)(size_t width);
  /// Writes row_bytes(width) bytes.
  void (*encode)(const float* row, size_t width, std::byte* bytes);
  /// Decodes the values that a receiver computes with: FP32 words, rounded as
  /// `rounding` says.
  void (*decode)(const std::byte* bytes, size_t width,
                 kernels::Rounding rounding, float* row);
  /// Kernels quantise rows alike in this format. Without one, rows arrive as
  /// they are: their values must be of the payload's type.
  std::optional<kernels::RowFormat> format = {};
};

/// Returns the names that an experiment may give, in order: "unquantized",
/// "mx1x32", "e4m3_1x128_fp32", "e4m3_1x128_pow2".
std::vector<std::string> PayloadNames();

/// Finds a payload. "unquantized" is BF16 (exact, because activations are BF16
/// values) or, for FP32 activations, FP32.
/// Errors   ConfigError that lists the names and suggests the nearest.
const Payload& PayloadByName(std::string_view name,
                             kernels::Rounding activations);

}  // namespace isoloss::expert_parallel
