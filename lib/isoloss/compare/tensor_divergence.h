// Where two runs first part: the step, and in the order of computation the
// first tensor or quantity that differs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {

/// The part of a step that computes a tensor.
enum class Phase { kForward, kBackward, kOptimizer };

/// "forward", "backward" or "optimizer".
std::string_view PhaseName(Phase phase);

/// How equal is equal?
struct DivergenceOptions {
  /// Empty: to the bit. Else two values agree if they differ by no more than
  /// this share of the larger magnitude; the mean of a tensor, of the larger
  /// root mean square.
  std::optional<double> tolerance;
};

/// One value that two runs should share but do not.
struct TensorDivergence {
  int64_t step = 0;
  /// The column: "digest", "routing_digest", "held-out loss_nats", ...
  std::string quantity;
  /// The tensor, parameter, "MoE layer 2" or "MoE layer 2, expert 5"; empty
  /// for a quantity of the step.
  std::string name;
  /// Both values: digests in hexadecimal, "none" where there is none, real
  /// numbers with 17 digits.
  std::string a;
  std::string b;
  bool is_tensor = false;
  /// Of a tensor, if one of the logs has a graph that knows it.
  std::optional<Phase> phase;
  /// Tensors before it in the order of computation that still agree at this
  /// step: up to three, the nearest last, and how many there are in all.
  std::vector<std::string> agreeing;
  int64_t agreeing_count = 0;
  /// The last common step before it, at which all that both logs hold agrees.
  std::optional<int64_t> last_equal_step;
};

/// What was set side by side, and the first thing that differs.
struct DivergenceReport {
  bool of_digits = false;  ///< the logs hold digits of losses, not their bits
  bool can_zoom = true;    ///< isoloss can train both runs again
  std::optional<TensorDivergence> first;
  /// Common steps of any group but /eval, and those whose tensors can be
  /// compared: with digests in both, or with a tolerance with statistics.
  int64_t steps = 0;
  std::vector<int64_t> tensor_steps;
  std::vector<std::string> tensors_only_a;
  std::vector<std::string> tensors_only_b;
  std::vector<std::string> parameters_only_a;
  std::vector<std::string> parameters_only_b;
  /// Columns that were not compared: "/moe/expert_bias: 5 against 6 experts".
  std::vector<std::string> other_extents;

  /// Could the first difference be in a tensor of an earlier operation than
  /// the one named, because not all tensors of that step, or of those since
  /// the last equal one, were logged?
  bool HidesTensors() const;
};

/// Walks the steps that both logs have, ascending, and in each what is
/// reproducible in this order (runlog::Turn): tensors in the order of
/// computation (exact: their digests; bounded: the statistics below), routing
/// digests (exact only), loss, gradient norms of parameters, that of all,
/// update ratios, and, exact only, expert biases and every other column. Only
/// if nothing of these differs, evaluations: they are of forward passes of
/// their own, one of them before step 1. What one log lacks is passed over, as
/// is what travelled over another mesh or exchange; names that only one log has
/// and columns of other extents are listed.
///
/// Bounded statistics are l2_norm, mean, cur_amax, std and, along rows and
/// columns, if both logs have it, the quantisation's: mse, underflows% and
/// saturated% (the tolerance is of 100 %), scale_inv_min and scale_inv_max.
///
/// Special  exact: NaN equals a NaN of the same bits, -0 differs from +0.
///          bounded: NaN and infinities agree only with their like.
///          A tensor without a digest in one log only differs. One without
///          statistics at a step (`numel` is NaN) is passed over there, unless
///          both runs were asked for the same statistics.
DivergenceReport FindDivergence(const runlog::RunLog& a,
                                const runlog::RunLog& b,
                                const DivergenceOptions& options = {});

}  // namespace isoloss::compare
