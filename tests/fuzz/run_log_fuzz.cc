// Any bytes as a run log: what is checked before HDF5 sees them lets nothing
// through but what was written whole. HDF5 itself is not fuzzed: behind a
// digest that fits it is given only what it wrote.
//
// If the first byte is even the rest is the file; else it is put behind the
// HDF5 signature, so that the search for a version is reached.
#include <cstring>
#include <span>

#include "fuzz/entry_point.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/hdf5/trailer.h"

namespace {

using namespace isoloss;        // NOLINT(google-build-using-namespace)
using namespace isoloss::hdf5;  // NOLINT(google-build-using-namespace)

constexpr char kSignature[] = "\x89HDF\r\n\x1a\n";

void Check(std::span<const std::byte> file) {
  try {
    const auto data = CheckedData(file, "run.h5");
    ISOLOSS_ASSERT(data.data() == file.data());
    ISOLOSS_ASSERT(std::memcmp(data.data(), kSignature, 8) == 0);
    if (data.size() == file.size()) return;  // an old one
    uint64_t digest = 0;
    std::memcpy(&digest, file.last(sizeof(digest)).data(), sizeof(digest));
    ISOLOSS_ASSERT(data.size() + kTrailerBytes == file.size());
    ISOLOSS_ASSERT(DigestOf(data.data(), data.size()) == digest);
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::vector<std::byte> file;
  if (data[0] % 2 == 1) {
    const auto signature = std::as_bytes(std::span(kSignature, 8));
    file.assign(signature.begin(), signature.end());
  }
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  file.insert(file.end(), rest.begin(), rest.end());
  Check(file);
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  // The attribute message of schema_version = 2 as HDF5 writes it.
  std::string old(1, '\1');
  old.append("\x01\x00\x0f\x00\x0c\x00\x08\x00", 8);
  old.append("schema_version\0", 16);
  old.append(24, 'x');
  old.append("\2\0\0\0\0\0\0\0", 8);
  std::vector<std::byte> sealed(32, std::byte{'x'});
  std::memcpy(sealed.data(), kSignature, 8);
  AppendTrailer(sealed);
  std::string whole(1, '\0');
  whole.append(reinterpret_cast<const char*>(sealed.data()), sealed.size());
  return {old, whole};
}
