#include <cmath>
#include <numbers>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/model/parameters.h"

namespace isoloss::model {
namespace {

/// Standard normal number `index` of a stream, by Box and Muller's transform;
/// `attempt` counts redraws of the same number.
double Normal(const CounterRng& rng, uint64_t index, uint64_t attempt) {
  // An element index stays below 2^48, so attempts have bits of their own.
  const auto bits = rng.Block(index | attempt << 48);
  const uint64_t first = uint64_t{bits[1]} << 32 | bits[0];
  const uint64_t second = uint64_t{bits[3]} << 32 | bits[2];
  // In (0, 1]: the logarithm stays finite.
  const double radius_uniform =
      static_cast<double>((first >> 11) + 1) * 0x1p-53;
  const double angle_uniform = static_cast<double>(second >> 11) * 0x1p-53;
  double sine = 0.0;
  double cosine = 0.0;
  kernels::SinCos(2.0 * std::numbers::pi * angle_uniform, &sine, &cosine);
  return std::sqrt(-2.0 * kernels::Log(radius_uniform)) * cosine;
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
    float* values = parameter.values.data();
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      values[i] =
          rule.std > 0.0 ? Draw(rng, parameter.first_element + i, rule) : 1.0f;
    }
  }
}

}  // namespace isoloss::model
