// A limit on the size of files that stands in for a full disk.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <cstddef>
#include <stdexcept>

namespace isoloss::test_support {

/// While one is alive, write() beyond `bytes` of a file comes back short and
/// then fails with EFBIG.
class FileLimit {
 public:
  explicit FileLimit(size_t bytes) {
    if (::getrlimit(RLIMIT_FSIZE, &old_) != 0) {
      throw std::runtime_error("getrlimit failed");
    }
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = old_.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      throw std::runtime_error("setrlimit failed");
    }
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

}  // namespace isoloss::test_support
