// An executor that runs kernels on a device.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::device {

/// `Target` is a device: it has name(), memory() and Launch(kernel), which runs
/// a kernel (kernel.h) after all that were launched before. Its memory copies
/// in that order, too. RequireAdder(accumulator) throws a ConfigError if its
/// tensor cores add fragments (fragments.h) in another way.
template <typename Target>
class DeviceExecutor final : public Executor {
 public:
  /// `threads` of the host serve what stays there.
  DeviceExecutor(int threads, std::unique_ptr<Target> target)
      : Executor(threads), target_(std::move(target)) {}

  Memory& memory() override { return target_->memory(); }
  ErasedKernel FormOf(ErasedKernel kernel) const override;
  std::string device() const override { return target_->name(); }

  Target& target() { return *target_; }

 private:
  std::unique_ptr<Target> target_;
};

/// The device of a call to a form, and room that the form needs until it
/// returns: forms take their executor as the host's functions do.
template <typename Target>
class Call {
 public:
  explicit Call(Executor& executor)
      : target_(static_cast<DeviceExecutor<Target>&>(executor).target()) {}
  ~Call() {
    for (void* room : rooms_) memory().Free(room);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Target& target() { return target_; }
  Memory& memory() { return target_.memory(); }

  /// Runs a kernel; one without blocks has nothing to do.
  template <typename Kernel>
  void Launch(const Kernel& kernel) {
    static_assert(std::is_trivially_copyable_v<Kernel>);
    static_assert(sizeof(Kernel) <= kMostArgumentBytes);
    const size_t blocks = kernel.blocks();
    ISOLOSS_ASSERT(blocks <= std::numeric_limits<int>::max());
    if (blocks > 0) target_.Launch(kernel);
  }

  /// Returns room of the device's memory, whose content is unspecified.
  template <typename T>
  T* Room(size_t count) {
    if (count == 0) return nullptr;
    rooms_.push_back(memory().Allocate(count * sizeof(T)));
    return static_cast<T*>(rooms_.back());
  }
  template <typename T>
  MatrixView<T> Room(size_t rows, size_t cols) {
    return {Room<T>(rows * cols), rows, cols};
  }
  /// Returns a copy of the host's values in the device's memory.
  template <typename T>
  const T* Upload(std::span<const T> values) {
    T* const room = Room<T>(values.size());
    if (!values.empty()) {
      memory().CopyFromHost(values.data(), values.size_bytes(), room);
    }
    return room;
  }
  /// Copies to the host, after all that was launched.
  template <typename T>
  void Download(const T* values, std::span<T> to) {
    if (!to.empty()) memory().CopyToHost(values, to.size_bytes(), to.data());
  }

 private:
  /// CUDA promises so much to each kernel.
  static constexpr size_t kMostArgumentBytes = 4096;

  Target& target_;
  std::vector<void*> rooms_;
};

}  // namespace isoloss::device
