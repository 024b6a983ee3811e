// What quantisations of a step's operands draw their random bits from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "isoloss/kernels/operand.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::model {

/// Which step of which run.
struct StepKey {
  uint64_t seed = 0;
  uint64_t step = 0;
};

enum class OperandSide { kLeft, kRight };

/// Of one operand of one product: of group `group` of the whole model (an
/// expert; 0 of other sites), whose first tensor (sequence, dispatch unit) has
/// the number `first_tensor` in the whole batch. Streams are
///   CounterRng(seed, StreamId("quantize/<site>/<product>/<side>"))
/// and "transform/<site>/<product>", value step << 24 | group.
/// `side` is "left" or "right". So no bit depends on who computes what.
kernels::OperandState StateOf(const StepKey& key, std::string_view site,
                              precision::GemmRole role, OperandSide side,
                              size_t group, size_t first_tensor);

}  // namespace isoloss::model
