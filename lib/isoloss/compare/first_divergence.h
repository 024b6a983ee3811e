// The first step at which two runs stop being the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// Index of the first element whose 64 bits differ, over the common length.
/// Exact   NaN equals a NaN of the same bits; -0 differs from +0.
std::optional<size_t> FirstDifferentBits(std::span<const double> a,
                                         std::span<const double> b);

struct Divergence {
  int64_t step = 0;
  std::string quantity;  ///< "loss_nats", "grad_norm" or "held-out loss_nats"
  double baseline = 0;
  double candidate = 0;

  /// Of an evaluation, behind equal steps.
  bool IsHeldOut() const { return quantity.starts_with("held-out"); }
};

/// The first step at which the loss or, failing that, the gradient norm
/// differs in any bit. Steps that only one run has are no divergence.
std::optional<Divergence> FirstDivergence(const runlog::StepColumns& baseline,
                                          const runlog::StepColumns& candidate);

/// As above; failing that, the first held-out loss that differs.
std::optional<Divergence> FirstDivergence(const runlog::RunLog& baseline,
                                          const runlog::RunLog& candidate);

}  // namespace isoloss::compare
