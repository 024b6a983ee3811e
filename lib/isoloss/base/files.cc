#include "isoloss/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "isoloss/base/error.h"

namespace isoloss {
namespace {

namespace fs = std::filesystem;

Descriptor Open(const fs::path& path, int flags, const fs::path& shown,
                const char* action) {
  // O_NONBLOCK: a pipe of that name shall be refused, not waited for.
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666));
  if (file.get() < 0) ThrowErrno(shown, action);
  return file;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void ThrowErrno(const fs::path& path, const char* action) {
  const int error = errno;
  const char* remedy = "Check its permissions or pass another folder.";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    remedy = "Make room or pass a folder on another disk.";
  } else if (error == ENOENT) {
    remedy = "Pass another path.";
  } else if (error == EIO) {
    remedy = "The disk may be failing; use another one.";
  }
  ThrowError(ErrorKind::kIo, "{}: can't {}: {}. {}", path.string(), action,
             std::generic_category().message(error), remedy);
}

Descriptor CreateFile(const fs::path& path, const fs::path& shown) {
  return Open(path, O_WRONLY | O_CREAT | O_EXCL, shown.empty() ? path : shown,
              "create");
}

Descriptor OpenFile(const fs::path& path) {
  Descriptor file = Open(path, O_RDONLY, path, "open");
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) ThrowErrno(path, "look at");
  if (!S_ISREG(status.st_mode)) {
    ThrowError(ErrorKind::kIo,
               "{}: is a folder or device, but a file is needed. Pass another "
               "path.",
               path.string());
  }
  return file;
}

Descriptor OpenOwnFile(const fs::path& path, const char* kind) {
  Descriptor file(::open(path.c_str(),
                         O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                         0666));
  struct stat status = {};
  const bool is_link = file.get() < 0 && errno == ELOOP;
  if (file.get() < 0 && !is_link) ThrowErrno(path, "open");
  if (!is_link && ::fstat(file.get(), &status) != 0) {
    ThrowErrno(path, "look at");
  }
  if (is_link || !S_ISREG(status.st_mode) || status.st_nlink > 1) {
    ThrowError(ErrorKind::kIo,
               "{}: is {}, but a {} is a file of its own. Remove it.",
               path.string(),
               is_link                   ? "a symbolic link"
               : S_ISREG(status.st_mode) ? "a second name of another file"
                                         : "no regular file",
               kind);
  }
  return file;
}

Descriptor OpenFolder(const fs::path& path) {
  return Open(path, O_RDONLY | O_DIRECTORY, path, "open");
}

Descriptor LockFolder(const fs::path& folder, bool wait) {
  Descriptor lock = OpenFolder(folder.empty() ? "." : folder);
  int result = 0;
  do {
    result = ::flock(lock.get(), wait ? LOCK_EX : LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EWOULDBLOCK) return Descriptor();
  return lock;
}

uint64_t FileSize(const Descriptor& file, const fs::path& path) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) ThrowErrno(path, "look at");
  return static_cast<uint64_t>(status.st_size);
}

void Reserve(const Descriptor& file, uint64_t bytes, const fs::path& path) {
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
  }
  // Where the file system has no such operation writing will find out.
  if (error == 0 || error == EOPNOTSUPP || error == EINVAL) return;
  errno = error;
  ThrowErrno(path, "reserve its space");
}

void WriteAll(const Descriptor& file, std::span<const std::byte> bytes,
              const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowErrno(path, "write");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void ReadAll(const Descriptor& file, uint64_t offset,
             std::span<std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file.get(), bytes.data(), bytes.size(),
                                  static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) ThrowErrno(path, "read");
    if (count == 0) {
      ThrowError(ErrorKind::kFormat,
                 "{}: ends at byte {}, but {} more are needed. It was cut off.",
                 path.string(), offset, bytes.size());
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void SyncAndClose(Descriptor file, const fs::path& path) {
  if (::fsync(file.get()) != 0) ThrowErrno(path, "sync");
  // Network file systems report some failed writes here.
  if (::close(file.Release()) != 0 && errno != EINTR) ThrowErrno(path, "close");
}

void SyncFolder(const Descriptor& folder, const fs::path& path) {
  // Some file systems can't sync a folder and say EINVAL; their renames are as
  // durable as they get.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) ThrowErrno(path, "sync");
}

void SyncFolder(const fs::path& path) { SyncFolder(OpenFolder(path), path); }

bool IsStillAt(int file, const fs::path& path) {
  struct stat open_file = {};
  struct stat named_file = {};
  return ::fstat(file, &open_file) == 0 &&
         ::lstat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev &&
         open_file.st_ino == named_file.st_ino;
}

void Rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) ThrowErrno(to, "rename to it");
}

void RemoveFile(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    ThrowErrno(path, "remove");
  }
}

void RemoveFolder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return;
  errno = error.value();
  ThrowErrno(path, "remove");
}

}  // namespace isoloss
