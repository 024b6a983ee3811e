// The devices on which the tests of this folder run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/accumulator.h"

namespace isoloss::device {

struct NamedExecutor {
  std::string name;
  std::shared_ptr<Executor> executor;
};

/// Returns the emulations, or the GPU in programs that have gpu_main.cc.
std::vector<NamedExecutor> DeviceExecutors();

/// Tells whether they compute sums of an accumulator: a GPU refuses those of
/// other GPUs' tensor cores.
bool AddAs(const kernels::Accumulator& accumulator);

}  // namespace isoloss::device
