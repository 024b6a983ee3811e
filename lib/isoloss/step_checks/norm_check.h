// Verifies RMSNorm (docs/model.md, section 2).
#pragma once

#include <string>
#include <vector>

#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// These are columns [first, first + count) of a tensor; count 0 means all
/// columns.
struct TensorColumns {
  std::string name;
  size_t first = 0;
  size_t count = 0;
};

/// Identifies the tensors that one normalisation and its neighbours announced.
struct NormPlace {
  std::string name;  ///< "layers.0.attention_norm": has weight and wgrad
  TensorColumns in;
  TensorColumns out;
  TensorColumns out_gradient;  ///< dy
  TensorColumns in_gradient;   ///< dx, perhaps added
  /// dx was added to this tensor's values; it is empty if nothing was added.
  std::string addend;
};

std::vector<NormPlace> NormPlaces(const model::ModelConfig& config);

/// Compares y = round((x r) w), where r = (sum(x^2) / D + eps)^-1/2. w are the
/// gains, quantised if the recipe says so.
///
/// Bounds   the sum of squares is off by gamma_D of itself; the division by D,
///          the addition of eps and the root's two operations by 4 roundings,
///          of which the root halves those before it; x r and (x r) w by one
///          each.
void CheckNormForward(const StepInputs& inputs, const NormPlace& place,
                      ReportSink& sink);
/// Compares dx = round(r (g - c x)) with g = dy w and c = r^2 / D sum(g x). An
/// addend adds one rounding. Also compares the FP32 sum over tokens dw_i =
/// sum(dy_i x_i r), which does not depend on the quantisation of w.
void CheckNormBackward(const StepInputs& inputs, const NormPlace& place,
                       ReportSink& sink);

void AddNormParts(const StepInputs& inputs, std::vector<CheckPart>& parts);

}  // namespace isoloss::step_checks
