#include "isoloss/campaign/arms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "isoloss/base/error.h"
#include "isoloss/train/runner.h"
#include "isoloss/verdicts/arm_roles.h"

namespace isoloss::campaign {

std::vector<const train::Arm*> ArmsNamed(const train::Experiment& experiment,
                                         const std::string& name) {
  // PlanRuns refuses a name that is no arm, and settings that no run can begin
  // with.
  const std::vector<train::Run> runs = train::PlanRuns(experiment, name);
  if (!name.empty()) return {runs.front().arm};
  std::vector<const train::Arm*> arms;
  for (const train::Arm& arm : experiment.arms) arms.push_back(&arm);
  return arms;
}

const train::Arm& OneArm(const train::Experiment& experiment,
                         const std::string& name) {
  const std::vector<const train::Arm*> arms = ArmsNamed(experiment, name);
  if (arms.size() <= 2) return *arms.back();
  const std::vector<std::string> candidates =
      verdicts::RolesOf(experiment).candidates;
  if (candidates.size() == 1) {
    return train::ArmNamed(experiment, candidates.front());
  }
  ThrowError(ErrorKind::kConfig,
             "{}: `arms` holds {} besides the baseline {} ({}), but this "
             "command takes one. Name it with --arm.",
             experiment.path.string(), candidates.size(), arms.front()->name,
             fmt::join(candidates, ", "));
}

}  // namespace isoloss::campaign
