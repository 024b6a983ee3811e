#include "isoloss/oracle/rotation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/estimate_math.h"

namespace isoloss::oracle {
namespace {

/// Two libraries that compute a table entry in double differ by at most this,
/// absolute.
constexpr double kTableError = 0x1p-50;

Estimate TableEntry(double value) {
  return Rounded32({.exact = value, .bound = kTableError});
}

/// Returns a + b in FP32; the products may be rounded or fused.
Estimate SumOfProducts(const Estimate& a, const Estimate& b) {
  Sum32 sum;
  sum.Add(a);
  sum.Add(b);
  return sum.Value();
}

}  // namespace

std::vector<float> OracleRopeFrequencies(const model::ModelConfig& config) {
  const auto width = static_cast<double>(config.qk_rope_head_dim);
  std::vector<float> frequencies;
  for (size_t i = 0; i < config.qk_rope_head_dim / 2; ++i) {
    frequencies.push_back(static_cast<float>(portable::Pow(
        config.rope_theta, -2.0 * static_cast<double>(i) / width)));
  }
  if (!config.yarn || config.rope_factor <= 1.0) return frequencies;

  const auto correction = [&](double rotations) {
    return width *
           portable::Log(config.original_seq_len /
                         (2.0 * std::numbers::pi * rotations)) /
           (2.0 * portable::Log(config.rope_theta));
  };
  const double low = std::max(std::floor(correction(config.beta_fast)), 0.0);
  double high = std::min(std::ceil(correction(config.beta_slow)), width - 1.0);
  if (high == low) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) /
                       static_cast<float>(high - low);
    const float slow = std::min(std::max(ramp, 0.0f), 1.0f);
    const float f = frequencies[i];
    frequencies[i] =
        f / static_cast<float>(config.rope_factor) * slow + f * (1.0f - slow);
  }
  return frequencies;
}

Rotation::Rotation(const model::ModelConfig& config,
                   const std::vector<int32_t>& positions)
    : frequencies_(OracleRopeFrequencies(config)) {
  const int32_t last = *std::max_element(positions.begin(), positions.end());
  for (int32_t position = 0; position <= last; ++position) {
    for (const float frequency : frequencies_) {
      const float angle = static_cast<float>(position) * frequency;
      entries_.push_back(
          {TableEntry(portable::Cos(static_cast<double>(angle))),
           TableEntry(portable::Sin(static_cast<double>(angle)))});
    }
  }
}

void Rotation::Turn(int32_t position, bool inverse, const Estimate* x,
                    Estimate* y) const {
  const Entry* entry = &entries_[static_cast<size_t>(position) * pairs()];
  for (size_t i = 0; i < pairs(); ++i, ++entry, x += 2, y += 2) {
    const Estimate sin = inverse ? entry->sin * -1.0 : entry->sin;
    y[0] = SumOfProducts(Product(x[0], entry->cos), Product(x[1], sin * -1.0));
    y[1] = SumOfProducts(Product(x[1], entry->cos), Product(x[0], sin));
  }
}

}  // namespace isoloss::oracle
