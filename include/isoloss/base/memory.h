// Memory that matrices lie in: the host's, or a device's.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace isoloss {

class Memory {
 public:
  static constexpr size_t kAlignment = 64;

  /// True if functions of the host may read and write it.
  virtual bool is_host() const = 0;
  /// Returns memory that is aligned to kAlignment; its content is unspecified.
  /// Errors   std::bad_alloc.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) noexcept = 0;
  virtual void SetZero(void* memory, size_t bytes) = 0;
  /// Copies between two places of this memory, which do not overlap.
  virtual void Copy(const void* from, size_t bytes, void* to) = 0;
  virtual void CopyToHost(const void* from, size_t bytes, void* host) = 0;
  virtual void CopyFromHost(const void* host, size_t bytes, void* to) = 0;

 protected:
  ~Memory() = default;  // trivial: kHostMemory outlives all static matrices
};

class HostMemory final : public Memory {
 public:
  bool is_host() const override { return true; }
  void* Allocate(size_t bytes) override {
    return ::operator new[](bytes, std::align_val_t{kAlignment});
  }
  void Free(void* memory) noexcept override {
    ::operator delete[](memory, std::align_val_t{kAlignment});
  }
  void SetZero(void* memory, size_t bytes) override {
    std::memset(memory, 0, bytes);
  }
  void Copy(const void* from, size_t bytes, void* to) override {
    std::memcpy(to, from, bytes);
  }
  void CopyToHost(const void* from, size_t bytes, void* host) override {
    std::memcpy(host, from, bytes);
  }
  void CopyFromHost(const void* host, size_t bytes, void* to) override {
    std::memcpy(to, host, bytes);
  }
};

/// Matrices lie in it unless they are given another memory.
inline HostMemory kHostMemory;

/// Copies between two memories, or within one; between two devices through the
/// host.
inline void CopyBetween(Memory& from_memory, const void* from, size_t bytes,
                        Memory& to_memory, void* to) {
  if (bytes == 0) return;
  if (&from_memory == &to_memory) {
    to_memory.Copy(from, bytes, to);
  } else if (from_memory.is_host()) {
    to_memory.CopyFromHost(from, bytes, to);
  } else if (to_memory.is_host()) {
    from_memory.CopyToHost(from, bytes, to);
  } else {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(bytes);
    from_memory.CopyToHost(from, bytes, buffer.get());
    to_memory.CopyFromHost(buffer.get(), bytes, to);
  }
}

}  // namespace isoloss
