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

/// Returns the holder of the lock that the file names. It may be out of date
/// and is only a hint.
std::string Holder(const Descriptor& file) {
  std::array<char, 24> text{};
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  const std::string pid(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  const size_t end = pid.find_first_not_of("0123456789");
  if (end == 0 || end == std::string::npos) return "";
  return fmt::format(" (process {})", pid.substr(0, end));
}

/// Nothing depends on this text, so a full disk is no reason to stop.
void NameHolder(const Descriptor& file) {
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(file.get(), 0) != 0) return;
  [[maybe_unused]] const ssize_t size =
      ::pwrite(file.get(), pid.data(), pid.size(), 0);
}

}  // namespace

RunLock::RunLock(const RunPaths& paths) {
  std::error_code error;
  fs::create_directories(paths.folder, error);
  if (error) {
    errno = error.value();
    ThrowErrno(paths.folder, "create the folder");
  }
  path_ = paths.folder / fmt::format(".{}.lock", paths.name);
  run_ = paths.folder / paths.name;
  Take();
}

void RunLock::Hold() {
  is_inherited_ = is_inherited_ || FileSize(file_, path_) > 0;
  NameHolder(file_);
}

void RunLock::Renew() {
  if (!IsStillAt(file_.get(), path_)) Take();
}

void RunLock::Take() {
  int result = 0;
  // A holder that ends removes the file: then this lock is on a removed file.
  do {
    file_ = OpenOwnFile(path_, "lock");
    do {
      result = ::flock(file_.get(), LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
  } while (result == 0 && !IsStillAt(file_.get(), path_));
  if (result == 0) {
    Hold();
  } else if (errno == EWOULDBLOCK) {
    const std::string holder = Holder(file_);
    file_ = Descriptor();  // what is not held is not removed at the end
    ThrowError(ErrorKind::kIo,
               "{}: another process works on this run{}. Wait for it, or "
               "choose another folder with --out.",
               run_.string(), holder);
  } else if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP) {
    ThrowErrno(path_, "lock");
  }
}

/// The file is removed while the lock is held, so that nobody else can get the
/// lock in between.
RunLock::~RunLock() {
  if (IsStillAt(file_.get(), path_)) ::unlink(path_.c_str());
}

}  // namespace isoloss::runlog
