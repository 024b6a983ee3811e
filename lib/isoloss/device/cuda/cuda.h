// NVIDIA's GPUs as executors. A build without ISOLOSS_CUDA finds none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "isoloss/base/executor.h"

namespace isoloss::device {

/// Returns how many GPUs there are for CUDA, and 0 if it can't work here.
int CudaDevices();

/// Says why there are none, and what to change. Empty: there are some.
std::string CudaProblem();

struct CudaInfo {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  std::string uuid;  ///< as nvidia-smi prints it: "GPU-…"
  int multiprocessors;
  size_t memory;  ///< bytes
  int driver;  ///< the newest CUDA that it runs, as 1000 * major + 10 * minor
  int major;   ///< of the compute capability
  int minor;
};

/// Describes GPU `device`, counted from 0 as CUDA counts them, without opening
/// it.
/// Errors   ConfigError if there is no such GPU; DeviceError if it does not
///          answer.
CudaInfo DescribeCuda(int device);

/// Returns an executor whose kernels run on GPU `device`, in the order of their
/// calls. `host_threads` serve what stays on the host. One thread at a time may
/// use it. Several may share a GPU.
/// Errors   as DescribeCuda; ConfigError if the GPU is older than Ampere.
///          Whatever uses it later may end in a ConfigError, if memory does not
///          suffice, or in a DeviceError, if the GPU failed.
std::unique_ptr<Executor> MakeCuda(int device, int host_threads);

}  // namespace isoloss::device
