// Collects one run's tensors, experts and exchange for the report page.
#pragma once

#include <cstddef>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/report/page/values.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// A page shows at most this number of steps with statistics of tensors.
inline constexpr size_t kMostTensorSteps = 12;

// Each result is null if the log has nothing of its kind. Each function takes
// at most `bytes` of the budget, and notes what it leaves out of `arm`.

/// Returns statistics of tensors at up to kMostTensorSteps steps, fewer if
/// there is no room. The histograms of their E8M0 scales come from as many of
/// these steps as fit, the last step first.
document::Json TensorsJson(const runlog::RunLog& log, const std::string& arm,
                           size_t bytes, PageBudget& budget);

/// Returns the tokens of each expert and the entropy of the router, as means
/// over bins of steps.
document::Json MoeJson(const runlog::RunLog& log, const std::string& arm,
                       size_t bytes, PageBudget& budget);

/// Returns the bytes from rank to rank, and the sums over all steps.
document::Json ExchangeJson(const runlog::RunLog& log, const std::string& arm,
                            size_t bytes, PageBudget& budget);

}  // namespace isoloss::report
