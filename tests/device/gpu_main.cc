// Runs the tests of this folder on the machine's first GPU. Without one,
// nothing runs: CTest takes the exit code 77 for a test that was skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "executors.h"
#include "isoloss/device/cuda/cuda.h"
#include "isoloss/device/cuda/tensor_cores.h"
#include "isoloss/device/fragments.h"

namespace isoloss::device {

std::vector<NamedExecutor> DeviceExecutors() {
  if (CudaDevices() == 0) return {};
  // All tests of a process share it.
  static const NamedExecutor gpu = {"gpu", MakeCuda(0, AvailableProcessors())};
  return {gpu};
}

bool AddAs(const kernels::Accumulator& accumulator) {
  if (!AddsFragments(accumulator)) return true;
  const CudaInfo info = DescribeCuda(0);
  return WrongAdder(info.name, info.major, info.minor, accumulator).empty();
}

}  // namespace isoloss::device

int main(int argc, char** argv) {
  const std::string problem = isoloss::device::CudaProblem();
  if (!problem.empty()) {
    std::printf("Skipped: no GPU: %s\n", problem.c_str());
    return 77;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
