#include "isoloss/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/checkpoint/manifest.h"

namespace isoloss::checkpoint {
namespace {

namespace fs = std::filesystem;

Manifest ReadManifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  const Descriptor file = OpenFile(path);
  const uint64_t size = FileSize(file, path);
  if (size > kMaxManifestBytes) {
    ThrowError(ErrorKind::kFormat,
               "{}: has {} bytes, but a manifest has at most {}. Use another "
               "checkpoint.",
               path.string(), size, kMaxManifestBytes);
  }
  std::string text(size, '\0');
  ReadAll(file, 0, std::as_writable_bytes(std::span(text)), path);
  return ParseManifest(text, path);
}

/// A folder under another checkpoint's name would be taken for that checkpoint.
void CheckName(const fs::path& folder, int64_t step) {
  const auto named = ParseStepFolderName(folder.filename().string());
  if (!named || *named == step) return;
  ThrowError(ErrorKind::kFormat,
             "{}: its manifest is that of step {}, but its name says {}. "
             "Rename it.",
             folder.string(), step, *named);
}

std::string ShapeText(DataType type, std::span<const size_t> shape) {
  return fmt::format("{} [{}]", type == DataType::kF32 ? "F32" : "I64",
                     fmt::join(shape, ", "));
}

}  // namespace

struct Checkpoint::File {
  fs::path path;
  Descriptor descriptor;
  uint64_t data_begin = 0;
  std::vector<uint64_t> digests;  // of the tensors' bytes

  [[noreturn]] void Damaged(const std::string& what) const {
    ThrowError(ErrorKind::kFormat,
               "{}: {}. The file is damaged; use another checkpoint.",
               path.string(), what);
  }
  void CheckDigest(const TensorInfo& tensor, size_t index,
                   uint64_t digest) const {
    if (digest == digests[index]) return;
    Damaged(fmt::format("tensor `{}` has digest {}, but the manifest says {}",
                        tensor.name, DigestToHex(digest),
                        DigestToHex(digests[index])));
  }
};

Checkpoint::Checkpoint(const fs::path& folder) : folder_(folder) {
  Manifest manifest = ReadManifest(folder);
  CheckName(folder, manifest.step);
  step_ = manifest.step;
  state_digest_ = manifest.StateDigest();
  facts_ = std::move(manifest.facts);
  tensors_ = std::move(manifest.tensors);
  const auto file = std::make_shared<File>();
  file->path = folder / kTensorsFile;
  file->descriptor = OpenFile(file->path);
  file->digests = std::move(manifest.digests);
  file_ = file;

  // The manifest determines the header completely, so nothing in the header has
  // to be believed.
  const std::string expected = TensorsHeader(step_, tensors_);
  uint64_t size = expected.size();
  for (const TensorInfo& tensor : tensors_) size += tensor.bytes();
  const uint64_t found = FileSize(file->descriptor, file->path);
  if (found != size) {
    file->Damaged(
        fmt::format("it has {} bytes, but the manifest says {}", found, size));
  }
  std::string header(expected.size(), '\0');
  ReadAll(file->descriptor, 0, std::as_writable_bytes(std::span(header)),
          file->path);
  if (header != expected) {
    file->Damaged("its header does not list the manifest's tensors");
  }
  file->data_begin = header.size();
  CheckBytes();
}

void Checkpoint::CheckBytes() const {
  size_t largest = 0;
  for (const TensorInfo& tensor : tensors_) {
    largest = std::max(largest, tensor.bytes());
  }
  std::vector<std::byte> chunk(std::min(largest, size_t{1} << 20));
  uint64_t offset = file_->data_begin;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Digest digest;
    const uint64_t end = offset + tensors_[i].bytes();
    while (offset < end) {
      const auto part = std::span(chunk).first(
          std::min<uint64_t>(chunk.size(), end - offset));
      ReadAll(file_->descriptor, offset, part, file_->path);
      digest.Update(part.data(), part.size());
      offset += part.size();
    }
    file_->CheckDigest(tensors_[i], i, digest.Value());
  }
}

void Checkpoint::Read(std::string_view name, std::span<const size_t> shape,
                      std::span<float> values) const {
  ReadBytes(name, DataType::kF32, shape, std::as_writable_bytes(values));
}

void Checkpoint::Read(std::string_view name, std::span<const size_t> shape,
                      std::span<int64_t> values) const {
  ReadBytes(name, DataType::kI64, shape, std::as_writable_bytes(values));
}

void Checkpoint::ReadBytes(std::string_view name, DataType type,
                           std::span<const size_t> shape,
                           std::span<std::byte> values) const {
  uint64_t offset = file_->data_begin;
  size_t index = 0;
  while (index < tensors_.size() && tensors_[index].name != name) {
    offset += tensors_[index++].bytes();
  }
  if (index == tensors_.size()) {
    ThrowError(ErrorKind::kFormat,
               "{}: has no tensor `{}` among its {}. Use a checkpoint of the "
               "same model.",
               file_->path.string(), name, tensors_.size());
  }
  const TensorInfo& tensor = tensors_[index];
  if (tensor.type != type || !std::ranges::equal(tensor.shape, shape)) {
    ThrowError(ErrorKind::kFormat,
               "{}: tensor `{}` is {}, but {} is needed. Use a checkpoint of "
               "the same model.",
               file_->path.string(), name, ShapeText(tensor.type, tensor.shape),
               ShapeText(type, shape));
  }
  if (values.size() != tensor.bytes()) {
    ThrowError(ErrorKind::kShape,
               "Checkpoint: `{}` has {} bytes, but there is room for {}. Pass "
               "as much as the shape says.",
               name, tensor.bytes(), values.size());
  }
  ReadAll(file_->descriptor, offset, values, file_->path);
  file_->CheckDigest(tensor, index, DigestOf(values.data(), values.size()));
}

}  // namespace isoloss::checkpoint
