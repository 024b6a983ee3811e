// Shows one run at a glance, for `isoloss show`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/document.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// Holds a parameter and one of its quantities.
struct NamedValue {
  std::string name;
  double value = 0;
};

/// Describes one MoE layer at the last step; empty: not logged.
struct LayerSummary {
  int64_t layer = 0;
  std::optional<double> router_entropy_nats;
  std::optional<double> load_max_over_mean;
  std::optional<int64_t> experts_without_tokens;
  std::optional<int64_t> dropped_tokens;
  std::optional<int64_t> routing_flips;
};

/// Describes one tensor at one step. It has a digest in hexadecimal ("" if
/// there is none) and the statistics of kTensorStatistics, NaN where it lacks
/// one.
struct TensorSummary {
  std::string name;
  std::string digest;
  std::vector<double> statistics;
};

struct RunSummary {
  int64_t steps = 0;
  int64_t last_step = 0;
  std::optional<double> loss_nats;
  std::optional<double> grad_norm;
  std::optional<double> held_out_loss_nats;
  /// Counts the steps with a loss or gradient that is NaN or infinite, and
  /// keeps the first one.
  int64_t nonfinite_steps = 0;
  std::optional<int64_t> first_nonfinite_step;
  std::optional<int64_t> parameter_step;
  std::vector<NamedValue> top_grad_norms;     ///< descending
  std::vector<NamedValue> top_update_ratios;  ///< descending
  std::optional<int64_t> moe_step;
  std::vector<LayerSummary> layers;
  std::optional<int64_t> tensor_step;
  std::vector<TensorSummary> tensors;  ///< in the order of computation
};

struct RunSummaryOptions {
  /// Takes parameters and tensors of this step. Empty: the last logged step of
  /// each kind, for tensors the last step with statistics if there is any.
  std::optional<int64_t> step;
  /// Decides which tensors to list; empty: none.
  std::function<bool(std::string_view name)> wants_tensor;
  size_t top = 5;  ///< parameters to list
};

/// Summarises a run.
/// Errors   ConfigError if the log does not have the step. It is also thrown if
///          tensors are wanted and the log has none at that step, or none of a
///          wanted name; it lists the existing ones.
RunSummary SummarizeRun(const runlog::RunLog& log,
                        const RunSummaryOptions& options);

/// Returns the busiest expert's count over the mean of all experts; empty for
/// no tokens.
std::optional<double> LoadMaxOverMean(const int64_t* tokens, size_t experts);

/// Shows non-finite values, parameters, layers and tensors. Parts that the log
/// lacks are left out.
document::Document DocumentOf(const RunSummary& summary);

}  // namespace isoloss::report
