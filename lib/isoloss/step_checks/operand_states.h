// States a second time which random bits each operand of a step must draw, and
// which history it must look back to.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "isoloss/formats/quantize.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

enum class Side { kLeft, kRight };

/// Identifies one operand of a site's product.
struct OperandPlace {
  std::string site;
  precision::GemmRole role = precision::GemmRole::kFprop;
  Side side = Side::kLeft;

  /// Returns a name such as "layers.0.attention.wq/fprop/left".
  std::string Name() const;
};

/// Returns the state of group `group`, an expert or 0. Random number step *
/// 2^24 + group of "quantize/<name>" is its stream. The same number of
/// "transform/<site>/<product>", which both sides share, is its key.
formats::TensorState ExpectedState(const StepInputs& inputs,
                                   const OperandPlace& place, size_t group);

/// Returns whether `states` are the expected ones of `groups` groups, whose
/// first tensor is the batch's first. There must be none if the quantisation
/// needs none or is null.
bool AreExpected(std::span<const kernels::OperandState> states,
                 const formats::Quantization* quantization,
                 const StepInputs& inputs, const OperandPlace& place,
                 size_t groups);

}  // namespace isoloss::step_checks
