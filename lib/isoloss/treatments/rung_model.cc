#include "isoloss/treatments/rung_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/train/experiment.h"

namespace isoloss::treatments {
namespace {

constexpr size_t kStep = 8;
constexpr size_t kWidest = 8192;
constexpr double kDepthPower = 0.7;
constexpr double kTolerance = 0.2;

model::ModelConfig AtWidth(const model::ModelConfig& base, size_t width) {
  const double factor =
      static_cast<double>(width) / static_cast<double>(base.dim);
  const auto scaled = [&](size_t value) {
    if (value == 0) return value;
    const auto steps = static_cast<size_t>(
        std::lround(factor * static_cast<double>(value) / kStep));
    return std::max<size_t>(1, steps) * kStep;
  };
  model::ModelConfig model = base;
  model.dim = width;
  for (size_t* value :
       {&model.q_lora_rank, &model.kv_lora_rank, &model.qk_nope_head_dim,
        &model.qk_rope_head_dim, &model.v_head_dim, &model.dense_hidden_dim,
        &model.moe_hidden_dim}) {
    *value = scaled(*value);
  }
  const auto layers = static_cast<size_t>(std::lround(
      static_cast<double>(base.n_layers) * portable::Pow(factor, kDepthPower)));
  model.n_layers = std::max(layers, base.n_dense_layers + 1);
  return model;
}

}  // namespace

model::ModelConfig NearestModel(const model::ModelConfig& base,
                                double parameters) {
  model::ModelConfig best = base;
  double least = std::numeric_limits<double>::infinity();
  for (size_t width = kStep; width <= kWidest; width += kStep) {
    const model::ModelConfig model = AtWidth(base, width);
    const double found = train::EstimatedParameters(model);
    const double distance = std::fabs(portable::Log(found / parameters));
    if (distance < least) {
      least = distance;
      best = model;
    }
    if (found > 4 * parameters) break;
  }
  return best;
}

model::ModelConfig ScaledModel(const model::ModelConfig& base,
                               double parameters) {
  const model::ModelConfig best = NearestModel(base, parameters);
  const double found = train::EstimatedParameters(best);
  if (!(std::fabs(portable::Log(found / parameters)) <=
        portable::Log(1 + kTolerance))) {
    ThrowError(ErrorKind::kConfig,
               "--parameters: {:.3g} were asked for, but the nearest model of "
               "this shape has {:.3g} parameters, and a fifth more or less is "
               "allowed. Ask for a size nearer to that.",
               parameters, found);
  }
  return best;
}

double TransferredRate(double lr, const model::ModelConfig& base,
                       const model::ModelConfig& scaled, double exponent) {
  // For an exponent of -1/2 this has the bits of std::sqrt.
  return lr * portable::Pow(static_cast<double>(base.dim) /
                                static_cast<double>(scaled.dim),
                            -exponent);
}

}  // namespace isoloss::treatments
