// Decides which arms the report page has, the purpose of each arm, and which
// arms are compared.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/document/json.h"
#include "isoloss/report/page/runs.h"
#include "isoloss/report/page/values.h"

namespace isoloss::report {

/// A page has at most this number of runs; further runs are left out.
inline constexpr size_t kMostPageRuns = 400;

/// Pairs two arms of the page, by seed. Points into the runs from which it was
/// made.
struct PagePair {
  std::string role = {};      ///< the candidate's
  std::string baseline = {};  ///< names of arms of the page
  std::string candidate = {};
  compare::Pairing pairing = {};
};

struct PageArms {
  std::vector<PageArm> arms;
  std::vector<PagePair> pairs;
};

/// Returns the arms of `runs`: the baseline, candidates, null arms, the
/// control, then the rest. Within one purpose the arms keep the order of their
/// first runs. The baseline is that of `verdicts`, else `baseline`, else the
/// arm that the first run calls so, else the first arm. With verdicts,
/// candidates, null arms and control are the arms that they name. Without a
/// verdict, a null arm is one by its log (compare::IsNullOf), and all further
/// arms are candidates. Each is paired with the baseline. For a verdict on a
/// regression the baseline is the arm's own runs in `approved`. Their arm is
/// then named "ARM approved", beside "ARM now".
/// Notes    which runs are left out.
PageArms ArmsOfPage(std::span<const compare::Run> runs,
                    std::span<const compare::Run> approved,
                    const std::vector<document::Json>& verdicts,
                    std::string_view baseline, PageBudget& budget);

/// Gives the arms of verdicts on a regression the names that the page uses.
void NameSides(const PageArms& page, std::vector<document::Json>& verdicts);

}  // namespace isoloss::report
