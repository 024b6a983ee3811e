#include "isoloss/hdf5/sealed_file.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"

namespace isoloss::hdf5 {
namespace {

namespace fs = std::filesystem;

/// Files without a trailer, which are old or cut off, have at most this many
/// bytes.
constexpr uint64_t kMaxUnsealedBytes = uint64_t{64} << 20;

/// Reads the whole file: HDF5 reads the bytes that were checked, even if the
/// file changes meanwhile. A large file is not loaded before its ends look
/// right.
std::vector<std::byte> ReadBytes(const fs::path& path, const FileKind& kind) {
  const Descriptor file = OpenFile(path);
  const uint64_t size = FileSize(file, path);
  const auto read = [&](uint64_t offset, uint64_t count) {
    std::vector<std::byte> bytes(count);
    ReadAll(file, offset, bytes, path);
    return bytes;
  };
  if (size > kMaxUnsealedBytes) {
    const bool is_sealed =
        HasSignature(read(0, kSignatureBytes)) &&
        HasTrailer(read(size - kTrailerBytes, kTrailerBytes), size);
    const uint64_t limit = is_sealed ? kMaxSealedBytes : kMaxUnsealedBytes;
    if (size > limit) {
      ThrowError(ErrorKind::kFormat,
                 "{}: has {} bytes {} its end, but a {} has at most {} bytes. "
                 "Pass a file that `{}` wrote.",
                 path.string(), size,
                 is_sealed ? "with a trailer at" : "without a trailer at",
                 kind.name, limit, kind.maker);
    }
  }
  return read(0, size);
}

constexpr std::array kKinds = {&kRunLogFile, &kProbeLogFile, &kEnsembleFile,
                               &kTensorDumpFile};

const FileKind* KindOf(const Object& root) {
  const FileKind* found = nullptr;
  for (const FileKind* kind : kKinds) {
    if (root.Attribute(kind->version) == nullptr) continue;
    if (found != nullptr) return nullptr;
    found = kind;
  }
  return found;
}

void CheckKind(const Object& root, const fs::path& path,
               const FileKind& wanted) {
  const FileKind* found = KindOf(root);
  if (found == nullptr || found->version == wanted.version) return;
  throw WrongKindError(
      *found,
      fmt::format("{}: this is a {}, but a {} is needed here. Pass a "
                  "file that `{}` wrote.",
                  path.string(), found->name, wanted.name, wanted.maker));
}

/// Calls use(tree, bytes of the file).
template <typename Use>
auto WithTree(const fs::path& path, const FileKind& kind, Part part,
              const Use& use) {
  std::vector<std::byte> bytes = ReadBytes(path, kind);
  const size_t size = bytes.size();
  const Tree tree(CheckedData(bytes, path.string(), kind), path.string(), part);
  bytes = {};  // the tree has what it needs of them
  return use(tree, size);
}

}  // namespace

void WriteSealedFile(const fs::path& path, const FileKind& kind,
                     const std::function<void(const Handle& file)>& encode) {
  std::vector<std::byte> image;
  try {
    const Session session;
    const Handle file = CreateFileInMemory();
    encode(file);
    image = FileImage(file);
  } catch (const Failure& failure) {
    ThrowError(ErrorKind::kIo, "{}: HDF5 can't hold this {}: {}.",
               path.string(), kind.name, failure.what());
  }
  AppendTrailer(image);
  if (image.size() > kMaxSealedBytes) {
    ThrowError(ErrorKind::kIo,
               "{}: the {} would have {} bytes, but one of more than {} is not "
               "read. Record fewer tensors or steps.",
               path.string(), kind.name, image.size(), kMaxSealedBytes);
  }
  WriteFileAtomically(path, image);
}

ReadCharge ReadSealedFile(const fs::path& path, const FileKind& kind,
                          const std::function<void(const Object& root)>& decode,
                          Maker maker) {
  return WithTree(
      path, kind, Part::kAll, [&](const Tree& tree, size_t file_bytes) {
        CheckKind(tree.root(), path, kind);
        ReadCharge charge;
        if (maker == Maker::kAnybody) {
          charge = Charge(path.string(), file_bytes, tree.value_bytes());
        }
        decode(tree.root());
        return charge;
      });
}

const FileKind* KindOf(const fs::path& path) {
  try {
    return WithTree(path, kRunLogFile, Part::kAttributes,
                    [](const Tree& tree, size_t /*file_bytes*/) {
                      return KindOf(tree.root());
                    });
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace isoloss::hdf5
