// What each operand of a step must draw its random bits from and look back to,
// stated a second time.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "isoloss/formats/quantize.h"
#include "isoloss/oracle/step_inputs.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

enum class Side { kLeft, kRight };

/// One operand of a site's product.
struct OperandPlace {
  std::string site;
  precision::GemmRole role = precision::GemmRole::kFprop;
  Side side = Side::kLeft;

  /// "layers.0.attention.wq/fprop/left".
  std::string Name() const;
};

/// Of group `group`, an expert or 0. Random numbers of "quantize/<name>" are
/// the streams, those of "transform/<site>/<product>", which both sides share,
/// the keys; number step * 2^24 + group.
formats::TensorState ExpectedState(const StepInputs& inputs,
                                   const OperandPlace& place, size_t group);

/// Whether `states` are those of `groups` groups, each of whose first tensor is
/// the batch's first; or none, if the quantisation (null: none) needs none.
bool AreExpected(std::span<const kernels::OperandState> states,
                 const formats::Quantization* quantization,
                 const StepInputs& inputs, const OperandPlace& place,
                 size_t groups);

}  // namespace isoloss::oracle
