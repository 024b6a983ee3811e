#include "isoloss/goldens/golden_ci.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/base/build_info.h"
#include "isoloss/verdicts/ci_files.h"

namespace isoloss::goldens {
namespace {

using document::Check;
using document::Status;

Status StatusOf(gate::Outcome outcome) {
  return system::StatusOf(
      static_cast<system::ExitCode>(gate::ExitCode(outcome)));
}

std::string Remedy(const CheckedGoldens& checked) {
  return fmt::format(
      "if that is meant: isoloss golden update {} --reason "
      "\"...\"",
      checked.folder.string());
}

Check CaseOf(const CheckedGoldens& checked, const ExactLane& lane, bool exact) {
  const bool same = lane.Reproduced();
  return {.group = "exact",
          .name = lane.golden,
          .title = fmt::format("every bit of {}", lane.golden),
          .status = same    ? Status::kPass
                    : exact ? Status::kFailure
                            : Status::kNoticed,
          .statement =
              same ? fmt::format("every bit is the golden's ({} steps, {} "
                                 "tensors in {} of them)",
                                 lane.steps, lane.tensors, lane.tensor_steps)
                   : fmt::format("bits drifted: {}", lane.Drift()),
          .next = same ? "" : Remedy(checked)};
}

Check CaseOf(const LaneOutcome& lane) {
  const bool passed = lane.outcome == LaneOutcome::kPass;
  const bool failed = lane.outcome == LaneOutcome::kFail;
  return {.group = "lane",
          .name = lane.lane,
          .title = fmt::format("lane {}", lane.lane),
          .status = passed   ? Status::kPass
                    : failed ? Status::kFailure
                             : Status::kSkipped,
          .statement = passed   ? "the same bits, executed otherwise"
                       : failed ? lane.why
                                : fmt::format("not run: {}", lane.why)};
}

Check CaseOf(const ArmOutcome& arm) {
  return {.group = "statistical",
          .name = arm.arm,
          .title =
              fmt::format("arm {} is still the run that was approved", arm.arm),
          .status = StatusOf(arm.outcome),
          .statement = arm.levels};
}

std::string Headline(const CheckedGoldens& checked) {
  const auto reproduced =
      std::ranges::count_if(checked.exact, &ExactLane::Reproduced);
  return fmt::format("goldens of {}: {} of {} reproduced bit for bit.",
                     checked.folder.string(), reproduced, checked.exact.size());
}

}  // namespace

system::ExitCode CodeOf(const CheckedGoldens& checked, bool exact) {
  return checked.drift && exact
             ? system::Worse(checked.code, system::ExitCode::kFail)
             : checked.code;
}

document::Result ResultOf(const CheckedGoldens& checked, bool exact) {
  const system::ExitCode code = CodeOf(checked, exact);
  document::Result result{
      .name = fmt::format("golden {}", checked.folder.string()),
      .file = verdicts::RepositoryPath(checked.folder / "history.toml"),
      .status = system::StatusOf(code),
      .outcome = system::OutcomeName(code),
      .exit_code = static_cast<int>(code),
      .headline = Headline(checked)};
  const BuildInfo build = GetBuildInfo();
  result.facts = {{"program", "isoloss " + build.version},
                  {"commit", build.commit}};
  for (const ExactLane& lane : checked.exact) {
    result.checks.push_back(CaseOf(checked, lane, exact));
  }
  for (const LaneOutcome& lane : checked.lanes) {
    result.checks.push_back(CaseOf(lane));
  }
  for (const ArmOutcome& arm : checked.statistical) {
    result.checks.push_back(CaseOf(arm));
  }
  for (const Check& one : result.checks) {
    if (!document::IsRed(one.status) && one.status != Status::kNoticed)
      continue;
    result.reasons.push_back(fmt::format("{}: {}", one.title, one.statement));
  }
  if (checked.drift) result.next = {Remedy(checked)};
  return result;
}

}  // namespace isoloss::goldens
