// Errors of CUDA become errors of isoloss.
#pragma once

#include <cuda_runtime.h>

#include "isoloss/base/error.h"

namespace isoloss::device {

/// Throws a DeviceError that names the GPU, the call and what CUDA says unless
/// the call succeeded. A GPU that failed answers each later call so, too.
inline void Require(int device, const char* call, cudaError_t result) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // lest a later call report it again
  ThrowError(ErrorKind::kDevice,
             "GPU {}: {} answered: {} ({}). Look for the driver's messages "
             "(dmesg | grep Xid), check the GPU by isoloss doctor, and "
             "continue from the last checkpoint.",
             device, call, cudaGetErrorString(result),
             cudaGetErrorName(result));
}

}  // namespace isoloss::device
