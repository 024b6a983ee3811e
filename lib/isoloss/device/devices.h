// The devices that a run can be told to use.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "isoloss/base/job_pool.h"

namespace isoloss::device {

/// Runs on it compute on threads of the host.
inline constexpr const char* kCpu = "cpu";

/// Returns "cpu", "gpu" and "emulation", a GPU that the host emulates for
/// tests, slowly.
const std::vector<std::string>& DeviceNames();

/// Tells whether this machine has the device.
bool IsHere(const std::string& name);

/// Describes what a run finds there.
struct Device {
  int count = 1;     ///< GPUs of this machine
  size_t bytes = 0;  ///< of memory of each; 0: that of the host
  /// Empty for the CPU. Executors take the GPUs in turn.
  ExecutorMaker make_executor = {};
};

/// Errors   ConfigError if there is no such device here: it says why.
Device FindDevice(const std::string& name);

}  // namespace isoloss::device
