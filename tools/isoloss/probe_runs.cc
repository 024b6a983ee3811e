#include "probe_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/oracle/probe.h"
#include "isoloss/runlog/probe_log.h"
#include "isoloss/train/runner.h"
#include "job_queue.h"

namespace isoloss::cli {

namespace fs = std::filesystem;

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

std::vector<fs::path> RunLogsIn(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> logs;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const fs::path& file = entry.path();
    // NAME.h5; others have NAME.partial.h5, NAME.probe.h5, NAME.dump-1.h5.
    if (file.extension() == ".h5" && !file.stem().has_extension()) {
      logs.push_back(file);
    }
  }
  if (logs.empty()) {
    ThrowError(
        ErrorKind::kConfig,
        "{}: the folder holds no run log (NAME.h5). Give another one, or "
        "the logs.",
        path.string());
  }
  std::ranges::sort(logs);
  return logs;
}

}  // namespace isoloss::cli
