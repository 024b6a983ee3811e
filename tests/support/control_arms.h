// Arms that are no candidates, beside those of synthetic_runs.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "synthetic_runs.h"

namespace isoloss::test_support {

/// Arm `null`, the baseline's recipe perturbed, with these paired differences.
inline std::vector<compare::Run> NullRuns(const std::vector<double>& percent) {
  std::vector<compare::Run> runs;
  for (size_t i = 0; i < percent.size(); ++i) {
    runs.push_back(
        SyntheticRun(false, static_cast<int64_t>(i) + 1, percent[i]));
    auto& p = runs.back().log.provenance;
    p.arm = "null";
    p.perturbation = "one_ulp, draw 1";
    p.initial_weights_digest += " and one ulp";
    p.final_weights_digest += " and one ulp";
    runs.back().file = "null_" + runs.back().file;
  }
  return runs;
}

/// Another arm of the candidate's recipe, with these paired differences.
inline std::vector<compare::Run> ArmRuns(const std::string& arm,
                                         const std::vector<double>& percent) {
  std::vector<compare::Run> runs;
  for (size_t i = 0; i < percent.size(); ++i) {
    runs.push_back(SyntheticRun(true, static_cast<int64_t>(i) + 1, percent[i]));
    runs.back().log.provenance.arm = arm;
    runs.back().file = arm + "_" + runs.back().file;
  }
  return runs;
}

}  // namespace isoloss::test_support
