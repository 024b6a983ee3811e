#include "isoloss/train/perturbation.h"

#include <fmt/format.h>

#include <bit>

#include "isoloss/base/rng.h"
#include "isoloss/train/experiment_sections.h"

namespace isoloss::train {
namespace {

float Neighbour(float value, bool up) {
  if (value == 0) return value;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) + (up ? 1u : ~0u));
}

}  // namespace

std::string DescribePerturbation(const Arm& arm) {
  for (const Named<Perturb>& known : kPerturbs) {
    if (arm.perturb == known.value) {
      return fmt::format("{}, draw {}", known.name, arm.perturb_draw);
    }
  }
  return "";
}

void PerturbWeights(const Arm& arm, uint64_t seed,
                    model::ParameterSet& weights) {
  if (!arm.perturb) return;
  for (model::Parameter& parameter : weights.parameters()) {
    const CounterRng rng(
        seed, StreamId(fmt::format("perturb/one_ulp/{}/{}", arm.perturb_draw,
                                   parameter.name)));
    float* values = parameter.values.data();
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      const bool up = (rng.Bits(parameter.first_element + i) & 1) != 0;
      values[i] = Neighbour(values[i], up);
    }
  }
}

}  // namespace isoloss::train
