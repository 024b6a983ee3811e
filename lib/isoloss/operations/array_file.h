// Tensors in safetensors and .npy files, from bytes that nobody trusts.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/operations/operation.h"

namespace isoloss::operations {

/// A tensor as its file holds it, little-endian and row-major.
struct StoredArray {
  std::string type;  ///< by safetensors' name: "F32", "BF16", "I64", ...
  std::vector<size_t> extent;
  std::span<const std::byte> bytes;
};

/// A longer header is refused: a thousand tensors take a tenth of it.
inline constexpr size_t kMaxHeaderBytes = size_t{1} << 20;

/// What they return refers to `bytes`. `file` is for messages.
/// Errors   FormatError if the bytes are not of that form, a tensor does not
///          lie within the file, or its extent is not that of its bytes.
/// Source   github.com/huggingface/safetensors, README, "Format"; NEP 1 of
///          NumPy, versions 1 to 3.
std::map<std::string, StoredArray> ParseSafetensors(
    std::span<const std::byte> bytes, const std::string& file);
StoredArray ParseNpy(std::span<const std::byte> bytes, const std::string& file);

/// Numbers of a tensor, widened exactly. `where` is for messages.
/// Errors   FormatError of another type: F32, BF16, F16, F8_E4M3 or F8_E5M2;
///          I64 or I32; U8, F8_E4M3 or F8_E5M2.
Floats FloatsOf(const StoredArray& stored, const std::string& where);
Integers IntegersOf(const StoredArray& stored, const std::string& where);
Codes CodesOf(const StoredArray& stored, const std::string& where);

}  // namespace isoloss::operations
