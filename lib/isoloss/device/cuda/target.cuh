// A GPU runs kernels as device/kernel.h describes them.
#pragma once

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/cuda/errors.cuh"
#include "isoloss/device/cuda/memory.cuh"
#include "isoloss/device/cuda/tensor_cores.h"
#include "isoloss/device/fragments.h"
#include "isoloss/kernels/accumulator.h"

namespace isoloss::device {

/// Kernel::Shared of the block that runs.
extern __shared__ __align__(128) unsigned char shared_room[];

/// Is where a word of shared memory lies. It is of a literal type, since nvcc
/// drops calls of functions that cannot be constexpr.
struct SharedAddress {
  unsigned bytes;

  constexpr SharedAddress operator+(unsigned words) const {
    return {bytes + words * static_cast<unsigned>(sizeof(float))};
  }
};

/// The warp of the thread that runs.
class CudaWarp {
 public:
  __device__ uint32_t first() const { return threadIdx.x / kWarp * kWarp; }
  template <typename Step>
  __device__ void Each(const Step& step) {
    step(threadIdx.x);
  }
  /// The accumulator is that of the GPU (Cuda::RequireAdder).
  template <typename FragmentsOf>
  __device__ void AddProducts(const kernels::Accumulator& /*accumulator*/,
                              const FragmentsOf& of) {
    const Fragments fragments = of(threadIdx.x);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(fragments.upper[0]), "+f"(fragments.upper[1]),
          "+f"(fragments.lower[0]), "+f"(fragments.lower[1])
        : "r"(fragments.a[0]), "r"(fragments.a[1]), "r"(fragments.a[2]),
          "r"(fragments.a[3]), "r"(fragments.b[0]), "r"(fragments.b[1]));
  }
};

template <typename Kernel>
class CudaBlock {
 public:
  /// A thread sees its own.
  template <typename T>
  class PerThread {
   public:
    __device__ T& operator[](size_t /*thread*/) { return value_; }

   private:
    T value_;
  };

  __device__ size_t index() const { return blockIdx.x; }
  __device__ typename Kernel::Shared& shared() {
    return *reinterpret_cast<typename Kernel::Shared*>(shared_room);
  }
  template <typename Step>
  __device__ void Each(const Step& step) {
    step(threadIdx.x);
    __syncthreads();
  }
  template <typename Step>
  __device__ void EachWarp(const Step& step) {
    CudaWarp warp;
    step(warp);
    __syncthreads();
  }
  __device__ SharedAddress AddressOf(const void* to) const {
    // The compiler would compute the same address before each copy.
    unsigned bytes = 0;
    asm volatile("mov.u32 %0, %1;"
                 : "=r"(bytes)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))));
    return {bytes};
  }
  template <size_t kCount>
  __device__ void Copy(const void* from, SharedAddress to) {
    static_assert(kCount == 1 || kCount == 4);
    if constexpr (kCount == 1) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                   :
                   : "r"(to.bytes), "l"(from)
                   : "memory");
    } else {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :
                   : "r"(to.bytes), "l"(from)
                   : "memory");
    }
  }
  __device__ void CommitCopies() { __pipeline_commit(); }
  template <size_t kPending>
  __device__ void AwaitCopies() {
    __pipeline_wait_prior(kPending);
  }
};

template <typename Kernel>
constexpr unsigned BlocksOfProcessor() {
  if constexpr (requires { Kernel::kBlocksOfProcessor; }) {
    return Kernel::kBlocksOfProcessor;
  }
  return 0;  // any number
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, BlocksOfProcessor<Kernel>())
    RunKernel(const __grid_constant__ Kernel kernel) {
  CudaBlock<Kernel> block;
  kernel(block);
}

class Cuda {
 public:
  Cuda(int device, const CudaInfo& info)
      : memory_(device),
        info_(info),
        name_(fmt::format("{} ({})", info.name, info.uuid)) {}

  Memory& memory() { return memory_; }
  const std::string& name() const { return name_; }
  void RequireAdder(const kernels::Accumulator& accumulator) const {
    const std::string wrong =
        WrongAdder(name_, info_.major, info_.minor, accumulator);
    if (wrong.empty()) return;
    ThrowError(ErrorKind::kConfig, "GPU {}: {}", memory_.device(), wrong);
  }

  template <typename Kernel>
  void Launch(const Kernel& kernel) {
    memory_.Use();
    const auto run = &RunKernel<Kernel>;
    constexpr size_t kShared = sizeof(typename Kernel::Shared);
    if constexpr (kShared > kUsualSharedBytes) {
      Allow(reinterpret_cast<const void*>(run), kShared);
    }
    run<<<static_cast<unsigned>(kernel.blocks()), Kernel::kThreads, kShared,
          memory_.stream()>>>(kernel);
    Require(memory_.device(), "cudaLaunchKernel", cudaGetLastError());
  }

 private:
  static constexpr size_t kUsualSharedBytes = 48 << 10;

  /// Lets a kernel have more shared memory than is usual.
  void Allow(const void* kernel, size_t bytes) {
    if (!allowed_.insert(kernel).second) return;
    Require(memory_.device(), "cudaFuncSetAttribute",
            cudaFuncSetAttribute(kernel,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(bytes)));
  }

  CudaMemory memory_;
  CudaInfo info_;
  std::string name_;
  std::set<const void*> allowed_;
};

}  // namespace isoloss::device
