// Keeps checkpoints: tensors by name in a folder that is either whole or
// absent.
//
//   NAME.checkpoints/
//     step-000120/tensors.safetensors   all tensors, logical ones: nothing in
//                                       it depends on ranks, processes or
//                                       threads
//     step-000120/manifest.json         describes them, with digests; written
//                                       last
//     LATEST                            "step-000120"
//
// The file of tensors is in the safetensors format, so any program can read it.
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

/// Writes one checkpoint. tensors.safetensors goes into a temporary folder;
/// each tensor is digested and the file is synced. The manifest follows. Then
/// the folder is synced and renamed, and LATEST is replaced. At last older
/// checkpoints are removed, except the newest two. If a step fails or is
/// killed, the earlier checkpoints stay as they were.
class Writer {
 public:
  /// Makes `folder` if needed, removes what killed writers left in it, and
  /// reserves the space of all `tensors`. A folder has one writer at a time.
  /// `facts` are kept beside the tensors, such as the experiment's text.
  /// Errors   IoError with the path, the system's reason and a remedy, as of
  ///          all members; FormatError for two tensors of one name or a text
  ///          that is not UTF-8.
  Writer(std::filesystem::path folder, int64_t step,
         std::vector<TensorInfo> tensors,
         std::map<std::string, std::string> facts);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  /// Removes files that are not committed.
  ~Writer();

  /// Writes the next tensor's values, in the order of the constructor's list.
  /// Errors   ShapeError if the size is not the announced one; IoError.
  void Add(std::span<const float> values);
  void Add(std::span<const int64_t> values);
  /// Publishes the checkpoint, once, and returns its state digest. It replaces
  /// a checkpoint of the same step; those of later steps stay.
  /// Errors   ShapeError if tensors are missing; IoError.
  uint64_t Commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads a checkpoint whose every byte was compared with its digests. It keeps
/// its file open, so it may be read after the folder was removed.
class Checkpoint {
 public:
  /// Reads and verifies a folder "step-…".
  /// Errors   IoError if it can't be read; FormatError naming file, tensor and
  ///          what is wrong with it.
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return step_; }
  const std::map<std::string, std::string>& facts() const { return facts_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }
  /// The digest covers all tensors: names, types, shapes and bytes.
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

/// A search for the newest checkpoint returns this.
struct Found {
  std::optional<Checkpoint> checkpoint;
  /// Each checkpoint that was passed over has one sentence or more that says
  /// why.
  std::vector<std::string> notes;
};

/// Returns why a whole checkpoint can't be used, or "" if it can.
using Misfit = std::function<std::string(const Checkpoint& checkpoint)>;

/// Returns the checkpoint that LATEST names if it is whole and fits, else the
/// newest one that is whole and fits. A folder that is missing or has no
/// checkpoint gives nothing.
Found FindNewest(const std::filesystem::path& checkpoints,
                 const Misfit& misfit = {});
/// Returns the newest such checkpoint whose step is at most `step`.
Found FindNewestUpTo(const std::filesystem::path& checkpoints, int64_t step,
                     const Misfit& misfit = {});

}  // namespace isoloss::checkpoint
