// Decides which arms the report page has, the purpose of each, and which are
// compared.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/document/json.h"
#include "isoloss/report/page_runs.h"
#include "isoloss/report/page_values.h"

namespace isoloss::report {

/// Runs that a page has; further ones are left out.
inline constexpr size_t kMostPageRuns = 400;

/// Two arms of the page, by seed. Points into the runs it was made from.
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

/// The arms of `runs`: the baseline, candidates, null arms, the control,
/// others; of equal ones that of the first run first. The baseline is that of
/// `verdicts`, else `baseline`, else what the first run calls so, else the
/// first. With verdicts, candidates, null arms and control are those that they
/// name; without one, a null arm is one by what its log says
/// (compare::IsNullOf), and all others are candidates. Each is paired with the
/// baseline. Of a verdict on a regression the baseline is the arm's own runs in
/// `approved`, whose arm is named "ARM approved" here, beside "ARM
/// now".
/// Notes    which runs are left out.
PageArms ArmsOfPage(std::span<const compare::Run> runs,
                    std::span<const compare::Run> approved,
                    const std::vector<document::Json>& verdicts,
                    std::string_view baseline, PageBudget& budget);

/// Calls the arms of verdicts on a regression as the page does.
void NameSides(const PageArms& page, std::vector<document::Json>& verdicts);

}  // namespace isoloss::report
