// A library to preload into a program: counts the system calls that change
// files below a folder, and makes one of them fail, or the process die at it.
//
//   FILE_FAULT_FOLDER  only files whose path contains this
//   FILE_FAULT_AT      number of the call, from 1; 0: only count
//   FILE_FAULT         "kill" before the call, "torn" (half of a write, then
//                      death), or an errno name: ENOSPC, EIO, EDQUOT, EINTR
//   FILE_FAULT_LOG     file that receives one line per call
//   FILE_FAULT_LASTING "1": every later call of that kind fails too
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<long> calls{0};

const char* Setting(const char* name) {
  const char* text = getenv(name);
  return text != nullptr ? text : "";
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool Concerns(const char* path) {
  const char* folder = Setting("FILE_FAULT_FOLDER");
  return path != nullptr && *folder != '\0' && strstr(path, folder) != nullptr;
}

bool Concerns(int file) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return Concerns(path);
}

int ErrnoOf(const char* name) {
  if (strcmp(name, "ENOSPC") == 0) return ENOSPC;
  if (strcmp(name, "EDQUOT") == 0) return EDQUOT;
  if (strcmp(name, "EINTR") == 0) return EINTR;
  return EIO;
}

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

enum class Fate { kGoOn, kTorn, kFail };

/// Counts one call; dies here if it is the one.
Fate Count(const char* call) {
  const long number = ++calls;
  const char* log = Setting("FILE_FAULT_LOG");
  if (*log != '\0') {
    static const auto open_file = Real<int (*)(const char*, int, ...)>("open");
    static const auto write_file =
        Real<ssize_t (*)(int, const void*, size_t)>("write");
    static const int file =
        open_file(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    char line[64];
    const int length = snprintf(line, sizeof(line), "%s\n", call);
    (void)!write_file(file, line, static_cast<size_t>(length));
  }
  const long at = atol(Setting("FILE_FAULT_AT"));
  const bool lasting = *Setting("FILE_FAULT_LASTING") == '1';
  if (at == 0 || (lasting ? number < at : number != at)) return Fate::kGoOn;
  const char* fault = Setting("FILE_FAULT");
  if (strcmp(fault, "kill") == 0) Die();
  if (strcmp(fault, "torn") == 0) return Fate::kTorn;
  errno = ErrnoOf(fault);
  return Fate::kFail;
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t count) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  if (!Concerns(file)) return real(file, bytes, count);
  switch (Count("write")) {
    case Fate::kFail:
      return -1;
    case Fate::kTorn:
      real(file, bytes, count / 2);
      Die();
    case Fate::kGoOn:
      break;
  }
  return real(file, bytes, count);
}

#define FILE_FAULT_CALL(name, path_or_file, parameters, arguments) \
  int name parameters {                                            \
    static const auto real = Real<int(*) parameters>(#name);       \
    if (!Concerns(path_or_file)) return real arguments;            \
    const Fate fate = Count(#name);                                \
    if (fate == Fate::kFail) return -1;                            \
    if (fate == Fate::kTorn) {                                     \
      real arguments;                                              \
      Die();                                                       \
    }                                                              \
    return real arguments;                                         \
  }

FILE_FAULT_CALL(fsync, file, (int file), (file))
FILE_FAULT_CALL(fdatasync, file, (int file), (file))
FILE_FAULT_CALL(ftruncate, file, (int file, off_t size), (file, size))
FILE_FAULT_CALL(rename, to, (const char* from, const char* to), (from, to))
FILE_FAULT_CALL(unlink, path, (const char* path), (path))
FILE_FAULT_CALL(rmdir, path, (const char* path), (path))
FILE_FAULT_CALL(mkdir, path, (const char* path, mode_t mode), (path, mode))

/// Returns its error instead of setting errno.
int posix_fallocate(int file, off_t offset, off_t size) {
  static const auto real = Real<int (*)(int, off_t, off_t)>("posix_fallocate");
  if (!Concerns(file)) return real(file, offset, size);
  const Fate fate = Count("posix_fallocate");
  if (fate == Fate::kFail) return errno;
  const int result = real(file, offset, size);
  if (fate == Fate::kTorn) Die();
  return result;
}

int open(const char* path, int flags, ...) {
  static const auto real = Real<int (*)(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>(
      (flags & O_CREAT) != 0 ? va_arg(rest, unsigned int) : 0);
  va_end(rest);
  if ((flags & O_CREAT) == 0 || !Concerns(path)) return real(path, flags, mode);
  const Fate fate = Count("open");
  if (fate == Fate::kFail) return -1;
  const int result = real(path, flags, mode);
  if (fate == Fate::kTorn) Die();
  return result;
}

}  // extern "C"
