#include "isoloss/kernels/accumulator.h"

namespace isoloss::kernels {

#define ISOLOSS_ACCUMULATOR(name) extern const Accumulator kAccumulator_##name;
#include "isoloss/kernels/accumulators.def"
#undef ISOLOSS_ACCUMULATOR

namespace {

constexpr const Accumulator* kAccumulators[] = {
#define ISOLOSS_ACCUMULATOR(name) &kAccumulator_##name,
#include "isoloss/kernels/accumulators.def"
#undef ISOLOSS_ACCUMULATOR
};

}  // namespace

std::span<const Accumulator* const> AllAccumulators() { return kAccumulators; }

const Accumulator& AccumulatorByName(std::string_view name) {
  return formats::RegisteredByName(AllAccumulators(), name, "accumulator");
}

}  // namespace isoloss::kernels
