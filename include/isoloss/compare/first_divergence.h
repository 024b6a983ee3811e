// Finds the first step at which two runs stop being the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// Two runs should share this value but do not.
struct Divergence {
  int64_t step = 0;
  /// "loss_nats", "grad_norm", "held-out loss_nats" or a recorded statistic:
  /// "update_ratio of layers.0.attention.wo.weight".
  std::string quantity;
  double baseline = 0;
  double candidate = 0;

  /// Returns whether the value is of an evaluation; then all steps are equal.
  bool IsHeldOut() const { return quantity.starts_with("held-out"); }
};

/// Returns the first step at which the loss or, if losses are equal, the
/// gradient norm differs in any bit. Steps that only one run has are no
/// divergence.
std::optional<Divergence> FirstStepDivergence(const runlog::RunLog& baseline,
                                              const runlog::RunLog& candidate);

/// Returns the divergence of FirstStepDivergence; if there is none, the first
/// held-out loss that differs.
std::optional<Divergence> FirstDivergence(const runlog::RunLog& baseline,
                                          const runlog::RunLog& candidate);

/// Digests tell which tensors of two logs differ.
struct TensorDigests {
  int64_t steps = 0;  ///< at which both logs hold digests of tensors
  /// The first tensor of the first step at which a digest differs. Both fields
  /// are empty if none does.
  std::optional<int64_t> other_step;
  std::string other_tensor;
};
TensorDigests CompareTensorDigests(const runlog::RunLog& baseline,
                                   const runlog::RunLog& candidate);

/// Returns the first recorded value about which two logs of bit-equal training
/// disagree, in the order of the schema. Then the code that computed the value
/// has changed, and not the training. Real numbers may differ by 1e-9 of their
/// scale (runlog::Scale), since mathematical libraries and orders of summation
/// differ; expert biases may differ by 2^-18 of the largest. From the first
/// step at which a digest of a tensor differs, nothing is compared. Rounding to
/// BF16 hides from all losses and weights what another order of summation did
/// to an inner tensor. Digests and expert_ids (runlog::Scope::kSlots) are not
/// compared, since the sign of a zero or the order of slots changes them.
///
/// Special  NaN equals NaN. A value that only one log recorded is not compared.
///          If both runs were asked for the same statistics of tensors, one
///          that only one log has is a difference. So is a tensor that the
///          candidate does not name. Rows that travelled over different meshes
///          or exchanges are not compared.
std::optional<Divergence> FirstRecordedDifference(
    const runlog::RunLog& baseline, const runlog::RunLog& candidate);

}  // namespace isoloss::compare
