// The oracle of RMSNorm (docs/model.md, section 2).
#pragma once

#include <string>
#include <vector>

#include "isoloss/oracle/step_inputs.h"

namespace isoloss::oracle {

/// Columns [first, first + count) of a tensor; count 0: all of it.
struct TensorColumns {
  std::string name;
  size_t first = 0;
  size_t count = 0;
};

/// One normalisation and its neighbours, by the tensors that they announced.
struct NormPlace {
  std::string name;  ///< "layers.0.attention_norm": has weight and wgrad
  TensorColumns in;
  TensorColumns out;
  TensorColumns out_gradient;  ///< dy
  TensorColumns in_gradient;   ///< what dx became
  /// dx was added to this tensor's values; empty: to nothing.
  std::string addend;
};

std::vector<NormPlace> NormPlaces(const model::ModelConfig& config);

/// y = round((x r) w), r = (sum(x^2) / D + eps)^-1/2, w the gains, quantised
/// if the recipe says so.
///
/// Bounds   the sum of squares is off by gamma_D of itself; the division by D,
///          the addition of eps and the root's two operations by 4 roundings,
///          of which the root halves those before it; x r and (x r) w by one
///          each.
void CheckNormForward(const StepInputs& inputs, const NormPlace& place,
                      ReportSink& sink);
/// dx = round(r (g - c x)), g = dy w, c = r^2 / D sum(g x), or that added to
/// the addend with one rounding more; dw_i = sum over tokens of dy_i x_i r,
/// FP32, whatever became of w.
void CheckNormBackward(const StepInputs& inputs, const NormPlace& place,
                       ReportSink& sink);

void AddNormParts(const StepInputs& inputs, std::vector<CheckPart>& parts);

}  // namespace isoloss::oracle
