#include "isoloss/train/run_again.h"

#include <fmt/format.h>

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/new_folder.h"
#include "isoloss/probes/dump.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/trainer.h"

namespace isoloss::train {
namespace {

namespace fs = std::filesystem;

const Arm& ArmOf(const Experiment& experiment,
                 const runlog::Provenance& recorded, const fs::path& log) {
  for (const Arm& arm : experiment.arms) {
    if (arm.name == recorded.arm) return arm;
  }
  ThrowError(ErrorKind::kConfig,
             "{}: it is a run of arm `{}`, but {} has no such arm. Give the "
             "experiment that it was made with.",
             log.string(), recorded.arm, experiment.path.string());
}

}  // namespace

fs::path RunAgain(const Experiment& experiment, const corpus::Corpus& corpus,
                  const runlog::Provenance& recorded, const fs::path& log_file,
                  int64_t step, const std::vector<std::string>& tensor_patterns,
                  const fs::path& folder, const RunAgainHooks& hooks) {
  const Arm& arm = ArmOf(experiment, recorded, log_file);
  if (step < 1 || step > experiment.train.steps) {
    ThrowError(ErrorKind::kConfig,
               "{}: step {} was asked for, but the run has steps 1 to {}. "
               "Choose one of them.",
               log_file.string(), step, experiment.train.steps);
  }
  Experiment closer = experiment;
  closer.log.statistics_first = closer.log.statistics_every = 0;
  closer.log.digests_first = closer.log.digests_every = 0;
  closer.log.dump_tensors = tensor_patterns;
  closer.log.dump_steps = {static_cast<uint64_t>(step)};

  std::atomic<bool> stop{false};
  bool reached = false;
  RunHooks run_hooks;
  run_hooks.stop = &stop;
  run_hooks.on_step = [&](const runlog::StepRow& row) {
    if (hooks.on_step) hooks.on_step(row.step);
    reached = row.step >= step;
    stop.store(reached || (hooks.stop != nullptr && hooks.stop->load()));
  };
  const runlog::RunPaths recorded_paths = runlog::RunPaths::Of(log_file);
  const std::string& name = recorded_paths.name;
  const runlog::RunPaths paths = {folder, name};
  if (fs::exists(paths.Log()) || IsUnfinished(paths) ||
      fs::exists(paths.Checkpoints())) {
    ThrowError(ErrorKind::kConfig,
               "{}: it holds files of a run {}, which running it again here "
               "would remove. Choose another folder with --out.",
               folder.string(), name);
  }
  const NewFolder made(folder, "Choose another one with --out.");
  const RunFiles files = {
      .paths = paths,
      .origin = RunOrigin{.log = log_file,
                          .recorded = recorded,
                          .checkpoints = recorded_paths.Checkpoints(),
                          .last_step = step - 1}};
  TrainRun(closer, arm, static_cast<uint64_t>(recorded.seed), corpus,
           *MakeExecutor(CrewFor(experiment, 1)), run_hooks, files);
  runlog::RemoveLiveFiles(files.paths);
  fs::remove(files.paths.Log());
  return reached
             ? folder / runlog::kDumpFolder / probes::DumpFileName(name, step)
             : fs::path();
}

}  // namespace isoloss::train
