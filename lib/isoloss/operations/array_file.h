// Reads tensors from safetensors and .npy files, whose bytes are not trusted.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/operations/operation.h"

namespace isoloss::operations {

/// A tensor is little-endian and row-major, as its file holds it.
struct StoredArray {
  std::string type;  ///< by safetensors' name: "F32", "BF16", "I64", ...
  std::vector<size_t> extent;
  std::span<const std::byte> bytes;
};

/// A longer header is refused; a thousand tensors take a tenth of it.
inline constexpr size_t kMaxHeaderBytes = size_t{1} << 20;

/// Parses a file. The result refers to `bytes`; `file` is for messages.
/// Errors   FormatError if the bytes are not of that form, a tensor does not
///          lie within the file, or its extent is not that of its bytes.
/// Source   github.com/huggingface/safetensors, README, "Format"; NEP 1 of
///          NumPy, versions 1 to 3.
std::map<std::string, StoredArray> ParseSafetensors(
    std::span<const std::byte> bytes, const std::string& file);
StoredArray ParseNpy(std::span<const std::byte> bytes, const std::string& file);

/// Widens the numbers of a tensor exactly. `where` is for messages.
/// Errors   FormatError for any type but these: F32, BF16, F16, F8_E4M3 or
///          F8_E5M2 for floats; I64 or I32 for integers; U8, F8_E4M3 or F8_E5M2
///          for codes.
Floats FloatsOf(const StoredArray& stored, const std::string& where);
Integers IntegersOf(const StoredArray& stored, const std::string& where);
Codes CodesOf(const StoredArray& stored, const std::string& where);

}  // namespace isoloss::operations
