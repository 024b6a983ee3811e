// The first step at which two runs stop being the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {

/// A value that two runs should share but do not.
struct Divergence {
  int64_t step = 0;
  /// "loss_nats", "grad_norm", "held-out loss_nats" or a recorded statistic:
  /// "update_ratio of layers.0.attention.wo.weight".
  std::string quantity;
  double baseline = 0;
  double candidate = 0;

  /// Of an evaluation, behind equal steps.
  bool IsHeldOut() const { return quantity.starts_with("held-out"); }
};

/// The first step at which the loss or, failing that, the gradient norm
/// differs in any bit. Steps that only one run has are no divergence.
std::optional<Divergence> FirstStepDivergence(const runlog::RunLog& baseline,
                                              const runlog::RunLog& candidate);

/// As above; failing that, the first held-out loss that differs.
std::optional<Divergence> FirstDivergence(const runlog::RunLog& baseline,
                                          const runlog::RunLog& candidate);

/// What digests say of the tensors that two logs hold.
struct TensorDigests {
  int64_t steps = 0;  ///< at which both logs hold digests of tensors
  /// The first of the first step at which a digest differs; both are empty if
  /// none does.
  std::optional<int64_t> other_step;
  std::string other_tensor;
};
TensorDigests CompareTensorDigests(const runlog::RunLog& baseline,
                                   const runlog::RunLog& candidate);

/// The first recorded value that two logs of bit-equal training disagree about,
/// in the order of the schema: what computed it has changed then, not the
/// training. Real numbers may differ by 1e-9 of their scale (runlog::Scale),
/// since mathematical libraries and orders of summation differ, expert biases
/// by 2^-18 of the largest. From the first step on at which a tensor has
/// another digest nothing is compared: rounding to BF16 hides what another
/// order of summation did to an inner tensor from all losses and weights.
/// Digests and expert_ids (runlog::Scope::kSlots) are not compared: the sign of
/// a zero or the order of slots changes them.
///
/// Special  NaN equals NaN. What only one log recorded is not compared; but if
///          both runs were asked for the same statistics of tensors, one that
///          only one log has is a difference, and so is a tensor that the
///          candidate does not name. Rows that travelled over another mesh or
///          exchange are not compared.
std::optional<Divergence> FirstRecordedDifference(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate);

}  // namespace isoloss::compare
