// A device that is emulated on the host: the kernels' own text, one block after
// another and one thread after another. Its memory is closed to everything else
// while no kernel runs, so that a function of the host that reads it by mistake
// ends the program.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "isoloss/base/memory.h"
#include "isoloss/device/executor.h"

namespace isoloss::device {

/// The order in which the emulation runs blocks, and the threads of a step. No
/// bit may depend on it.
enum class EmulationOrder { kAscending, kDescending };

/// Memory at addresses of its own. Closed memory can be neither read nor
/// written.
class EmulatedMemory final : public Memory {
 public:
  /// Errors   std::bad_alloc if the system gives no addresses.
  explicit EmulatedMemory(bool closes);
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;

  bool is_host() const override { return false; }
  void* Allocate(size_t bytes) override;
  void Free(void* memory) noexcept override;
  void SetZero(void* memory, size_t bytes) override;
  void Copy(const void* from, size_t bytes, void* to) override;
  void CopyToHost(const void* from, size_t bytes, void* host) override;
  void CopyFromHost(const void* host, size_t bytes, void* to) override;

  /// Opens all of the memory while it lives.
  class Opened {
   public:
    explicit Opened(EmulatedMemory& memory) : memory_(memory) {
      memory_.Protect(true);
    }
    ~Opened() { memory_.Protect(false); }

   private:
    EmulatedMemory& memory_;
  };

 private:
  void Protect(bool open);
  size_t PlaceFor(size_t bytes) const;

  const bool closes_;
  char* first_ = nullptr;
  size_t used_ = 0;                  // bytes that were ever allocated
  std::map<size_t, size_t> blocks_;  // where each one begins and ends
};

class Emulation {
 public:
  explicit Emulation(EmulationOrder order)
      : order_(order), memory_(order == EmulationOrder::kAscending) {}

  Memory& memory() { return memory_; }
  std::string name() const { return "emulation of a GPU"; }

  template <typename Kernel>
  void Launch(const Kernel& kernel) {
    const EmulatedMemory::Opened opened(memory_);
    auto shared = std::make_unique<typename Kernel::Shared>();
    const size_t count = kernel.blocks();
    for (size_t i = 0; i < count; ++i) {
      Block<Kernel> block(InOrder(i, count), order_, *shared);
      kernel(block);
    }
  }

 private:
  template <typename Kernel>
  class Block {
   public:
    template <typename T>
    using PerThread = std::array<T, Kernel::kThreads>;

    Block(size_t index, EmulationOrder order, typename Kernel::Shared& shared)
        : index_(index), order_(order), shared_(shared) {}

    size_t index() const { return index_; }
    typename Kernel::Shared& shared() { return shared_; }
    template <typename Step>
    void Each(const Step& step) {
      constexpr size_t kThreads = Kernel::kThreads;
      for (size_t i = 0; i < kThreads; ++i) {
        step(order_ == EmulationOrder::kAscending ? i : kThreads - 1 - i);
      }
    }
    template <size_t kCount>
    void Copy(const float* from, float* to) {
      std::copy_n(from, kCount, to);
    }
    void CommitCopies() {}
    template <size_t kPending>
    void AwaitCopies() {}

   private:
    size_t index_;
    EmulationOrder order_;
    typename Kernel::Shared& shared_;
  };

  size_t InOrder(size_t i, size_t count) const {
    return order_ == EmulationOrder::kAscending ? i : count - 1 - i;
  }

  const EmulationOrder order_;
  EmulatedMemory memory_;
};

/// Returns an executor of an emulated device.
std::unique_ptr<Executor> MakeEmulation(EmulationOrder order);

}  // namespace isoloss::device
