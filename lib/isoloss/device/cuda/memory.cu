#include <algorithm>
#include <cstdint>
#include <cstring>

#include "isoloss/base/error.h"
#include "isoloss/device/cuda/errors.cuh"
#include "isoloss/device/cuda/memory.cuh"

namespace isoloss::device {
namespace {

/// Returns the pool that all of the process shares.
cudaMemPool_t PoolOf(int device) {
  cudaMemPool_t pool = nullptr;
  Require(device, "cudaDeviceGetDefaultMemPool",
          cudaDeviceGetDefaultMemPool(&pool, device));
  // It keeps all of its memory when the host waits for the GPU.
  uint64_t kept = UINT64_MAX;
  Require(
      device, "cudaMemPoolSetAttribute",
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  return pool;
}

double MebiBytes(size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

[[noreturn]] void ThrowNoRoom(int device, size_t bytes, cudaMemPool_t pool) {
  size_t free = 0;
  size_t total = 0;
  uint64_t held = 0;
  Require(device, "cudaMemGetInfo", cudaMemGetInfo(&free, &total));
  Require(device, "cudaMemPoolGetAttribute",
          cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &held));
  ThrowError(ErrorKind::kConfig,
             "GPU {}: {:.1f} MiB more are needed, but {:.1f} of its {:.1f} MiB "
             "are free. This process holds {:.1f} MiB. Take smaller "
             "micro-batches, a GPU with more memory, or one that nobody else "
             "uses.",
             device, MebiBytes(bytes), MebiBytes(free), MebiBytes(total),
             MebiBytes(held));
}

}  // namespace

CudaMemory::CudaMemory(int device) : device_(device) {
  Use();
  cudaStream_t stream = nullptr;
  Require(device, "cudaStreamCreateWithFlags",
          cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
  pool_ = PoolOf(device);
  void* pinned = nullptr;
  Require(device, "cudaMallocHost",
          cudaMallocHost(&pinned, kPieces * kPieceBytes));
  pinned_.reset(static_cast<std::byte*>(pinned));
  for (size_t i = 0; i < kPieces; ++i) {
    cudaEvent_t copied = nullptr;
    Require(device, "cudaEventCreateWithFlags",
            cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
    pieces_[i].copied.reset(copied);
    pieces_[i].bytes = pinned_.get() + i * kPieceBytes;
  }
}

CudaMemory::~CudaMemory() {
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream());
}

void CudaMemory::Use() const {
  Require(device_, "cudaSetDevice", cudaSetDevice(device_));
}

cudaError_t CudaMemory::Take(size_t bytes, void** room) {
  const cudaError_t result =
      cudaMallocFromPoolAsync(room, bytes, pool_, stream());
  if (result == cudaErrorMemoryAllocation) cudaGetLastError();
  return result;
}

void* CudaMemory::Allocate(size_t bytes) {
  Use();
  const size_t asked = std::max<size_t>(bytes, 1);
  void* room = nullptr;
  cudaError_t result = Take(asked, &room);
  if (result == cudaErrorMemoryAllocation) {
    // Freed room may lie in the pool in pieces that are all too small, or
    // another stream may not have come to its end yet.
    Require(device_, "cudaDeviceSynchronize", cudaDeviceSynchronize());
    Require(device_, "cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool_, 0));
    result = Take(asked, &room);
  }
  if (result == cudaErrorMemoryAllocation) ThrowNoRoom(device_, asked, pool_);
  Require(device_, "cudaMallocFromPoolAsync", result);
  return room;
}

void CudaMemory::Free(void* memory) noexcept {
  // The call after it repeats what it says of a GPU that failed.
  cudaSetDevice(device_);
  cudaFreeAsync(memory, stream());
}

void CudaMemory::SetZero(void* memory, size_t bytes) {
  Use();
  Require(device_, "cudaMemsetAsync",
          cudaMemsetAsync(memory, 0, bytes, stream()));
}

void CudaMemory::Copy(const void* from, size_t bytes, void* to) {
  Use();
  Require(device_, "cudaMemcpyAsync",
          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
}

void CudaMemory::Begin(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind, const Piece& piece) {
  Require(device_, "cudaMemcpyAsync",
          cudaMemcpyAsync(to, from, bytes, kind, stream()));
  Require(device_, "cudaEventRecord",
          cudaEventRecord(piece.copied.get(), stream()));
}

void CudaMemory::Await(const Piece& piece) const {
  Require(device_, "cudaEventSynchronize",
          cudaEventSynchronize(piece.copied.get()));
}

void CudaMemory::CopyFromHost(const void* host, size_t bytes, void* to) {
  Use();
  for (size_t first = 0; first < bytes; first += kPieceBytes) {
    const size_t count = std::min(kPieceBytes, bytes - first);
    const Piece& piece = pieces_[next_++ % kPieces];
    Await(piece);
    std::memcpy(piece.bytes, static_cast<const std::byte*>(host) + first,
                count);
    Begin(static_cast<std::byte*>(to) + first, piece.bytes, count,
          cudaMemcpyHostToDevice, piece);
  }
}

void CudaMemory::CopyToHost(const void* from, size_t bytes, void* host) {
  Use();
  const auto bytes_at = [bytes](size_t first) {
    return std::min(kPieceBytes, bytes - first);
  };
  const auto piece_at = [this](size_t first) -> const Piece& {
    return pieces_[first / kPieceBytes % kPieces];
  };
  size_t begun = 0;
  for (size_t first = 0; first < bytes; first += kPieceBytes) {
    // An upload from the same piece comes first in the stream.
    const size_t end = std::min(bytes, first + kPieces * kPieceBytes);
    for (; begun < end; begun += kPieceBytes) {
      Begin(piece_at(begun).bytes, static_cast<const std::byte*>(from) + begun,
            bytes_at(begun), cudaMemcpyDeviceToHost, piece_at(begun));
    }
    Await(piece_at(first));
    std::memcpy(static_cast<std::byte*>(host) + first, piece_at(first).bytes,
                bytes_at(first));
  }
}

}  // namespace isoloss::device
