// FP8 and MXFP8 products of Blackwell: FP32, cut off.
#include "isoloss/kernels/truncating_sum.h"

namespace isoloss::kernels {
namespace {

float Add(float sum, const Elements& a, const Elements& b, size_t count) {
  constexpr int kFractionBits = 25;
  constexpr int kSignificandBits = 24;
  return TruncatingSum(sum, a, b, count, kFractionBits, kSignificandBits);
}

}  // namespace

extern constinit const Accumulator kAccumulator_blackwell_f25 = {
    .name = "blackwell_f25",
    .steps = 32,
    .add = Add,
    .source = "MMA-Sim c785138, tcgen05 of FP8 and MXFP8",
};

}  // namespace isoloss::kernels
