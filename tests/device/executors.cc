#include "executors.h"

#include "isoloss/device/emulation.h"

namespace isoloss::device {

std::vector<NamedExecutor> DeviceExecutors() {
  return {{"ascending", MakeEmulation(EmulationOrder::kAscending)},
          {"descending", MakeEmulation(EmulationOrder::kDescending)}};
}

}  // namespace isoloss::device
