#include "isoloss/kernels/accumulator.h"

#include "isoloss/formats/registered.h"

namespace isoloss::kernels {
namespace {

/// Hopper keeps about 14 bits of sums of FP8 products.
constexpr Accumulator kHopper = {.name = "hopper_f13",
                                 .steps = 32,
                                 .fraction_bits = 13,
                                 .significand_bits = 14,
                                 .source = "MMA-Sim c785138, wgmma of FP8"};

/// Blackwell cuts sums of FP8 and MXFP8 products off to FP32.
constexpr Accumulator kBlackwell = {
    .name = "blackwell_f25",
    .steps = 32,
    .fraction_bits = 25,
    .significand_bits = 24,
    .source = "MMA-Sim c785138, tcgen05 of FP8 and MXFP8"};

constexpr const Accumulator* kAccumulators[] = {&kHopper, &kBlackwell};

}  // namespace

std::span<const Accumulator* const> AllAccumulators() { return kAccumulators; }

const Accumulator& AccumulatorByName(std::string_view name) {
  return formats::RegisteredByName(AllAccumulators(), name, "accumulator");
}

}  // namespace isoloss::kernels
