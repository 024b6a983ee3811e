#include "isoloss/campaign/golden_ci.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/campaign/ci_files.h"

namespace isoloss::campaign {
namespace {

using report::CiCase;
using report::CiStatus;

CiStatus StatusOf(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return CiStatus::kPass;
    case ExitCode::kInconclusive:
      return CiStatus::kInconclusive;
    case ExitCode::kFail:
      return CiStatus::kFailure;
    default:
      return CiStatus::kError;
  }
}

CiStatus StatusOf(gate::Outcome outcome) {
  return StatusOf(static_cast<ExitCode>(gate::ExitCode(outcome)));
}

std::string Remedy(const CheckedGoldens& checked) {
  return fmt::format(
      "if that is meant: isoloss golden update {} --reason "
      "\"...\"",
      checked.folder.string());
}

CiCase CaseOf(const CheckedGoldens& checked, const ExactLane& lane,
              bool exact) {
  const bool same = lane.Reproduced();
  return {.group = "exact",
          .name = lane.golden,
          .title = fmt::format("every bit of {}", lane.golden),
          .status = same    ? CiStatus::kPass
                    : exact ? CiStatus::kFailure
                            : CiStatus::kNoticed,
          .statement =
              same ? fmt::format("every bit is the golden's ({} steps, {} "
                                 "tensors in {} of them)",
                                 lane.steps, lane.tensors, lane.tensor_steps)
                   : fmt::format("bits drifted: {}", lane.Drift()),
          .next = same ? "" : Remedy(checked)};
}

CiCase CaseOf(const LaneOutcome& lane) {
  const bool passed = lane.outcome == LaneOutcome::kPass;
  const bool failed = lane.outcome == LaneOutcome::kFail;
  return {.group = "lane",
          .name = lane.lane,
          .title = fmt::format("lane {}", lane.lane),
          .status = passed   ? CiStatus::kPass
                    : failed ? CiStatus::kFailure
                             : CiStatus::kSkipped,
          .statement = passed   ? "the same bits, executed otherwise"
                       : failed ? lane.why
                                : fmt::format("not run: {}", lane.why)};
}

CiCase CaseOf(const ArmOutcome& arm) {
  return {.group = "statistical",
          .name = arm.arm,
          .title =
              fmt::format("arm {} is still the run that was approved", arm.arm),
          .status = StatusOf(arm.outcome),
          .statement = arm.levels};
}

std::string Headline(const CheckedGoldens& checked,
                     const std::string& outcome) {
  const auto reproduced =
      std::ranges::count_if(checked.exact, &ExactLane::Reproduced);
  return fmt::format("{}: goldens of {}: {} of {} reproduced bit for bit.",
                     outcome, checked.folder.string(), reproduced,
                     checked.exact.size());
}

}  // namespace

ExitCode CodeOf(const CheckedGoldens& checked, bool exact) {
  return checked.drift && exact ? Worse(checked.code, ExitCode::kFail)
                                : checked.code;
}

report::CiSuite SuiteOf(const CheckedGoldens& checked, bool exact) {
  const ExitCode code = CodeOf(checked, exact);
  const CiStatus status = StatusOf(code);
  const std::string outcome(
      status == CiStatus::kError
          ? "INVALID"
          : gate::OutcomeName(status == CiStatus::kPass ? gate::Outcome::kPass
                              : status == CiStatus::kFailure
                                  ? gate::Outcome::kFail
                                  : gate::Outcome::kInconclusive));
  report::CiSuite suite{
      .name = fmt::format("golden {}", checked.folder.string()),
      .file = RepositoryPath(checked.folder / "history.toml"),
      .status = status,
      .outcome = outcome,
      .exit_code = static_cast<int>(code),
      .headline = Headline(checked, outcome)};
  const BuildInfo build = GetBuildInfo();
  suite.facts = {{"program", "isoloss " + build.version},
                 {"commit", build.commit}};
  for (const ExactLane& lane : checked.exact) {
    suite.cases.push_back(CaseOf(checked, lane, exact));
  }
  for (const LaneOutcome& lane : checked.lanes) {
    suite.cases.push_back(CaseOf(lane));
  }
  for (const ArmOutcome& arm : checked.statistical) {
    suite.cases.push_back(CaseOf(arm));
  }
  for (const CiCase& one : suite.cases) {
    if (!report::IsRed(one.status) && one.status != CiStatus::kNoticed)
      continue;
    suite.why.push_back(fmt::format("{}: {}", one.title, one.statement));
  }
  if (checked.drift) suite.next = {Remedy(checked)};
  return suite;
}

}  // namespace isoloss::campaign
