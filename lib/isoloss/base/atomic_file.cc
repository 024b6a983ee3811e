#include "isoloss/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"

namespace isoloss {
namespace {

namespace fs = std::filesystem;

/// Removes the file at the end unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const fs::path& final_path) {
    static std::atomic<unsigned> counter{0};
    path_ = final_path.parent_path() /
            fmt::format(".{}.{}-{}.tmp", final_path.filename().string(),
                        ::getpid(), counter++);
    // A killed process that had the same id may have left this file.
    RemoveFile(path_);
  }
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const fs::path& path() const { return path_; }
  void RenameTo(const fs::path& final_path) {
    Rename(path_, final_path);
    renamed_ = true;
  }

 private:
  fs::path path_;
  bool renamed_ = false;
};

/// Returns the process that made a temporary file for `name`, or for any file
/// if `name` is "". Returns 0 if `file` is no such temporary file.
pid_t MakerOf(const std::string& file, const std::string& name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!file.starts_with('.') || !file.ends_with(kEnd)) return 0;
  const std::string stem = file.substr(0, file.size() - kEnd.size());
  const size_t dot = stem.rfind('.');
  if (!name.empty() && stem.substr(0, dot) != "." + name) return 0;
  pid_t maker = 0;
  unsigned counter = 0;
  int end = 0;
  const char* ids = stem.c_str() + dot + 1;
  const int found = std::sscanf(ids, "%d-%u%n", &maker, &counter, &end);
  return found == 2 && ids[end] == '\0' && maker > 0 ? maker : 0;
}

/// A lock shows also processes of other machines.
bool IsAbandoned(const fs::path& file, pid_t maker) {
  if (::kill(maker, 0) == 0 || errno != ESRCH) return false;
  const Descriptor opened(
      ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return opened.get() >= 0 && ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

void RemoveStaleTemporaries(const fs::path& folder, const std::string& name) {
  std::error_code error;
  fs::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const pid_t maker = MakerOf(entry->path().filename().string(), name);
    if (maker != 0 && IsAbandoned(entry->path(), maker)) {
      ::unlink(entry->path().c_str());
    }
  }
}

void SyncFolderOf(const fs::path& path) {
  SyncFolder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void WriteFileAtomically(const fs::path& path,
                         std::span<const std::byte> bytes) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    ThrowError(ErrorKind::kIo,
               "{}: exists and is no regular file, but what is written "
               "replaces what has its name. Pass another name.",
               path.string());
  }

  Temporary temporary(path);
  Descriptor file = CreateFile(temporary.path(), path);
  // Says to RemoveStaleTemporaries that this process lives. Where the file
  // system has no locks the process id alone says so.
  ::flock(file.get(), LOCK_EX | LOCK_NB);
  WriteAll(file, bytes, path);
  SyncAndClose(std::move(file), path);
  temporary.RenameTo(path);
  SyncFolderOf(path);
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace isoloss
