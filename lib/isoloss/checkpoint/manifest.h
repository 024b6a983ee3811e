// Defines the texts of a checkpoint: names of folders, the manifest, and the
// header of tensors.safetensors.
//
// The manifest is one JSON object:
//   format   "isoloss-checkpoint"          version  1
//   step     optimizer steps made          facts    {name: text}
//   files    {"tensors.safetensors": {"bytes": …}}
//   header_xxh3, state_xxh3                16 hexadecimal digits each
//   tensors  [{"name", "dtype": "F32" or "I64", "shape", "bytes", "xxh3"}, …]
//   manifest_xxh3                          last: of all text before it
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/checkpoint/checkpoint.h"

namespace isoloss::checkpoint {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kTensorsFile = "tensors.safetensors";
inline constexpr std::string_view kLatestFile = "LATEST";
/// Readers refuse a larger manifest before they take the memory.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;

/// Returns a name such as "step-000120".
std::string StepFolderName(int64_t step);
/// Returns the step of such a name, or nothing for a text that is no such name.
std::optional<int64_t> ParseStepFolderName(std::string_view name);

struct Manifest {
  int64_t step = 0;
  std::map<std::string, std::string> facts;
  std::vector<TensorInfo> tensors;
  std::vector<uint64_t> digests;  ///< of the tensors' bytes

  /// The digest covers names, types, shapes and digests of the tensors.
  uint64_t StateDigest() const;
  /// Errors   FormatError if a fact or a name is not UTF-8.
  std::string ToText() const;
};

/// Errors   FormatError that starts with `path` for any text that is not that
///          of a manifest, its digest included; also for a tensor without a
///          name, two of one name, or more than 2^62 bytes.
Manifest ParseManifest(std::string_view text,
                       const std::filesystem::path& path);

/// Returns the header that precedes the data in tensors.safetensors. It has the
/// length of the JSON text, 8 bytes, little-endian, then that text. Blanks fill
/// the text up to a multiple of 8.
std::string TensorsHeader(int64_t step, std::span<const TensorInfo> tensors);

/// Throws FormatError that starts with `where` for a list that ParseManifest
/// would refuse.
void CheckTensors(std::span<const TensorInfo> tensors,
                  const std::filesystem::path& where);

}  // namespace isoloss::checkpoint
