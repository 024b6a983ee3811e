// Tells in a few numbers what a run's exchange moved.
#pragma once

#include <cstdint>
#include <optional>

#include "isoloss/runlog/run_log.h"

namespace isoloss::compare {

/// All numbers are means over steps; rows are means over MoE layers, too.
struct ExchangeSummary {
  int64_t nodes = 1;
  double bytes_to_self = 0;  ///< per step, payloads
  double bytes_within_nodes = 0;
  double bytes_between_nodes = 0;
  double rows_per_token = 0;       ///< one per slot, without drops
  double rank_rows_per_token = 0;  ///< one per rank
  double node_rows_per_token = 0;  ///< one per node
  /// busiest_rank_over_mean = rows of the busiest rank / mean of all ranks.
  double busiest_rank_over_mean = 0;
};

/// Empty if the log has no step of an exchange, lacks one of the columns, or
/// has no layer with experts.
std::optional<ExchangeSummary> SummarizeExchange(const runlog::RunLog& log);

}  // namespace isoloss::compare
