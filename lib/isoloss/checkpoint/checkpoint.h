// Checkpoints: tensors by name in a folder that is either whole or not there.
//
//   NAME.checkpoints/
//     step-000120/tensors.safetensors   all tensors, logical ones: nothing in
//     it
//                                       depends on ranks, processes or threads
//     step-000120/manifest.json         what they are, with digests; written
//     last LATEST                            "step-000120"
//
// The file of tensors is in the safetensors format, so other programs read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isoloss::checkpoint {

enum class DataType { kF32, kI64 };

struct TensorInfo {
  std::string name;
  DataType type = DataType::kF32;
  std::vector<size_t> shape;

  size_t bytes() const;
};

/// Writes one checkpoint: tensors.safetensors into a temporary folder, each
/// tensor digested and the file synced, then the manifest, then the folder is
/// synced and renamed, then LATEST replaced, then older checkpoints removed
/// but for the newest two. Whatever fails or kills it before, what was there
/// stays as it was.
class Writer {
 public:
  /// Makes `folder` if need be, removes what killed writers left in it, and
  /// reserves the space of all `tensors`. One writer per folder at a time.
  /// `facts`: anything to keep beside them, such as the experiment's text.
  /// Errors   IoError with the path, the system's reason and a remedy, as of
  ///          all members; FormatError for two tensors of one name or a text
  ///          that is not UTF-8.
  Writer(std::filesystem::path folder, int64_t step,
         std::vector<TensorInfo> tensors,
         std::map<std::string, std::string> facts);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  /// Removes what is not committed.
  ~Writer();

  /// The next tensor's values, in the order of the constructor's list.
  /// Errors   ShapeError if the size is not the announced one; IoError.
  void Add(std::span<const float> values);
  void Add(std::span<const int64_t> values);
  /// Once. Returns the state digest, as Checkpoint has it. A checkpoint of the
  /// same step is replaced, those of later steps stay.
  /// Errors   ShapeError if tensors are missing; IoError.
  uint64_t Commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A checkpoint whose every byte was checked against its digests. Keeps its
/// file open: it may be read after the folder was removed.
class Checkpoint {
 public:
  /// Reads and checks a folder "step-…".
  /// Errors   IoError if it can't be read; FormatError naming file, tensor and
  ///          what is wrong with it.
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return step_; }
  const std::map<std::string, std::string>& facts() const { return facts_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  /// Digest over all tensors: names, types, shapes, bytes.
  uint64_t state_digest() const { return state_digest_; }

  /// Errors   FormatError if there is no such tensor, or of another type or
  ///          shape, or if its bytes changed since they were checked;
  ///          ShapeError if `values` is not of that size.
  void Read(std::string_view name, std::span<const size_t> shape,
            std::span<float> values) const;
  void Read(std::string_view name, std::span<const size_t> shape,
            std::span<int64_t> values) const;

 private:
  std::filesystem::path folder_;
  int64_t step_ = 0;
  std::map<std::string, std::string> facts_;
  std::vector<TensorInfo> tensors_;
  uint64_t state_digest_ = 0;
  struct File;
  std::shared_ptr<const File> file_;

  void CheckBytes() const;
  void ReadBytes(std::string_view name, DataType type,
                 std::span<const size_t> shape,
                 std::span<std::byte> values) const;
};

/// What a search for the newest checkpoint found.
struct Found {
  std::optional<Checkpoint> checkpoint;
  /// One sentence or more for each that was passed over, and why.
  std::vector<std::string> notes;
};

/// Why a whole checkpoint can't be used after all; "" if it can.
using Misfit = std::function<std::string(const Checkpoint& checkpoint)>;

/// The checkpoint that LATEST names or, failing that, the newest other one that
/// is whole and fits. A folder that is missing or holds none gives nothing.
Found FindNewest(const std::filesystem::path& checkpoints,
                 const Misfit& misfit = {});
/// The newest such one whose step is `step` or before it.
Found FindNewestUpTo(const std::filesystem::path& checkpoints, int64_t step,
                     const Misfit& misfit = {});

}  // namespace isoloss::checkpoint
