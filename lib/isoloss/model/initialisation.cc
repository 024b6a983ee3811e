#include <cmath>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/normal.h"
#include "isoloss/model/parameters.h"

namespace isoloss::model {
namespace {

/// Returns standard normal number `index` of a stream; `attempt` counts redraws
/// of the same number.
double Normal(const CounterRng& rng, uint64_t index, uint64_t attempt) {
  // An element index stays below 2^48, so attempts have bits of their own.
  return kernels::StandardNormal(rng.Block(index | attempt << 48));
}

float Draw(const CounterRng& rng, uint64_t index, const InitRule& rule) {
  for (uint64_t attempt = 0;; ++attempt) {
    const double value = rule.std * Normal(rng, index, attempt);
    if (std::fabs(value) <= rule.cut) return static_cast<float>(value);
  }
}

}  // namespace

void InitializeParameters(uint64_t seed, ParameterSet& parameters) {
  for (Parameter& parameter : parameters.parameters()) {
    const InitRule& rule = parameter.init;
    const CounterRng rng(seed, StreamId("init/" + parameter.name));
    Matrix<float> values(parameter.values.rows(), parameter.values.cols());
    for (size_t i = 0; i < values.size(); ++i) {
      values.data()[i] =
          rule.std > 0.0 ? Draw(rng, parameter.first_element + i, rule) : 1.0f;
    }
    parameter.values.CopyFrom(values);
  }
}

}  // namespace isoloss::model
