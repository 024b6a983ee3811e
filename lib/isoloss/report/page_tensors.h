// Collects one run's tensors, experts and exchange for the report page.
#pragma once

#include <cstddef>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/report/page_values.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// Steps with statistics of tensors that a page shows.
inline constexpr size_t kMostTensorSteps = 12;

// Each is null if the log has nothing of the kind, takes at most `bytes` of the
// budget, and notes what it leaves out of `arm`.

/// Statistics of tensors at up to kMostTensorSteps steps, fewer if there is no
/// room, and the histograms of their E8M0 scales at as many of these, the last
/// one first.
document::Json TensorsJson(const runlog::RunLog& log, const std::string& arm,
                           size_t bytes, PageBudget& budget);

/// Tokens of each expert and the entropy of the router, means over bins of
/// steps.
document::Json MoeJson(const runlog::RunLog& log, const std::string& arm,
                       size_t bytes, PageBudget& budget);

/// Bytes from rank to rank, and sums over all steps.
document::Json ExchangeJson(const runlog::RunLog& log, const std::string& arm,
                            size_t bytes, PageBudget& budget);

}  // namespace isoloss::report
