#include "isoloss/base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void ThrowErrno(const fs::path& path, const char* action) {
  const int error = errno;
  ThrowError(ErrorKind::kIo,
             "{}: can't {}: {}. Make room or pass another "
             "folder.",
             path.string(), action, std::generic_category().message(error));
}

/// An open descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

/// Removes the file at the end unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const fs::path& final_path) {
    static std::atomic<unsigned> counter{0};
    path_ = final_path.parent_path() /
            fmt::format(".{}.{}-{}.tmp", final_path.filename().string(),
                        ::getpid(), counter++);
  }
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const fs::path& path() const { return path_; }
  int RenameTo(const fs::path& final_path) {
    const int result = ::rename(path_.c_str(), final_path.c_str());
    renamed_ = result == 0;
    return result;
  }

 private:
  fs::path path_;
  bool renamed_ = false;
};

void WriteAll(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowErrno(path, "write");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void SyncFolder(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor fd(
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems can't sync a folder and say EINVAL; their renames are as
  // durable as they get.
  if (fd.get() < 0 || (::fsync(fd.get()) != 0 && errno != EINVAL)) {
    ThrowErrno(path, "sync its folder");
  }
}

}  // namespace

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
  Descriptor fd(::open(temporary.path().c_str(),
                       O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) ThrowErrno(path, "create");
  WriteAll(fd.get(), bytes, path);
  if (::fsync(fd.get()) != 0) ThrowErrno(path, "sync");
  if (fd.Close() != 0) ThrowErrno(path, "close");
  if (temporary.RenameTo(path) != 0) ThrowErrno(path, "rename to it");
  SyncFolder(path);
}

}  // namespace isoloss
