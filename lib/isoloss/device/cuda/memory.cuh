// Matrices of a GPU lie in its memory.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <memory>

#include "isoloss/base/memory.h"

namespace isoloss::device {

/// Destroys what a CUDA function made.
template <auto destroy>
struct Destroyed {
  template <typename Handle>
  void operator()(Handle* handle) const {
    destroy(handle);
  }
};

/// All that it does, and all kernels in its stream, happens in the order of the
/// calls. Freed room is used again in that order, without waiting for the GPU;
/// it stays with the process, all of whose executors share it.
class CudaMemory final : public Memory {
 public:
  /// Errors   DeviceError.
  explicit CudaMemory(int device);
  ~CudaMemory();

  bool is_host() const override { return false; }
  /// Errors   ConfigError if the GPU has no such room.
  void* Allocate(size_t bytes) override;
  void Free(void* memory) noexcept override;
  void SetZero(void* memory, size_t bytes) override;
  void Copy(const void* from, size_t bytes, void* to) override;
  /// Waits for all that was launched.
  void CopyToHost(const void* from, size_t bytes, void* host) override;
  /// Does not wait; the host's bytes may change when it returns.
  void CopyFromHost(const void* host, size_t bytes, void* to) override;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_.get(); }
  /// Makes the GPU that of the calling thread.
  void Use() const;

 private:
  /// Bytes on their way between host and GPU, in memory that the GPU reads.
  struct Piece {
    std::byte* bytes;
    std::unique_ptr<CUevent_st, Destroyed<cudaEventDestroy>> copied;
  };
  static constexpr size_t kPieces = 64;
  static constexpr size_t kPieceBytes = size_t{1} << 18;

  cudaError_t Take(size_t bytes, void** room);
  void Begin(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
             const Piece& piece);
  void Await(const Piece& piece) const;

  int device_;
  std::unique_ptr<CUstream_st, Destroyed<cudaStreamDestroy>> stream_;
  cudaMemPool_t pool_ = nullptr;
  std::unique_ptr<std::byte, Destroyed<cudaFreeHost>> pinned_;
  std::array<Piece, kPieces> pieces_;
  size_t next_ = 0;  // piece of the next upload
};

}  // namespace isoloss::device
