#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/model/parameters.h"

namespace isoloss::model {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kLinearStd = 0.02;
/// torchtitan's trunc_normal_ cuts at +-2, whatever the standard deviation.
constexpr double kLinearCut = 2.0;

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

/// N of "layers.N.…".
size_t LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "layers.";
  ISOLOSS_ASSERT(name.starts_with(kPrefix));
  return std::stoul(std::string(name.substr(kPrefix.size())));
}

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

InitRule InitRuleFor(const ModelConfig& config, std::string_view name) {
  const double head_std = 1.0 / std::sqrt(static_cast<double>(config.dim));
  if (EndsWith(name, "norm.weight")) return {0.0, kNever};
  if (name == "tok_embeddings.weight" && !config.tied_embeddings) {
    return {1.0, kNever};
  }
  if (name == "lm_head.weight" || name == "tok_embeddings.weight") {
    return {head_std, 3.0 * head_std};
  }
  for (const char* end : {".wo.weight", ".w2.weight", ".w3.weight", ".w2_EDF",
                          ".w3_EFD", ".gate.weight"}) {
    if (EndsWith(name, end)) {
      const auto depth = static_cast<double>(LayerOf(name) + 1);
      return {kLinearStd / std::sqrt(2.0 * depth), kLinearCut};
    }
  }
  return {kLinearStd, kLinearCut};
}

void InitializeParameters(const ModelConfig& config, uint64_t seed,
                          ParameterSet& parameters) {
  for (Parameter& parameter : parameters.parameters()) {
    const InitRule rule = InitRuleFor(config, parameter.name);
    const CounterRng rng(seed, StreamId("init/" + parameter.name));
    float* values = parameter.values.data();
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      values[i] =
          rule.std > 0.0 ? Draw(rng, parameter.first_element + i, rule) : 1.0f;
    }
  }
}

}  // namespace isoloss::model
