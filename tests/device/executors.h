// The devices on which the tests of this folder run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/device/emulation.h"

namespace isoloss::device {

struct NamedExecutor {
  std::string name;
  std::shared_ptr<Executor> executor;
};

inline std::vector<NamedExecutor> DeviceExecutors() {
  return {{"ascending", MakeEmulation(EmulationOrder::kAscending)},
          {"descending", MakeEmulation(EmulationOrder::kDescending)}};
}

}  // namespace isoloss::device
