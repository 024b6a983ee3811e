// Makes the models of a ladder: one shape at several sizes.
#pragma once

#include "isoloss/model/config.h"

namespace isoloss::treatments {

/// Returns `base` at another width and depth, with about `parameters`
/// parameters. The width is the multiple of 8 whose model comes nearest. The
/// rule:
///   widths (residual stream, heads, low-rank projections, feed-forwards) grow
///   in proportion, rounded to multiples of 8;
///   layers grow with the width's power of 0.7, the dense layers stay;
///   numbers of heads, experts and choices stay.
/// dsv3-nano and dsv3-small follow the rule: 2.7 times the width, twice the
/// layers.
/// Errors   ConfigError if no such model has within a fifth of `parameters`.
model::ModelConfig ScaledModel(const model::ModelConfig& base,
                               double parameters);

/// Returns the learning rate of a scaled model: `lr` times the root of the
/// quotient of widths, as between the presets dsv3-nano and dsv3-small. The
/// initialisation needs no rule: the model itself scales outputs of a layer
/// with the depth (docs/model.md).
double TransferredRate(double lr, const model::ModelConfig& base,
                       const model::ModelConfig& scaled);

}  // namespace isoloss::treatments
