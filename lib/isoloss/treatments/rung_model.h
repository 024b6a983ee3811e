// Makes the models of a ladder: one shape at several sizes.
#pragma once

#include "isoloss/model/config.h"

namespace isoloss::treatments {

/// Returns `base` at another width and depth, with as nearly `parameters`
/// parameters as its shape allows. The width is the multiple of 8 whose model
/// comes nearest. The rule:
///   widths (residual stream, heads, low-rank projections, feed-forwards) grow
///   in proportion, rounded to multiples of 8;
///   layers grow with the width's power of 0.7, the dense layers stay;
///   numbers of heads, experts and choices stay.
/// dsv3-nano and dsv3-small follow the rule: 2.7 times the width, twice the
/// layers.
model::ModelConfig NearestModel(const model::ModelConfig& base,
                                double parameters);

/// Returns the same. Errors   ConfigError if the model does not have within a
/// fifth of `parameters`.
model::ModelConfig ScaledModel(const model::ModelConfig& base,
                               double parameters);

/// Returns the learning rate of a scaled model: `lr` times the power `exponent`
/// of the quotient of widths. Between the presets dsv3-nano and dsv3-small it
/// is -0.5. The initialisation needs no rule: the model itself scales outputs
/// of a layer with the depth (docs/model.md).
double TransferredRate(double lr, const model::ModelConfig& base,
                       const model::ModelConfig& scaled, double exponent);

}  // namespace isoloss::treatments
