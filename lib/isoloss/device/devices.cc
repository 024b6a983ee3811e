#include "isoloss/device/devices.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "isoloss/base/error.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/emulation.h"

namespace isoloss::device {
namespace {

/// Returns the GPU of a new executor: GPUs are taken in turn, and processes
/// that share a machine begin with different ones.
int NextGpu(int count) {
  static std::atomic<unsigned> next{static_cast<unsigned>(getpid())};
  return static_cast<int>(next.fetch_add(1) % static_cast<unsigned>(count));
}

Device FindGpus() {
  const int count = CudaDevices();
  if (count == 0) {
    ThrowError(ErrorKind::kConfig, "parallel.on = `gpu`: {}", CudaProblem());
  }
  size_t bytes = DescribeCuda(0).memory;
  for (int i = 1; i < count; ++i) {
    bytes = std::min(bytes, DescribeCuda(i).memory);
  }
  return {count, bytes, [count](int /*worker*/, int threads) {
            return MakeCuda(NextGpu(count), threads);
          }};
}

}  // namespace

const std::vector<std::string>& DeviceNames() {
  static const std::vector<std::string> names = {kCpu, "gpu", "emulation"};
  return names;
}

bool IsHere(const std::string& name) {
  return name != "gpu" || CudaDevices() > 0;
}

Device FindDevice(const std::string& name) {
  if (name == "gpu") return FindGpus();
  if (name == "emulation") {
    return {1, 0, [](int /*worker*/, int /*threads*/) {
              return MakeEmulation(EmulationOrder::kAscending);
            }};
  }
  ISOLOSS_ASSERT(name == kCpu);
  return {};
}

}  // namespace isoloss::device
