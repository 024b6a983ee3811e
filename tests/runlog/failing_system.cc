#include "runlog/failing_system.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>

namespace isoloss::test_support {

std::atomic<int> calls_to_live{-1};
std::atomic<bool> truncation_fails{false};
std::atomic<bool> hdf5_is_damaged{false};
std::atomic<int> sync_microseconds{0};

}  // namespace isoloss::test_support

namespace {

using isoloss::test_support::calls_to_live;
using isoloss::test_support::hdf5_is_damaged;
using isoloss::test_support::sync_microseconds;
using isoloss::test_support::truncation_fails;

/// Whether this call is the last one.
bool Dies() { return calls_to_live >= 0 && calls_to_live-- == 0; }

}  // namespace

// In place of the C library's: what changes files can kill the process, a write
// after half of its bytes.
extern "C" {
ssize_t write(int fd, const void* bytes, size_t count) {
  if (Dies()) {
    ::syscall(SYS_write, fd, bytes, count / 2);
    ::_exit(9);
  }
  const std::string_view text(static_cast<const char*>(bytes), count);
  if (hdf5_is_damaged && text.starts_with("\x89HDF")) {
    std::string damaged(text);
    damaged[count / 2] ^= 1;
    return ::syscall(SYS_write, fd, damaged.data(), count);
  }
  return ::syscall(SYS_write, fd, bytes, count);
}
int rename(const char* from, const char* to) noexcept {
  if (Dies()) ::_exit(9);
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int unlink(const char* path) noexcept {
  if (Dies()) ::_exit(9);
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int ftruncate(int fd, off_t size) noexcept {
  if (Dies()) ::_exit(9);
  if (truncation_fails) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int fsync(int fd) {
  if (Dies()) ::_exit(9);
  ::usleep(static_cast<useconds_t>(sync_microseconds.load()));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
}
