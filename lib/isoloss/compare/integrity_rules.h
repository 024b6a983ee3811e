// Declares what the rules of integrity.cc share; it is not for users.
#pragma once

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "isoloss/compare/integrity.h"

namespace isoloss::compare {

using Findings = std::vector<Finding>;

template <typename... Args>
void Report(Findings& findings, Severity severity,
            fmt::format_string<Args...> format, Args&&... args) {
  findings.push_back(
      {severity, fmt::format(format, std::forward<Args>(args)...)});
}

/// Finds faults in the steps of a run that another program trained.
void ReportForeignSteps(const Run& run, Findings& findings);
/// Reports loads of experts that do not add up in another program's run.
void ReportLoads(const Run& run, Findings& findings);
/// Reports what else both runs of a pair of another program must share.
void ReportUnlikeCurves(const SeedPair& pair, Findings& findings);
/// Reports a part that two different runs share though no two trainings do:
/// final weights, a stretch of losses or, for one seed, of gradient norms.
/// Returns whether it reported one.
bool ReportEqualParts(const Run& one, const Run& other, Findings& findings);
/// Reports equal last held-out losses of the pairs.
void ReportEqualHeldOut(const Pairing& pairing, Findings& findings);

Findings CheckSeeds(const Pairing& pairing, Question question);
Findings CheckTraining(const Pairing& pairing, Question question);
Findings CheckSchedule(const Pairing& pairing, Question question);
Findings CheckRecipeRan(const Pairing& pairing, Question question);
Findings CheckDeclaredChange(const Pairing& pairing, Question question);

}  // namespace isoloss::compare
