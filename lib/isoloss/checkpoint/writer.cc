#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/checkpoint/manifest.h"

namespace isoloss::checkpoint {
namespace {

namespace fs = std::filesystem;

/// This many whole checkpoints stay: one to go on from, one in case it is
/// damaged.
constexpr size_t kKept = 2;

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error) {
    errno = error.value();
    ThrowErrno(folder, "list");
  }
  return entries;
}

bool Matches(const fs::path& path, std::string_view prefix,
             std::string_view part) {
  const std::string name = path.filename().string();
  return name.starts_with(prefix) && name.find(part) != std::string::npos;
}

/// The writer of a temporary folder holds this lock as long as it lives. A
/// process id would not do, since another process may get the same one.
bool Lock(const Descriptor& folder) {
  return ::flock(folder.get(), LOCK_EX | LOCK_NB) == 0;
}

/// Removes what killed writers left.
void RemoveStale(const fs::path& checkpoints) {
  for (const fs::path& entry : EntriesOf(checkpoints)) {
    if (Matches(entry, ".step-", ".tmp-")) {
      if (Lock(OpenFolder(entry))) RemoveFolder(entry);
    } else if (Matches(entry, fmt::format(".{}.", kLatestFile), ".tmp")) {
      RemoveFolder(entry);
    }
  }
}

/// Owns a folder such as ".step-000120.tmp-4711". It is removed at the end
/// unless it became the checkpoint.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    if (::mkdir(path_.c_str(), 0777) != 0) ThrowErrno(path_, "create");
    exists_ = true;
    try {
      descriptor_ = OpenFolder(path_);
    } catch (...) {
      Remove();
      throw;
    }
    Lock(descriptor_);
  }
  ~TemporaryFolder() { Remove(); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  void Sync() const { SyncFolder(descriptor_, path_); }
  void BecomeCheckpoint(const fs::path& path) {
    Rename(path_, path);
    exists_ = false;
  }

 private:
  void Remove() {
    std::error_code ignored;
    if (exists_) fs::remove_all(path_, ignored);
  }

  fs::path path_;
  Descriptor descriptor_;
  bool exists_ = false;
};

/// Makes the folder of all checkpoints if needed, removes stale files from it
/// and returns it.
const fs::path& Prepared(const fs::path& checkpoints) {
  std::error_code error;
  const bool created = fs::create_directories(checkpoints, error);
  if (error) {
    errno = error.value();
    ThrowErrno(checkpoints, "create");
  }
  if (created) SyncFolder(fs::absolute(checkpoints).parent_path());
  RemoveStale(checkpoints);
  return checkpoints;
}

/// Renames it to a hidden name first, so that no half of a checkpoint has its
/// own name.
void RemoveCheckpoint(const fs::path& path) {
  const fs::path hidden =
      path.parent_path() /
      fmt::format(".{}.tmp-{}", path.filename().string(), ::getpid());
  RemoveFolder(hidden);
  Rename(path, hidden);
  RemoveFolder(hidden);
}

/// Leaves `step` and the newest before it. Later checkpoints belong to a run
/// that once went on further; the present run will replace them.
void RemoveOlder(const fs::path& checkpoints, int64_t step) {
  std::vector<int64_t> steps;
  for (const fs::path& entry : EntriesOf(checkpoints)) {
    const auto other = ParseStepFolderName(entry.filename().string());
    if (other && *other <= step) steps.push_back(*other);
    if (Matches(entry, ".step-", ".old-")) RemoveFolder(entry);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  for (size_t i = kKept; i < steps.size(); ++i) {
    RemoveCheckpoint(checkpoints / StepFolderName(steps[i]));
  }
}

}  // namespace

struct Writer::Impl {
  Impl(fs::path checkpoints_folder, int64_t step,
       std::vector<TensorInfo> tensors,
       std::map<std::string, std::string> facts);

  void Add(DataType type, std::span<const std::byte> values);
  void Commit();
  void Publish();

  fs::path checkpoints;
  Manifest manifest;
  TemporaryFolder temporary;
  fs::path tensors_path;
  Descriptor file;
  bool committed = false;
};

