#include "isoloss/model/rope.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "isoloss/kernels/elementary.h"

namespace isoloss::model {
namespace {

/// YaRN's ramp rises from 0 to 1 between these two pairs.
struct Ramp {
  double low;
  double high;
};

/// Returns the pair (a real number) that turns `rotations` times over the
/// original context.
double PairOfRotations(const ModelConfig& config, double rotations) {
  const auto width = static_cast<double>(config.qk_rope_head_dim);
  return width *
         kernels::Log(config.original_seq_len /
                      (2.0 * std::numbers::pi * rotations)) /
         (2.0 * kernels::Log(config.rope_theta));
}

Ramp YarnRamp(const ModelConfig& config) {
  const auto width = static_cast<double>(config.qk_rope_head_dim);
  const double low =
      std::max(std::floor(PairOfRotations(config, config.beta_fast)), 0.0);
  double high = std::min(std::ceil(PairOfRotations(config, config.beta_slow)),
                         width - 1.0);
  if (low == high) high += 0.001;
  return {low, high};
}

}  // namespace

std::vector<float> RopeFrequencies(const ModelConfig& config) {
  const auto width = static_cast<double>(config.qk_rope_head_dim);
  const double log_theta = kernels::Log(config.rope_theta);
  std::vector<float> frequencies(config.qk_rope_head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = static_cast<float>(
        kernels::Exp(-2.0 * static_cast<double>(i) / width * log_theta));
  }
  if (!config.yarn || config.rope_factor <= 1.0) return frequencies;

  const Ramp ramp = YarnRamp(config);
  const auto low = static_cast<float>(ramp.low);
  const auto rise = static_cast<float>(ramp.high - ramp.low);
  const auto factor = static_cast<float>(config.rope_factor);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float share =
        std::clamp((static_cast<float>(i) - low) / rise, 0.0f, 1.0f);
    const float kept = frequencies[i];
    frequencies[i] = (kept / factor) * share + kept * (1.0f - share);
  }
  return frequencies;
}

void RopeTable::Reach(size_t positions) {
  if (positions <= cos_.rows()) return;
  // The size is a power of two, so that slowly growing positions rebuild the
  // table rarely.
  const size_t rows = std::bit_ceil(positions);
  Matrix<float> cos(rows, frequencies_.size());
  Matrix<float> sin(rows, frequencies_.size());
  for (size_t position = 0; position < rows; ++position) {
    for (size_t i = 0; i < frequencies_.size(); ++i) {
      const float angle = static_cast<float>(position) * frequencies_[i];
      double sine = 0.0;
      double cosine = 0.0;
      kernels::SinCos(static_cast<double>(angle), &sine, &cosine);
      cos(position, i) = static_cast<float>(cosine);
      sin(position, i) = static_cast<float>(sine);
    }
  }
  cos_.CopyFrom(cos);
  sin_.CopyFrom(sin);
}

}  // namespace isoloss::model
