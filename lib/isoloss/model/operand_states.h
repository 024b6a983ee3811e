// Defines the random bits that quantisations of a step's operands draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "isoloss/kernels/operand.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// Says which step of which run draws random bits.
struct StepKey {
  uint64_t seed = 0;
  uint64_t step = 0;
};

enum class OperandSide { kLeft, kRight };

/// Returns the state of one operand of one product. `group` counts in the whole
/// model (an expert; 0 at sites without experts). `first_tensor` is the number
/// of the group's first tensor (sequence, dispatch unit) in the whole batch.
/// The streams are
///   CounterRng(seed, StreamId("quantize/<site>/<product>/<side>"))
/// and "transform/<site>/<product>", value step << 24 | group. `side` is "left"
/// or "right". So no bit depends on which process computes the product.
kernels::OperandState StateOf(const StepKey& key, std::string_view site,
                              precision::GemmRole role, OperandSide side,
                              size_t group, size_t first_tensor);

}  // namespace isoloss::model
