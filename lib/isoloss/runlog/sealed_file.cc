#include "isoloss/runlog/sealed_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <span>
#include <system_error>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

/// HDF5 would not return from a pipe.
void CheckReadable(const fs::path& path, const FileKind& kind) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    ThrowError(ErrorKind::kIo, "{}: can't open: {}. Check the path.",
               path.string(), error.message());
  }
  if (!fs::is_regular_file(status)) {
    ThrowError(ErrorKind::kIo,
               "{}: is a folder or device, but a {} is a file. Pass the path "
               "of an .h5 file.",
               path.string(), kind.name);
  }
}

/// The whole file: what was checked is what HDF5 reads, whatever happens to the
/// file meanwhile.
std::vector<std::byte> ReadBytes(const fs::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) {
    ThrowError(ErrorKind::kIo, "{}: can't open: {}. Check its permissions.",
               path.string(), std::generic_category().message(errno));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!file) {
    ThrowError(ErrorKind::kIo, "{}: can't read: {}. Read it once more.",
               path.string(), std::generic_category().message(errno));
  }
  return bytes;
}

}  // namespace

void WriteSealedFile(
    const fs::path& path, const FileKind& kind,
    const std::function<void(const h5::Handle& file)>& encode) {
  std::vector<std::byte> image;
  try {
    const h5::Session session;
    const h5::Handle file = h5::CreateFileInMemory();
    encode(file);
    image = h5::FileImage(file);
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kIo, "{}: HDF5 can't hold this {}: {}.",
               path.string(), kind.name, failure.what());
  }
  AppendTrailer(image);
  WriteFileAtomically(path, image);
}

void ReadSealedFile(const fs::path& path, const FileKind& kind,
                    const std::function<void(const h5::Handle& file)>& decode) {
  CheckReadable(path, kind);
  const std::vector<std::byte> bytes = ReadBytes(path);
  const std::span<const std::byte> data =
      CheckedData(bytes, path.string(), kind);
  const h5::Session session;
  try {
    decode(h5::OpenImage(data));
  } catch (const h5::Failure& failure) {
    ThrowError(ErrorKind::kFormat,
               "{}: HDF5 can't read it: {}. The file is truncated or damaged; "
               "make it again.",
               path.string(), failure.what());
  }
}

}  // namespace isoloss::runlog
