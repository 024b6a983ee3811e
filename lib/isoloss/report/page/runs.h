// Shows runs on the report page, with curves that are thinned to fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/document/json.h"
#include "isoloss/report/page/values.h"
#include "isoloss/runlog/run_log.h"

namespace isoloss::report {

/// All curves of a page together have at most this number of values.
inline constexpr size_t kMostCurveValues = 500'000;

/// Refers to a run, as the page takes it; points into its log.
struct PageRun {
  std::string file = {};  ///< as messages show it
  const runlog::RunLog* log = nullptr;
};

/// Holds one arm with its runs, in ascending seeds.
struct PageArm {
  std::string name = {};  ///< by which pairs name it
  /// The role is "baseline", "candidate", "null", "control", "approved" or
  /// "run".
  std::string role = {};
  std::vector<PageRun> runs = {};
};

/// Returns the number of steps of which each point of every curve is the mean.
/// It is the smallest number with which all curves of `arms` have at most
/// kMostCurveValues values. 1: every step is there.
int64_t CurveBin(const std::vector<PageArm>& arms);

/// Returns the keys seed, file, complete, state, recorded_steps, step, bin,
/// series, held_out and events. A point stands at the first of its `bin` steps
/// and is not finite if one of their values is not; the last point may have
/// fewer steps. There are at most `most_held_out` evaluations, evenly spread.
document::Json RunJson(const PageRun& run, int64_t bin, size_t most_held_out,
                       PageBudget& budget);

}  // namespace isoloss::report
