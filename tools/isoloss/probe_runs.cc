#include "probe_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "interrupt.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/gate/probe_completeness.h"
#include "isoloss/oracle/probe.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/train/runner.h"
#include "job_queue.h"

namespace isoloss::cli {

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

ProbedRuns ProbeArms(const train::Experiment& experiment,
                     const std::vector<std::string>& arms,
                     const fs::path& folder, const ProbeSettings& settings) {
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);
  ProbedRuns probed;
  probed.files.resize(arms.size());
  fs::create_directories(folder);
  const bool done = RunJobs(
      "probes", arms.size(), experiment.parallel.workers, InterruptFlag(),
      [&](size_t i, ThreadTeam& team) {
        const train::Run run = train::PlanRuns(experiment, arms[i]).front();
        oracle::ProbeOptions options;
        options.make_hooks = settings.hooks;
        const auto due = settings.plain_steps.find(arms[i]);
        if (due != settings.plain_steps.end()) {
          options.plain_steps = due->second;
        }
        options.hooks.stop = &InterruptFlag();
        if (!settings.reference.empty() && settings.reference != arms[i]) {
          options.reference =
              train::PlanRuns(experiment, settings.reference).front().arm;
        }
        probed.files[i] = folder / (run.Name() + ".probe.h5");
        runlog::WriteProbeLog(oracle::ProbeArm(experiment, *run.arm, run.seed,
                                               corpus, team, options),
                              probed.files[i]);
      });
  probed.interrupted = !done || InterruptFlag().load();
  return probed;
}

}  // namespace isoloss::cli
