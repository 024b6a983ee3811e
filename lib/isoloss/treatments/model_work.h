// Counts the work of a model's products, for the speed model. Shapes alone
// decide it.
#pragma once

#include <cstddef>
#include <string>

#include "isoloss/estimators/speed_model.h"
#include "isoloss/model/config.h"

namespace isoloss::treatments {

/// A weight is shared by these tokens and ranks when it is multiplied.
struct Batching {
  /// These tokens of one rank pass through a layer at a time.
  double tokens = 8192;
  /// The experts are shared by these ranks, each with `tokens` tokens.
  double expert_ranks = 1;
};

/// Counts operations and operands of each kind of site (KindOf) for a token,
/// with fprop computed twice. Attention's own products are left out.
estimators::ModelWork WorkOf(const std::string& name,
                             const model::ModelConfig& model,
                             const Batching& batching);

/// Returns the work of torchtitan's 16B and 671B at their true sizes
/// (b5bcd76c6, models/deepseek_v3/__init__.py). Their published runs
/// (docs/sources.md) had sequences of 8192 tokens and 32 ranks for the
/// experts. One sequence at a time is assumed.
estimators::ModelWork WorkOf16b();
estimators::ModelWork WorkOf671b();

}  // namespace isoloss::treatments
