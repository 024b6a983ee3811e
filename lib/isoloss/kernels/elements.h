// Defines what row-wise kernels compute for one element (rowwise.h). It is
// constexpr, so that kernels of a device can share this text.
#pragma once

#include <cmath>
#include <cstddef>

#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/rounding.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::kernels {

constexpr float SwigluOf(float gate, float up, Rounding rounding) {
  const float s = Rounded(gate * Sigmoid(gate), rounding);
  return Rounded(s * up, rounding);
}

struct SwigluGradient {
  float dgate;
  float dup;
};

constexpr SwigluGradient SwigluGradientOf(float gate, float up, float dh,
                                          Rounding rounding) {
  const float q = Sigmoid(gate);
  const float s = Rounded(gate * q, rounding);
  const float ds = Rounded(dh * up, rounding);
  const float d = q * std::fma(gate, 1.0f - q, 1.0f);
  return {Rounded(ds * d, rounding), Rounded(dh * s, rounding)};
}

/// Rotates a pair of elements in place by the angle with this cosine and sine.
constexpr void Rotate(float cos, float sin, Rounding rounding, float* pair) {
  const float even = pair[0];
  const float odd = pair[1];
  pair[0] = Rounded(std::fma(even, cos, odd * -sin), rounding);
  pair[1] = Rounded(std::fma(odd, cos, even * sin), rounding);
}

/// Returns one element of the input's gradient of RMSNorm.
constexpr float NormGradientOf(float r, float c, float x, float g,
                               Rounding rounding) {
  return Rounded(r * std::fma(-c, x, g), rounding);
}

/// Returns the gradient of a logit: e is its exponential, and `scale` is
/// grad_scale over the sum of all.
constexpr float LogitGradientOf(float e, float scale, float grad_scale,
                                bool is_label, Rounding rounding) {
  return Rounded(is_label ? std::fma(e, scale, -grad_scale) : e * scale,
                 rounding);
}

/// Returns an element of a token's combined rows, rows[0], rows[1], … being
/// `row(k)`. Null weights or addend mean none.
template <typename Row>
constexpr float CombinedOf(size_t slots, const Row& row, const float* weights,
                           const float* addend, Rounding rounding) {
  float sum = 0.0f;
  for (size_t k = 0; k < slots; ++k) {
    sum = weights == nullptr ? sum + row(k) : std::fma(weights[k], row(k), sum);
  }
  if (addend != nullptr) sum += *addend;
  return Rounded(sum, rounding);
}

/// Updates one parameter and its moments in place.
constexpr void UpdateByAdamW(const AdamWScalars& c, float gradient,
                             float& parameter, float& m, float& v) {
  const float h = gradient * c.grad_scale;
  m = std::fma(c.beta1, m, c.one_minus_beta1 * h);
  v = std::fma(c.beta2, v, (c.one_minus_beta2 * h) * h);
  const float denominator = std::sqrt(v) / c.bias2_sqrt + c.eps;
  parameter = parameter * c.decay - (c.step_size * m) / denominator;
}

/// Raises `largest` to the magnitude of a rounded value if that is finite.
constexpr float LargerFinite(float largest, float value, Rounding rounding) {
  const float magnitude = std::fabs(Rounded(value, rounding));
  return std::isfinite(magnitude) && largest < magnitude ? magnitude : largest;
}

}  // namespace isoloss::kernels
