#include "isoloss/estimators/indicator.h"

#include <cmath>

namespace isoloss::estimators {
namespace {

constexpr std::array<IndicatorKind, kIndicators> kKinds = {{
    {Indicator::kResidualKurtosis, "residual_kurtosis", "1",
     "Kurtosis of the residual stream that the last norm reads", false, false},
    {Indicator::kResidualAmax, "residual_amax", "1", "Its largest magnitude",
     false, false},
    {Indicator::kSwigluKurtosis, "swiglu_kurtosis", "1",
     "Largest kurtosis of what SwiGLU gave, over layers", false, false},
    {Indicator::kSwigluAmax, "swiglu_amax", "1",
     "Largest magnitude of what SwiGLU gave, over layers", false, false},
    {Indicator::kSqnr, "sqnr", "dB",
     "Least SQNR of an activation that a linear layer quantises", true, true},
    {Indicator::kSaturation, "saturation", "%",
     "Largest share of an activation's elements that saturate", false, false},
    {Indicator::kGradientToNoise, "gradient_to_noise", "1",
     "Norm of the gradient over sqrt(3) times that of its difference to the "
     "BF16 gradient",
     true, false},
    {Indicator::kRoutingFlips, "routing_flips", "1",
     "Share of experts that BF16 would not have chosen", false, false},
    {Indicator::kGradientNorm, "grad_norm", "1",
     "Norm of the gradient before clipping", false, false},
    {Indicator::kLossRise, "loss_rise", "nats",
     "Training loss above its least value so far", false, false},
}};

/// This is 20 log10(2).
constexpr double kDecibelsOfDoubling = 6.020599913279624;

}  // namespace

std::span<const IndicatorKind> AllIndicators() { return kKinds; }

const IndicatorKind& IndicatorKindOf(Indicator indicator) {
  return kKinds[static_cast<size_t>(indicator)];
}

double Alarm(const IndicatorKind& kind, double value) {
  const double doublings =
      kind.decibels ? value / kDecibelsOfDoubling : std::log2(value);
  return kind.falls ? -doublings : doublings;
}

}  // namespace isoloss::estimators
