#include "isoloss/kernels/accumulator.h"

#include "isoloss/formats/registered.h"

namespace isoloss::kernels {
namespace {

constexpr Accumulator kAccumulators[] = {
    {.name = "hopper_bf16",
     .steps = 16,
     .fraction_bits = 25,
     .significand_bits = 24,
     .cores = "Hopper and Blackwell BF16",
     .source = "MMA-Sim c785138; seen on an H100 and an H200"},
    {.name = "hopper_f13",
     .exponents = FactorExponents::kOfCodes,
     .steps = 32,
     .fraction_bits = 13,
     .significand_bits = 14,
     .cores = "Hopper FP8",
     .source = "MMA-Sim c785138; seen on an H100"},
    {.name = "ampere_bf16",
     .steps = 8,
     .fraction_bits = 24,
     .significand_bits = 24,
     .cores = "Ampere and Ada BF16",
     .source = "MMA-Sim c785138"},
    {.name = "ada_fp8",
     .exponents = FactorExponents::kOfCodes,
     .steps = 16,
     .fraction_bits = 13,
     .significand_bits = 14,
     .cores = "Ada FP8",
     .source = "MMA-Sim c785138"},
    {.name = "blackwell_f25",
     .exponents = FactorExponents::kOfCodes,
     .steps = 32,
     .fraction_bits = 25,
     .significand_bits = 24,
     .cores = "Blackwell FP8 and MXFP8",
     .source = "MMA-Sim c785138"},
    {.name = "blackwell_fp4",
     .exponents = FactorExponents::kOfScales,
     .steps = 64,
     .group = 16,
     .fraction_bits = 35,
     .significand_bits = 24,
     .cores = "Blackwell NVFP4 and MXFP4",
     .source = "MMA-Sim c785138"},
    {.name = "cdna3_bf16",
     .adder = Adder::kCdna3,
     .steps = 8,
     .fraction_bits = 24,
     .significand_bits = 24,
     .cores = "CDNA3 BF16",
     .source = "MMA-Sim c785138"},
    {.name = "cdna3_fp8",
     .exponents = FactorExponents::kOfCodes,
     .adder = Adder::kCdna3Fp8,
     .steps = 16,
     .fraction_bits = 24,
     .significand_bits = 24,
     .cores = "CDNA3 FP8",
     .source = "MMA-Sim c785138"},
};

constexpr const Accumulator* kAll[] = {
    &kAccumulators[0], &kAccumulators[1], &kAccumulators[2], &kAccumulators[3],
    &kAccumulators[4], &kAccumulators[5], &kAccumulators[6], &kAccumulators[7]};
static_assert(std::size(kAll) == std::size(kAccumulators));

}  // namespace

std::span<const Accumulator* const> AllAccumulators() { return kAll; }

const Accumulator& AccumulatorByName(std::string_view name) {
  return formats::RegisteredByName(AllAccumulators(), name, "accumulator");
}

}  // namespace isoloss::kernels
