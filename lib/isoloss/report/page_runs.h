// Runs on the report page: their curves, thinned to what fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/report/page_values.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// All curves of a page together have at most this number of values.
inline constexpr size_t kMostCurveValues = 500'000;

/// A run as the page takes it; points into its log.
struct PageRun {
  std::string file = {};  ///< as messages show it
  const runlog::RunLog* log = nullptr;
};

/// One arm with its runs, ascending seeds.
struct PageArm {
  std::string name = {};  ///< by which pairs name it
  /// "baseline", "candidate", "null", "control", "approved" or "run".
  std::string role = {};
  std::vector<PageRun> runs = {};
};

/// Steps that a point of every curve is the mean of: the fewest with which all
/// curves of `arms` have at most kMostCurveValues values. 1: every step is
/// there.
int64_t CurveBin(const std::vector<PageArm>& arms);

/// Keys seed, file, complete, state, recorded_steps, step, bin, series,
/// held_out and events. A point stands at the first of its `bin` steps and is
/// not finite if a value of them is not; the last point may be of fewer. At
/// most `most_held_out` evaluations, evenly spread.
document::Json RunJson(const PageRun& run, int64_t bin, size_t most_held_out,
                       PageBudget& budget);

}  // namespace isoloss::report
