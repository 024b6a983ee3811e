// Stands for the other files of this folder in a build without CUDA.
#include "isoloss/base/error.h"
#include "isoloss/device/cuda/cuda.h"

namespace isoloss::device {

int CudaDevices() { return 0; }

std::string CudaProblem() {
  return "isoloss was built without CUDA. Build it with -DISOLOSS_CUDA=ON "
         "(tools/dev/gpu does), or run on the CPU.";
}

CudaInfo DescribeCuda(int device) {
  ThrowError(ErrorKind::kConfig, "GPU {}: {}", device, CudaProblem());
}

std::unique_ptr<Executor> MakeCuda(int device, int /*host_threads*/) {
  ThrowError(ErrorKind::kConfig, "GPU {}: {}", device, CudaProblem());
}

}  // namespace isoloss::device
