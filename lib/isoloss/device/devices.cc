#include "isoloss/device/devices.h"

#include <algorithm>
#include <memory>

#include "isoloss/base/error.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/emulation.h"

namespace isoloss::device {
namespace {

Device FindGpus() {
  const int count = CudaDevices();
  if (count == 0) {
    ThrowError(ErrorKind::kConfig, "parallel.on = `gpu`: {}", CudaProblem());
  }
  size_t bytes = DescribeCuda(0).free;
  for (int i = 1; i < count; ++i) {
    bytes = std::min(bytes, DescribeCuda(i).free);
  }
  return {count, bytes, [count](int worker, int threads) {
            return MakeCuda(worker % count, threads);
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
              return MakeEmulation(EmulationOrder::kDescending);
            }};
  }
  ISOLOSS_ASSERT(name == kCpu);
  return {};
}

}  // namespace isoloss::device