Writer::Impl::Impl(fs::path checkpoints_folder, int64_t step,
                   std::vector<TensorInfo> tensors,
                   std::map<std::string, std::string> facts)
    : checkpoints(std::move(checkpoints_folder)),
      manifest{.step = step,
               .facts = std::move(facts),
               .tensors = std::move(tensors),
               .digests = {}},
      temporary(Prepared(checkpoints) /
                fmt::format(".{}.tmp-{}", StepFolderName(step), ::getpid())),
      tensors_path(temporary.path() / kTensorsFile) {
  ISOLOSS_ASSERT(step >= 0);
  CheckTensors(manifest.tensors, checkpoints);
  const std::string header = TensorsHeader(step, manifest.tensors);
  uint64_t bytes = header.size();
  for (const TensorInfo& tensor : manifest.tensors) bytes += tensor.bytes();
  file = CreateFile(tensors_path);
  Reserve(file, bytes, tensors_path);
  WriteAll(file, std::as_bytes(std::span(header)), tensors_path);
}

void Writer::Impl::Add(DataType type, std::span<const std::byte> values) {
  const size_t index = manifest.digests.size();
  if (index == manifest.tensors.size()) {
    ThrowError(ErrorKind::kShape,
               "{}: a tensor of {} bytes follows the last of {}. Announce it.",
               tensors_path.string(), values.size(), index);
  }
  const TensorInfo& tensor = manifest.tensors[index];
  if (tensor.type != type || tensor.bytes() != values.size()) {
    ThrowError(ErrorKind::kShape,
               "{}: tensor `{}` was announced with {} bytes, but {} of {} "
               "type are given. Pass tensors in the announced order.",
               tensors_path.string(), tensor.name, tensor.bytes(),
               values.size(), tensor.type == type ? "that" : "another");
  }
  WriteAll(file, values, tensors_path);
  manifest.digests.push_back(DigestOf(values.data(), values.size()));
}

void Writer::Impl::Commit() {
  ISOLOSS_ASSERT(!committed);
  if (manifest.digests.size() != manifest.tensors.size()) {
    ThrowError(ErrorKind::kShape,
               "{}: {} tensors were announced, but {} were given. Pass all.",
               tensors_path.string(), manifest.tensors.size(),
               manifest.digests.size());
  }
  SyncAndClose(std::move(file), tensors_path);
  const std::string text = manifest.ToText();
  const fs::path manifest_path = temporary.path() / kManifestFile;
  Descriptor manifest_file = CreateFile(manifest_path);
  WriteAll(manifest_file, std::as_bytes(std::span(text)), manifest_path);
  SyncAndClose(std::move(manifest_file), manifest_path);
  temporary.Sync();
  Publish();
}

/// At every point FindNewest finds the newest whole checkpoint.
void Writer::Impl::Publish() {
  const std::string name = StepFolderName(manifest.step);
  const fs::path path = checkpoints / name;
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    const fs::path old =
        checkpoints / fmt::format(".{}.old-{}", name, ::getpid());
    RemoveFolder(old);  // a killed process had the same id
    Rename(path, old);
  }
  temporary.BecomeCheckpoint(path);
  committed = true;
  SyncFolder(checkpoints);
  WriteFileAtomically(checkpoints / kLatestFile, name + "\n");
  RemoveOlder(checkpoints, manifest.step);
}

Writer::Writer(fs::path folder, int64_t step, std::vector<TensorInfo> tensors,
               std::map<std::string, std::string> facts)
    : impl_(std::make_unique<Impl>(std::move(folder), step, std::move(tensors),
                                   std::move(facts))) {}

Writer::~Writer() = default;

void Writer::Add(std::span<const float> values) {
  impl_->Add(DataType::kF32, std::as_bytes(values));
}

void Writer::Add(std::span<const int64_t> values) {
  impl_->Add(DataType::kI64, std::as_bytes(values));
}

uint64_t Writer::Commit() {
  impl_->Commit();
  return impl_->manifest.StateDigest();
}

}  // namespace isoloss::checkpoint
