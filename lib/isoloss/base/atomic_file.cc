#include "isoloss/base/atomic_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
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
    // Of a killed process that had the same id.
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

}  // namespace

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
  WriteAll(file, bytes, path);
  SyncAndClose(std::move(file), path);
  temporary.RenameTo(path);
  SyncFolderOf(path);
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace isoloss
