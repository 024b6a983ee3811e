#include "executors.h"

#include "isoloss/device/emulation.h"

namespace isoloss::device {

std::vector<NamedExecutor> DeviceExecutors() {
  return {{"ascending", MakeEmulation(EmulationOrder::kAscending)},
          {"descending", MakeEmulation(EmulationOrder::kDescending)}};
}

bool AddAs(const kernels::Accumulator& /*accumulator*/) { return true; }

}  // namespace isoloss::device
