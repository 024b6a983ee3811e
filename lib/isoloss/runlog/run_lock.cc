#include "isoloss/runlog/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "isoloss/base/error.h"

namespace isoloss::runlog {
namespace {

namespace fs = std::filesystem;

/// Who has the lock, as the file says. It may be out of date: a hint only.
std::string Holder(const Descriptor& file) {
  std::array<char, 24> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  const std::string pid(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  const size_t end = pid.find_first_not_of("0123456789");
  if (end == 0 || end == std::string::npos) return "";
  return fmt::format(" (process {})", pid.substr(0, end));
}

/// Nothing depends on it, so a full disk is no reason to stop.
void NameHolder(const Descriptor& file) {
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file.get(), 0) != 0) return;
  [[maybe_unused]] const ssize_t size =
      ::pwrite(file.get(), pid.data(), pid.size(), 0);
}

/// Is the open file the one that has this name?
bool IsStill(const Descriptor& file, const fs::path& path) {
  struct stat open_file = {};
  struct stat named_file = {};
  return ::fstat(file.get(), &open_file) == 0 &&
         ::stat(path.c_str(), &named_file) == 0 &&
         open_file.st_dev == named_file.st_dev &&
         open_file.st_ino == named_file.st_ino;
}

}  // namespace

RunLock::RunLock(const RunPaths& paths) {
  std::error_code error;
  fs::create_directories(paths.folder, error);
  if (error) {
    errno = error.value();
    ThrowErrno(paths.folder, "create the folder");
  }
  const fs::path path = paths.folder / fmt::format(".{}.lock", paths.name);
  path_ = path;
  int result = 0;
  // A holder that ends removes the file: then this one is on a removed file.
  do {
    file_ =
        Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (file_.get() < 0) ThrowErrno(path, "open");
    do {
      result = ::flock(file_.get(), LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
  } while (result == 0 && !IsStill(file_, path));
  if (result == 0) {
    NameHolder(file_);
  } else if (errno == EWOULDBLOCK) {
    ThrowError(ErrorKind::kIo,
               "{}: another process works on this run{}. Wait for it, or "
               "choose another folder with --out.",
               (paths.folder / paths.name).string(), Holder(file_));
  } else if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) {
    ThrowErrno(path, "lock");
  }
}

/// While it is held, so that nobody has got it in between.
RunLock::~RunLock() { ::unlink(path_.c_str()); }

}  // namespace isoloss::runlog
