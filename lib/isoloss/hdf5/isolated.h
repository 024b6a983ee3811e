// Runs work on bytes that nobody trusts in a process of its own. The process
// can only compute, and fill memory that it shares with its parent. A crash in
// it becomes a sentence for a message.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace isoloss::hdf5 {

/// A process shares this memory with the processes that it forks. Pages that
/// nobody writes take no place.
class SharedMemory {
 public:
  /// Errors   IoError if the system has no address space for it.
  explicit SharedMemory(size_t bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

struct IsolationLimits {
  size_t memory_bytes = 0;  ///< beyond what this process has mapped
  int seconds = 0;          ///< of processor time; twice as many may pass
};

/// Lets `work` run in a fork()ed process without files, sockets or children,
/// and waits for it. Threads of this process that run meanwhile must not hold
/// what `work` needs; memory may be allocated.
/// Returns  "" if `work` returned, else how it ended: "was ended by signal 11
///          (Segmentation fault)".
/// Errors   IoError if there can't be another process.
std::string RunIsolated(const IsolationLimits& limits,
                        const std::function<void()>& work);

}  // namespace isoloss::hdf5
