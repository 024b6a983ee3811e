// What the rules of integrity.cc share: not for users of the module.
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

/// Of a run that another program trained.
void ReportForeignSteps(const Run& run, Findings& findings);
/// Of such runs, whether the loads of their experts add up.
void ReportLoads(const Run& run, Findings& findings);
/// Of such runs, what both of a pair must share besides.
void ReportUnlikeCurves(const SeedPair& pair, Findings& findings);
/// Whether two runs that differ share a part that no two trainings share: their
/// final weights, a stretch of losses, or, of one seed, of gradient norms. Then
/// it reports it.
bool ReportEqualParts(const Run& one, const Run& other, Findings& findings);
/// The same of the last held-out losses of the pairs.
void ReportEqualHeldOut(const Pairing& pairing, Findings& findings);

Findings CheckSeeds(const Pairing& pairing, Question question);
Findings CheckTraining(const Pairing& pairing, Question question);
Findings CheckSchedule(const Pairing& pairing, Question question);
Findings CheckRecipeRan(const Pairing& pairing, Question question);
Findings CheckDeclaredChange(const Pairing& pairing, Question question);

}  // namespace isoloss::compare
