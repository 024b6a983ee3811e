// FP8 products of Hopper: about 14 bits are kept.
#include "isoloss/kernels/truncating_sum.h"

namespace isoloss::kernels {
namespace {

float Add(float sum, const Elements& a, const Elements& b, size_t count) {
  constexpr int kFractionBits = 13;
  constexpr int kSignificandBits = 14;
  return TruncatingSum(sum, a, b, count, kFractionBits, kSignificandBits);
}

}  // namespace

extern constinit const Accumulator kAccumulator_hopper_f13 = {
    .name = "hopper_f13",
    .steps = 32,
    .add = Add,
    .source = "MMA-Sim c785138, wgmma of FP8",
};

}  // namespace isoloss::kernels
