#include <cuda_runtime.h>
#include <fmt/format.h>

#include "isoloss/base/error.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/cuda/errors.cuh"
#include "isoloss/device/cuda/target.cuh"
#include "isoloss/device/forms.h"

namespace isoloss::device {
namespace {

/// Compiled code is for this compute capability and newer ones.
constexpr int kOldestMajor = 8;

std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Describes an answer of cudaGetDeviceCount.
std::string ProblemText(cudaError_t result) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) {
    return "this machine has no NVIDIA driver. Install it, or run on the CPU.";
  }
  if (result == cudaErrorInsufficientDriver) {
    return fmt::format(
        "the NVIDIA driver knows CUDA up to {}, but isoloss was built with "
        "{}. Install a newer driver, or build with an older CUDA.",
        VersionText(driver), VersionText(CUDART_VERSION));
  }
  return fmt::format(
      "the NVIDIA driver gives no GPU: {} ({}). Look at nvidia-smi and "
      "CUDA_VISIBLE_DEVICES.",
      cudaGetErrorString(result), cudaGetErrorName(result));
}

/// Errors   ConfigError if there is no such GPU.
void RequireDevice(int device) {
  const int count = CudaDevices();
  if (count == 0) {
    ThrowError(ErrorKind::kConfig, "GPU {}: {}", device, CudaProblem());
  }
  if (device < 0 || device >= count) {
    ThrowError(ErrorKind::kConfig,
               "GPU {}: there are {} GPUs, which are counted from 0. Name one "
               "of them.",
               device, count);
  }
}

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

int CudaDevices() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string CudaProblem() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (result == cudaSuccess && count > 0) return {};
  return ProblemText(result == cudaSuccess ? cudaErrorNoDevice : result);
}

CudaInfo DescribeCuda(int device) {
  RequireDevice(device);
  cudaDeviceProp properties = {};
  Require(device, "cudaGetDeviceProperties",
          cudaGetDeviceProperties(&properties, device));
  CudaInfo info = {};
  info.name = properties.name;
  info.uuid = UuidText(properties.uuid);
  info.memory = properties.totalGlobalMem;
  info.multiprocessors = properties.multiProcessorCount;
  info.major = properties.major;
  info.minor = properties.minor;
  Require(device, "cudaDriverGetVersion", cudaDriverGetVersion(&info.driver));
  return info;
}

std::unique_ptr<Executor> MakeCuda(int device, int host_threads) {
  const CudaInfo info = DescribeCuda(device);
  if (info.major < kOldestMajor) {
    ThrowError(ErrorKind::kConfig,
               "GPU {}: {} has compute capability {}.{}, but {}.0 or newer is "
               "needed. Take a newer GPU.",
               device, info.name, info.major, info.minor, kOldestMajor);
  }
  // Several runs may wait for one GPU: a thread that waits yields its processor
  // to others. That can be ignored where the GPU is open already.
  cudaInitDevice(device, cudaDeviceScheduleYield, cudaInitDeviceFlagsAreValid);
  cudaGetLastError();
  return std::make_unique<DeviceExecutor<Cuda>>(
      host_threads, std::make_unique<Cuda>(device, info));
}

}  // namespace isoloss::device
