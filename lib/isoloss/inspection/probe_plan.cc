#include "isoloss/inspection/probe_plan.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/campaign/arms.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/system/interrupt.h"

namespace isoloss::inspection {
namespace {

void CheckSteps(const char* option, int64_t steps,
                const train::Experiment& experiment) {
  if (steps <= experiment.train.steps) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} names step {}, but the experiment has {}. Give fewer.",
             experiment.path.string(), option, steps, experiment.train.steps);
}

}  // namespace

std::filesystem::path ProbeRequest::Folder(
    const train::Experiment& experiment) const {
  return out.empty()
             ? campaign::ResultsFolder(experiment, "") / logs::kProbeFolder
             : out;
}

void CheckProbe(const ProbeRequest& request,
                const train::Experiment& experiment) {
  campaign::RequireOneProcess("probe", "the oracle needs all tensors in one");
  CheckSteps("--steps", request.steps, experiment);
  CheckSteps("--plain-steps", request.plain_steps, experiment);
  for (const int64_t step : request.reference_steps) {
    CheckSteps("--reference-steps", step, experiment);
  }
}

step_checks::ProbeOptions ProbeOptionsOf(const ProbeRequest& request,
                                         const train::Experiment& experiment,
                                         const train::Arm& arm) {
  step_checks::ProbeOptions options;
  options.steps = request.steps > 0
                      ? request.steps
                      : std::min(options.steps, experiment.train.steps);
  options.plain_steps = request.plain_steps;
  options.full = request.full;
  options.cases = request.cases;
  options.hooks.stop = &system::InterruptFlag();
  if (request.reference.empty()) return options;
  if (request.reference == arm.name && request.arm.empty()) return options;
  options.reference = &train::ArmNamed(experiment, request.reference);
  if (!request.reference_steps.empty()) {
    options.reference_steps = request.reference_steps;
  }
  return options;
}

}  // namespace isoloss::inspection
