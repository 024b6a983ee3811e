// Finds the first step at which two runs part, and the first tensor or quantity
// that differs in it, in the order of computation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {

/// Each tensor is computed in one phase of a step.
enum class Phase { kForward, kBackward, kOptimizer };

/// Returns "forward", "backward" or "optimizer".
std::string_view PhaseName(Phase phase);

/// The options say which values count as equal.
struct DivergenceOptions {
  /// If empty, values must be equal to the bit. Else two values agree if they
  /// differ by no more than this share of the larger magnitude. For the mean of
  /// a tensor it is a share of the larger root mean square.
  std::optional<double> tolerance;
};

/// Two runs should share this value but do not.
struct TensorDivergence {
  int64_t step = 0;
  /// The column is "digest", "routing_digest", "held-out loss_nats", ...
  std::string quantity;
  /// The tensor, parameter, "MoE layer 2" or "MoE layer 2, expert 5"; empty if
  /// the quantity is that of the step.
  std::string name;
  /// Both values as text: digests are in hexadecimal, real numbers have 17
  /// digits, "none" means that there is no value.
  std::string a;
  std::string b;
  bool is_tensor = false;
  /// A tensor has a phase if one of the logs has a graph that knows it.
  std::optional<Phase> phase;
  /// Tensors before it in the order of computation that still agree at this
  /// step: up to three, the nearest last. The count is that of all of them.
  std::vector<std::string> agreeing;
  int64_t agreeing_count = 0;
  /// At this last common step before it, everything that both logs hold agrees.
  std::optional<int64_t> last_equal_step;
};

/// The report says what was compared, and the first thing that differs.
struct DivergenceReport {
  bool of_digits = false;  ///< the logs hold digits of losses, not their bits
  bool can_zoom = true;    ///< isoloss can train both runs again
  std::optional<TensorDivergence> first;
  /// Common steps of any group but /eval, and steps whose tensors can be
  /// compared. These have digests in both logs or, with a tolerance,
  /// statistics.
  int64_t steps = 0;
  std::vector<int64_t> tensor_steps;
  std::vector<std::string> tensors_only_a;
  std::vector<std::string> tensors_only_b;
  std::vector<std::string> parameters_only_a;
  std::vector<std::string> parameters_only_b;
  /// These columns were not compared: "/moe/expert_bias: 5 against 6 experts".
  std::vector<std::string> other_extents;

  /// Returns whether the first difference could be in a tensor of an earlier
  /// operation than the named one. That is so if not all tensors of that step,
  /// or of the steps since the last equal one, were logged.
  bool HidesTensors() const;
};

/// Walks the steps that both logs have, ascending. In each step it compares
/// what is reproducible, in this order (runlog::Turn): tensors in the order of
/// computation (exact: their digests; bounded: the statistics below), routing
/// digests (exact only), loss, gradient norms of parameters, the norm of all
/// parameters, update ratios. If exact, expert biases and every remaining
/// column follow. If nothing of these differs, evaluations are compared, since
/// they are forward passes of their own, one of them before step 1. Values that
/// one log lacks are passed over, and so are values that travelled over another
/// mesh or exchange. Names that only one log has and columns of different
/// extents are listed.
///
/// Bounded statistics are l2_norm, mean, cur_amax and std. If both logs have
/// them, the quantisation's statistics along rows and columns are compared,
/// too: mse, underflows% and saturated% (the tolerance is of 100 %),
/// scale_inv_min and scale_inv_max.
///
/// Special  exact: NaN equals a NaN of the same bits, -0 differs from +0.
///          bounded: NaN equals only NaN, and an infinity only itself.
///          A tensor without a digest in only one log differs. A tensor without
///          statistics at a step (`numel` is NaN) is passed over there, unless
///          both runs were asked for the same statistics.
DivergenceReport FindDivergence(const runlog::RunLog& a,
                                const runlog::RunLog& b,
                                const DivergenceOptions& options = {});

}  // namespace isoloss::compare
