#include "isoloss/verify/probe_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/campaign/job_queue.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/step_checks/probe.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/system/output_file.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/runner.h"

namespace isoloss::verify {

namespace fs = std::filesystem;

PlainSteps PlainStepsDue(const std::vector<compare::Run>& runs,
                         const std::vector<compare::Run>& approved,
                         const gate::Policy& policy) {
  PlainSteps steps;
  for (const compare::Run& run : runs) {
    for (const compare::Run& other : approved) {
      const auto& provenance = run.log.provenance;
      if (provenance.arm != other.log.provenance.arm ||
          provenance.seed != other.log.provenance.seed) {
        continue;
      }
      int64_t& most = steps[provenance.arm];
      most = std::max(most, gate::PlainStepsDue(other.log, run.log, policy));
    }
  }
  return steps;
}

void CheckProbeOutput(const fs::path& file, runlog::Provenance planned) {
  std::optional<runlog::ProbeLog> found;
  system::CheckOutput(file, {}, "probe log",
                      [&found](const fs::path& existing) {
                        found = runlog::ReadProbeLog(existing);
                        return true;
                      });
  if (!found) return;
  planned.numerics_digest = found->provenance.numerics_digest;
  const std::string difference =
      train::RunDifference(found->provenance, planned);
  if (difference.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it is the probe log of another run, which this one would "
             "overwrite. Choose another folder with --out, or remove it. What "
             "differs:\n{}",
             file.string(), difference);
}

std::vector<std::string> ProbedCases(const gate::Policy& policy) {
  std::vector<std::string> cases = policy.probe_cases;
  if (std::ranges::count(cases, gate::kPlainCase) == 0) {
    cases.emplace(cases.begin(), gate::kPlainCase);
  }
  return cases;
}

fs::path ProbeFile(const fs::path& folder, const std::string& arm,
                   uint64_t seed) {
  return folder / fmt::format("{}-seed{}.probe.h5", arm, seed);
}

void CheckProbeOutputs(const train::Experiment& experiment,
                       const std::vector<std::string>& arms,
                       const corpus::Corpus& corpus, const fs::path& folder) {
  for (const std::string& arm : arms) {
    const uint64_t seed = experiment.train.seeds.front();
    const fs::path file = ProbeFile(folder / logs::kProbeFolder, arm, seed);
    if (!fs::exists(file)) continue;
    CheckProbeOutput(
        file, train::DescribePlannedRun(
                  experiment, train::ArmNamed(experiment, arm), seed, corpus));
  }
}

fs::path ProbeOneArm(const train::Experiment& experiment,
                     const std::string& arm, const corpus::Corpus& corpus,
                     const fs::path& folder, const ProbeSettings& settings,
                     Executor& executor) {
  const uint64_t seed = experiment.train.seeds.front();
  step_checks::ProbeOptions options;
  options.cases = settings.cases;
  if (settings.steps > 0) options.steps = settings.steps;
  options.make_hooks = settings.hooks;
  const auto due = settings.plain_steps.find(arm);
  if (due != settings.plain_steps.end()) options.plain_steps = due->second;
  options.hooks.stop = &system::InterruptFlag();
  if (!settings.reference.empty() && settings.reference != arm) {
    options.reference = &train::ArmNamed(experiment, settings.reference);
    std::erase_if(options.reference_steps,
                  [&](int64_t step) { return step > experiment.train.steps; });
  }
  fs::path file = ProbeFile(folder, arm, seed);
  runlog::WriteProbeLog(
      step_checks::ProbeArm(experiment, train::ArmNamed(experiment, arm), seed,
                            corpus, executor, options),
      file);
  return file;
}

ProbedRuns ProbeArms(const train::Experiment& experiment,
                     const corpus::Corpus& corpus,
                     const std::vector<std::string>& arms,
                     const fs::path& folder, const ProbeSettings& settings) {
  ProbedRuns probed;
  probed.files.resize(arms.size());
  const fs::path probes = folder / logs::kProbeFolder;
  fs::create_directories(probes);
  train::Experiment whole = experiment;
  const std::string title = train::TakeWholeBatches(whole).empty()
                                ? "probes"
                                : "probes in whole batches";
  const bool done = campaign::RunJobs(
      title, arms.size(), train::CrewFor(whole, arms.size()),
      system::InterruptFlag(), [&](size_t i, Executor& executor) {
        probed.files[i] =
            ProbeOneArm(whole, arms[i], corpus, probes, settings, executor);
      });
  probed.interrupted = !done || system::InterruptFlag().load();
  return probed;
}

}  // namespace isoloss::verify
