#include "gpu_fragments.h"
#include "isoloss/device/cuda/target.cuh"
#include "isoloss/device/executor.h"
#include "isoloss/device/kernel.h"

namespace isoloss::device {
namespace {

struct AddProductsOfWarps {
  static constexpr size_t kThreads = 256;
  using Shared = NothingShared;

  LaneFragments* lanes;
  size_t count;  ///< of whole blocks

  size_t blocks() const { return count / kThreads; }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    typename Block::template PerThread<LaneFragments> own;
    LaneFragments* const first = lanes + block.index() * kThreads;
    block.EachWarp([&own, first](auto& warp) {
      warp.Each([&own, first](size_t thread) { own[thread] = first[thread]; });
      warp.AddProducts(kernels::Accumulator(),
                       [&own](size_t thread) { return own[thread].View(); });
      warp.Each([&own, first](size_t thread) { first[thread] = own[thread]; });
    });
  }
};

}  // namespace

void AddProductsOnGpu(std::span<LaneFragments> lanes, Executor& gpu) {
  Call<Cuda> call(gpu);
  auto* const room = call.Room<LaneFragments>(lanes.size());
  call.memory().CopyFromHost(lanes.data(), lanes.size_bytes(), room);
  call.Launch(AddProductsOfWarps{room, lanes.size()});
  call.Download(static_cast<const LaneFragments*>(room), lanes);
}

}  // namespace isoloss::device
