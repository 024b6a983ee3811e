// Appends and checks a trailer after the HDF5 data of our files. It is checked
// before HDF5 sees any byte: HDF5 1.10 can crash or hang on one flipped bit of
// its bookkeeping. HDF5 itself does not look beyond the end that its superblock
// names.
//
// Trailer, little-endian: 8 bytes "isolossT", uint64 length of the HDF5 data,
// uint64 XXH3-64 of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::hdf5 {

inline constexpr size_t kTrailerBytes = 24;
inline constexpr size_t kSignatureBytes = 8;

/// Describes one kind of file.
struct FileKind {
  std::string_view name;     ///< "run log"
  std::string_view maker;    ///< the command that writes it
  std::string_view version;  ///< the attribute that only files of it have
};
inline constexpr FileKind kRunLogFile = {"run log", "isoloss run",
                                         "schema_version"};
inline constexpr FileKind kProbeLogFile = {"probe log", "isoloss lab probe",
                                           "probe_schema_version"};
inline constexpr FileKind kEnsembleFile = {
    "null ensemble", "isoloss lab ensemble build", "ensemble_schema_version"};
inline constexpr FileKind kTensorDumpFile = {
    "tensor dump", "isoloss run --dump", "dump_version"};

/// Appends the trailer of `image`.
void AppendTrailer(std::vector<std::byte>& image);

/// True if a file begins as HDF5 does.
bool HasSignature(std::span<const std::byte> bytes);
/// True if `bytes` end with the trailer of a file of `file_bytes`; the digest
/// is not checked.
bool HasTrailer(std::span<const std::byte> bytes, uint64_t file_bytes);

/// The HDF5 data of the `bytes` of a file of that kind. `name` is for messages.
/// Errors   FormatError if it does not begin as HDF5, or its trailer does not
///          fit it, or it has none and is not plainly of version 1 or 2, which
///          had none.
std::span<const std::byte> CheckedData(std::span<const std::byte> bytes,
                                       const std::string& name,
                                       const FileKind& kind = kRunLogFile);

}  // namespace isoloss::hdf5
