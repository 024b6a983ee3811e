#include "isoloss/hdf5/isolated.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"

namespace isoloss::hdf5 {
namespace {

// Sanitizers map terabytes and make system calls of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

// A child returns one of these exit statuses.
constexpr int kOutOfMemory = 1;
constexpr int kThrew = 2;
constexpr int kNotConfined = 3;

[[noreturn]] void ThrowSystemError(const char* action) {
  ThrowError(ErrorKind::kIo,
             "reading: can't {}: {}. Free memory, or raise the limits of "
             "memory and processes.",
             action, std::generic_category().message(errno));
}

/// Returns the address space of this process in bytes.
size_t AddressSpace() {
  size_t pages = 0;
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(
      std::fopen("/proc/self/statm", "re"), close);
  if (!file || std::fscanf(file.get(), "%zu", &pages) != 1) return 0;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

void Limit(int resource, rlim_t soft, rlim_t hard) {
  rlimit limit = {};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  limit.rlim_cur = std::min(limit.rlim_max, soft);
  limit.rlim_max = std::min(limit.rlim_max, hard);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

/// Refuses all system calls but those of a computation (seccomp(2)). A system
/// without such filters has only the limits below.
void AllowComputingOnly() {
#if defined(__x86_64__)
  constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
  return;
#endif
  constexpr std::array kAllowed = {
      SYS_brk,        SYS_mmap,          SYS_munmap,       SYS_mremap,
      SYS_mprotect,   SYS_madvise,       SYS_futex,        SYS_exit,
      SYS_exit_group, SYS_clock_gettime, SYS_gettimeofday, SYS_getrandom,
      SYS_getpid,     SYS_gettid,        SYS_sched_yield,  SYS_rt_sigprocmask,
      SYS_getcwd};
  constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
  std::array<sock_filter, 5 + 2 * kAllowed.size()> program = {};
  size_t length = 0;
  const auto add = [&](uint32_t code, uint32_t value, uint8_t if_true,
                       uint8_t if_false) {
    program[length++] = {static_cast<uint16_t>(code), if_true, if_false, value};
  };
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch), 0, 0);
  add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
  add(BPF_RET | BPF_K, kRefuse, 0, 0);
  add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr), 0, 0);
  for (const long call : kAllowed) {
    add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
  }
  add(BPF_RET | BPF_K, kRefuse, 0, 0);
  const sock_fprog filter = {static_cast<uint16_t>(length), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(kNotConfined);
  // A kernel built without filters says EINVAL.
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0 &&
      errno != EINVAL) {
    ::_exit(kNotConfined);
  }
}

/// Gives up all that the process has from its parent except memory and `keep`.
void GiveUpRights(const IsolationLimits& limits, size_t mapped, int keep) {
  // A terminal's signals are the parent's business; faults still end it.
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGXCPU);
  std::signal(SIGXCPU, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
      ::prctl(PR_SET_DUMPABLE, 0) != 0) {
    ::_exit(kNotConfined);
  }
#if defined(SYS_close_range)
  ::syscall(SYS_close_range, 0U, static_cast<unsigned>(keep) - 1U, 0U);
  ::syscall(SYS_close_range, static_cast<unsigned>(keep) + 1U, ~0U, 0U);
#endif
  const auto seconds = static_cast<rlim_t>(limits.seconds);
  Limit(RLIMIT_CPU, seconds, seconds + 1);
  Limit(RLIMIT_CORE, 0, 0);
  Limit(RLIMIT_NOFILE, 0, 0);
  Limit(RLIMIT_FSIZE, 0, 0);
  if (kHasSanitizer) return;
  if (mapped > 0) {
    Limit(RLIMIT_AS, mapped + limits.memory_bytes,
          mapped + limits.memory_bytes);
  }
  AllowComputingOnly();
}

/// Waits until process `child` ends, which then closes its end of `pipe`.
/// Returns its status as of waitpid; `too_long` is true if the child was
/// killed.
int WaitFor(pid_t child, const Descriptor& pipe, int seconds, bool& too_long) {
  // The wait is divided into slices: time in which both processes were stopped
  // (a shell's job control) counts as one slice. If another child of this
  // process has the pipe too, it costs a slice.
  constexpr int kSliceMilliseconds = 100;
  int slices = 2 * seconds * 1000 / kSliceMilliseconds;
  int status = 0;
  for (;;) {
    pollfd end = {pipe.get(), POLLIN, 0};
    const int ready = ::poll(&end, 1, kSliceMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    const bool closed = ready > 0;
    too_long = !closed && --slices < 0;
    if (too_long) ::kill(child, SIGKILL);
    const int options = closed || too_long ? 0 : WNOHANG;
    pid_t ended = -1;
    do {
      ended = ::waitpid(child, &status, options);
    } while (ended < 0 && errno == EINTR);
    if (ended < 0) ThrowSystemError("wait for a process");
    if (ended == child) return status;
  }
}

/// Tells for a message how a child ended; "" if its work returned.
std::string EndOf(int status, bool too_long, const IsolationLimits& limits) {
  if (too_long || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)) {
    return fmt::format("took more than {} s of processor time or {} s",
                       limits.seconds, 2 * limits.seconds);
  }
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                       ::sigabbrev_np(WTERMSIG(status)));
  }
  switch (WEXITSTATUS(status)) {
    case 0:
      return "";
    case kOutOfMemory:
      return fmt::format("ran out of its {} MiB of memory",
                         limits.memory_bytes >> 20);
    case kThrew:
      return "ended with an exception";
    case kNotConfined:
      return "could not give up its rights, so it did nothing";
    default:
      return fmt::format("ended with status {}", WEXITSTATUS(status));
  }
}

}  // namespace

SharedMemory::SharedMemory(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) ThrowSystemError("map memory");
  bytes_ = {static_cast<std::byte*>(memory), bytes};
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::string RunIsolated(const IsolationLimits& limits,
                        const std::function<void()>& work) {
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) ThrowSystemError("make a pipe");
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const size_t mapped = AddressSpace();
  const pid_t child = ::fork();
  if (child < 0) ThrowSystemError("start a process");
  if (child == 0) {
    GiveUpRights(limits, mapped, write_end.get());
    try {
      work();
      ::_exit(0);
    } catch (const std::bad_alloc&) {
      ::_exit(kOutOfMemory);
    } catch (...) {
      ::_exit(kThrew);
    }
  }
  write_end = Descriptor();
  bool too_long = false;
  const int status = WaitFor(child, read_end, limits.seconds, too_long);
  return EndOf(status, too_long, limits);
}

}  // namespace isoloss::hdf5
