// Any bytes as a checkpoint: refused with an Error, or whole.
//
// The first byte says how the rest is read: as a manifest; as one whose digest
// is put right, so that what is behind that check is reached; or as a folder,
// where the next two bytes are the length of such a manifest and the rest is
// tensors.safetensors.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/checkpoint/manifest.h"

namespace {

using namespace isoloss;  // NOLINT(google-build-using-namespace): a program
namespace fs = std::filesystem;

std::string Sealed(std::string_view body) {
  return std::string(body) + ",\n  \"manifest_xxh3\": \"" +
         DigestToHex(DigestOf(body)) + "\"\n}\n";
}

void Parse(std::string_view text) {
  try {
    const checkpoint::Manifest manifest =
        checkpoint::ParseManifest(text, "manifest.json");
    // What is accepted can be written, and is then the same.
    const checkpoint::Manifest again =
        checkpoint::ParseManifest(manifest.ToText(), "manifest.json");
    ISOLOSS_ASSERT(again.StateDigest() == manifest.StateDigest());
    ISOLOSS_ASSERT(again.facts == manifest.facts);
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
}

/// One folder for the whole campaign.
const fs::path& Folder() {
  static const struct Temporary {
    Temporary() {
      std::string pattern =
          (fs::temp_directory_path() / "isoloss-fuzz-XXXXXX").string();
      ISOLOSS_ASSERT(::mkdtemp(pattern.data()) != nullptr);
      path = pattern;
      fs::create_directory(path / "step-000120");
    }
    ~Temporary() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
    fs::path path;
  } temporary;
  return temporary.path;
}

void Write(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void Find(std::string_view manifest, std::string_view tensors) {
  const fs::path folder = Folder() / "step-000120";
  Write(folder / checkpoint::kManifestFile, manifest);
  Write(folder / checkpoint::kTensorsFile, tensors);
  const checkpoint::Found found = checkpoint::FindNewest(Folder());
  ISOLOSS_ASSERT(!found.notes.empty());  // there is no LATEST
  if (!found.checkpoint) return;
  ISOLOSS_ASSERT(found.checkpoint->step() == 120);
  size_t bytes = 0;
  for (const auto& tensor : found.checkpoint->tensors()) {
    bytes += tensor.bytes();
  }
  ISOLOSS_ASSERT(bytes < tensors.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.size() < 3) return 0;
  switch (data[0] % 3) {
    case 0:
      Parse(bytes.substr(1));
      break;
    case 1:
      Parse(Sealed(bytes.substr(1)));
      break;
    default: {
      const size_t length =
          std::min<size_t>(data[1] + size_t{256} * data[2], bytes.size() - 3);
      Find(Sealed(bytes.substr(3, length)), bytes.substr(3 + length));
    }
  }
  return 0;
}
