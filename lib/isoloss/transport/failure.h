// Keeps the first reason why a transport cannot go on.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "isoloss/base/error.h"

namespace isoloss::transport {

/// Safe to use from any thread.
class Failure {
 public:
  bool has_reason() const { return failed_.load(std::memory_order_acquire); }

  /// Keeps the first reason; returns whether `reason` was the first.
  bool Set(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    if (has_reason()) return false;
    reason_ = reason;
    failed_.store(true, std::memory_order_release);
    return true;
  }

  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  /// Throws a TransportError with the reason, if there is one.
  void Check() const {
    if (has_reason()) throw Error(ErrorKind::kTransport, reason());
  }

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace isoloss::transport
