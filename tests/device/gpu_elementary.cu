#include "gpu_elementary.h"
#include "isoloss/device/cuda/target.cuh"
#include "isoloss/device/executor.h"
#include "isoloss/device/kernel.h"

namespace isoloss::device {
namespace {

struct ElementaryElement {
  Elementary function;
  uint32_t first;
  uint32_t* results;

  constexpr void operator()(size_t i) const {
    results[i] = ElementaryBits(function, first + static_cast<uint32_t>(i));
  }
};

}  // namespace

void ComputeOnGpu(Elementary function, uint32_t first,
                  std::span<uint32_t> results, Executor& gpu) {
  Call<Cuda> call(gpu);
  auto* const room = call.Room<uint32_t>(results.size());
  call.Launch(ForEachElement<ElementaryElement>{{function, first, room},
                                                results.size()});
  call.Download(room, results);
}

}  // namespace isoloss::device
