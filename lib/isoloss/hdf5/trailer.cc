#include "isoloss/hdf5/trailer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"

namespace isoloss::hdf5 {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "isolossT";
constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
/// Files have a trailer from this version on.
constexpr int64_t kSince = 3;

struct Trailer {
  std::array<char, kMagic.size()> magic;
  uint64_t length;
  uint64_t digest;
};
static_assert(sizeof(Trailer) == kTrailerBytes);
static_assert(kSignature.size() == kSignatureBytes);

/// Returns the bytes at the place of a trailer; zeros if there are none.
Trailer TrailerOf(std::span<const std::byte> bytes) {
  Trailer trailer{};
  if (bytes.size() >= kTrailerBytes) {
    std::memcpy(&trailer, bytes.last(kTrailerBytes).data(), kTrailerBytes);
  }
  return trailer;
}

bool HasMagic(const Trailer& trailer) {
  return std::string_view(trailer.magic.data(), trailer.magic.size()) == kMagic;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns the attribute schema_version as versions without a trailer wrote it.
/// There it is an attribute message of version 1 (HDF5 File Format
/// Specification 2.0, IV.A.2.m). The name of 15 bytes is padded to 16, an
/// integer type of 12 bytes to 16, and a scalar space has 8. HDF5 can't be
/// asked: a file without a trailer may be the damaged front of a newer one.
std::optional<int64_t> VersionWithoutHdf5(std::string_view data) {
  constexpr size_t kNameBytes = 16;
  constexpr std::string_view kHead("\x01\x00\x0f\x00\x0c\x00\x08\x00", 8);
  constexpr std::string_view kName("schema_version\0", kNameBytes);
  constexpr size_t kValue = kHead.size() + kNameBytes + 16 + 8;
  for (size_t place = data.find(kName); place != std::string_view::npos;
       place = data.find(kName, place + 1)) {
    if (place < kHead.size()) continue;
    const std::string_view message = data.substr(place - kHead.size());
    int64_t value = 0;
    if (!message.starts_with(kHead) ||
        message.size() < kValue + sizeof(value)) {
      continue;
    }
    std::memcpy(&value, message.data() + kValue, sizeof(value));
    return value;
  }
  return std::nullopt;
}

[[noreturn]] void Reject(const std::string& name, const FileKind& kind,
                         std::string_view what) {
  ThrowError(ErrorKind::kFormat,
             "{}: {}, but a {} ends with the length and digest of what is "
             "before (docs/run-log.md). It was cut off, damaged, or "
             "changed by another program since; make it again.",
             name, what, kind.name);
}

}  // namespace

void AppendTrailer(std::vector<std::byte>& image) {
  Trailer trailer{};
  std::copy(kMagic.begin(), kMagic.end(), trailer.magic.begin());
  trailer.length = image.size();
  trailer.digest = DigestOf(image.data(), image.size());
  const auto bytes = std::as_bytes(std::span(&trailer, 1));
  image.insert(image.end(), bytes.begin(), bytes.end());
}

bool HasSignature(std::span<const std::byte> bytes) {
  return Text(bytes).starts_with(kSignature);
}

bool HasTrailer(std::span<const std::byte> bytes, uint64_t file_bytes) {
  const Trailer trailer = TrailerOf(bytes);
  return HasMagic(trailer) && trailer.length == file_bytes - kTrailerBytes;
}

std::span<const std::byte> CheckedData(std::span<const std::byte> bytes,
                                       const std::string& name,
                                       const FileKind& kind) {
  if (!HasSignature(bytes)) {
    ThrowError(ErrorKind::kFormat,
               "{}: the first {} bytes are not the HDF5 signature, but a {} is "
               "an HDF5 file. Pass a file that `{}` wrote.",
               name, kSignature.size(), kind.name, kind.maker);
  }
  const Trailer trailer = TrailerOf(bytes);
  if (!HasMagic(trailer)) {
    const std::optional<int64_t> version = VersionWithoutHdf5(Text(bytes));
    if (version.has_value() && *version >= 1 && *version < kSince) {
      return bytes;
    }
    Reject(name, kind,
           fmt::format("it has no trailer and is not of schema version 1 "
                       "to {}",
                       kSince - 1));
  }
  const auto data = bytes.first(bytes.size() - kTrailerBytes);
  if (trailer.length != data.size()) {
    Reject(name, kind,
           fmt::format("its trailer is of {} bytes of HDF5 data, but {} "
                       "are before it",
                       trailer.length, data.size()));
  }
  const uint64_t digest = DigestOf(data.data(), data.size());
  if (digest != trailer.digest) {
    Reject(name, kind,
           fmt::format("the digest of its HDF5 data is {}, its trailer "
                       "says {}",
                       DigestToHex(digest), DigestToHex(trailer.digest)));
  }
  return data;
}

}  // namespace isoloss::hdf5
