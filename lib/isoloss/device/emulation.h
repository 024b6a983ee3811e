// A device that is emulated on the host: the kernels' own text, one block after
// another and one thread after another. Its memory is closed to everything else
// while no kernel runs, so that a function of the host that reads it by mistake
// ends the program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/memory.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/fragments.h"

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

/// The copies that a thread began. They arrive as late as a device may let
/// them; until then their destination holds NaN.
class BegunCopies {
 public:
  /// Begins one of so many words of 4 bytes.
  void Begin(const void* from, size_t count, void* to) {
    const size_t bytes = count * sizeof(float);
    ISOLOSS_ASSERT(reinterpret_cast<uintptr_t>(from) % bytes == 0);
    ISOLOSS_ASSERT(reinterpret_cast<uintptr_t>(to) % bytes == 0);
    std::memset(to, 0xFF, bytes);
    copies_.push_back({from, bytes, to});
  }
  void Commit() { group_ends_.push_back(copies_.size()); }
  /// Leaves the last `pending` groups, and copies of no group, on their way.
  void Await(size_t pending);
  void Clear() {
    copies_.clear();
    group_ends_.clear();
  }

 private:
  struct Copy {
    const void* from;
    size_t bytes;
    void* to;
  };
  std::vector<Copy> copies_;
  std::vector<size_t> group_ends_;
};

/// Adds the products of a warp's fragments as its accumulator is defined.
void AddProducts(const kernels::Accumulator& accumulator,
                 std::span<const Fragments, kWarp> fragments);

class Emulation {
 public:
  explicit Emulation(EmulationOrder order)
      : order_(order), memory_(order == EmulationOrder::kAscending) {}

  Memory& memory() { return memory_; }
  std::string name() const { return "emulation of a GPU"; }
  void RequireAdder(const kernels::Accumulator& /*accumulator*/) const {}

  template <typename Kernel>
  void Launch(const Kernel& kernel) {
    const EmulatedMemory::Opened opened(memory_);
    auto shared = std::make_unique<typename Kernel::Shared>();
    if (copies_.size() < Kernel::kThreads) copies_.resize(Kernel::kThreads);
    const size_t count = kernel.blocks();
    for (size_t i = 0; i < count; ++i) {
      // A block finds NaN where others would find what an earlier one left.
      std::memset(static_cast<void*>(shared.get()), 0xFF, sizeof *shared);
      for (BegunCopies& copies : copies_) copies.Clear();
      Block<Kernel> block(InOrder(order_, i, count), order_, *shared, copies_);
      kernel(block);
    }
  }

 private:
  template <typename Kernel>
  class Block {
   public:
    template <typename T>
    class PerThread {
     public:
      PerThread() { std::memset(static_cast<void*>(&of_), 0xFF, sizeof of_); }
      T& operator[](size_t thread) { return of_[thread]; }

     private:
      std::array<T, Kernel::kThreads> of_;
    };

    Block(size_t index, EmulationOrder order, typename Kernel::Shared& shared,
          std::vector<BegunCopies>& copies)
        : index_(index), order_(order), shared_(shared), copies_(copies) {}

    size_t index() const { return index_; }
    typename Kernel::Shared& shared() { return shared_; }
    template <typename Step>
    void Each(const Step& step) {
      EachOf(0, Kernel::kThreads, step);
    }
    template <typename Step>
    void EachWarp(const Step& step) {
      constexpr size_t kWarps = Kernel::kThreads / kWarp;
      for (size_t i = 0; i < kWarps; ++i) {
        Warp warp(*this, InOrder(order_, i, kWarps) * kWarp);
        step(warp);
      }
    }
    template <typename T>
    T* AddressOf(T* to) const {
      return to;
    }
    template <size_t kCount>
    void Copy(const void* from, void* to) {
      copies_[thread_].Begin(from, kCount, to);
    }
    void CommitCopies() { copies_[thread_].Commit(); }
    template <size_t kPending>
    void AwaitCopies() {
      copies_[thread_].Await(kPending);
    }

   private:
    class Warp {
     public:
      Warp(Block& block, size_t first) : block_(block), first_(first) {}

      uint32_t first() const { return static_cast<uint32_t>(first_); }
      template <typename Step>
      void Each(const Step& step) {
        block_.EachOf(first_, kWarp, step);
      }
      template <typename FragmentsOf>
      void AddProducts(const kernels::Accumulator& accumulator,
                       const FragmentsOf& of) {
        std::array<Fragments, kWarp> fragments;
        for (size_t i = 0; i < kWarp; ++i) fragments[i] = of(first_ + i);
        device::AddProducts(accumulator, fragments);
      }

     private:
      Block& block_;
      size_t first_;
    };

    template <typename Step>
    void EachOf(size_t first, size_t count, const Step& step) {
      for (size_t i = 0; i < count; ++i) {
        thread_ = first + InOrder(order_, i, count);
        step(thread_);
      }
    }

    size_t index_;
    EmulationOrder order_;
    typename Kernel::Shared& shared_;
    std::vector<BegunCopies>& copies_;
    size_t thread_ = 0;  // that runs
  };

  static size_t InOrder(EmulationOrder order, size_t i, size_t count) {
    return order == EmulationOrder::kAscending ? i : count - 1 - i;
  }

  const EmulationOrder order_;
  EmulatedMemory memory_;
  std::vector<BegunCopies> copies_;  // of the block's threads
};

/// Returns an executor of an emulated device.
std::unique_ptr<Executor> MakeEmulation(EmulationOrder order);

}  // namespace isoloss::device
