#include "experiment_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "interrupt.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/train/runner.h"
#include "isoloss/train/trainer.h"
#include "isoloss/transport/launch.h"
#include "progress.h"

namespace isoloss::cli {
namespace {

std::string Outcome(const runlog::RunLog& log) {
  if (log.steps.loss_nats.empty()) return "no step";
  return fmt::format("{} steps, last loss {:.4f} nats{}", log.steps.step.back(),
                     log.steps.loss_nats.back(),
                     log.provenance.complete ? "" : ", ended early");
}

}  // namespace

void ExperimentSource::Declare(CLI::App& app) {
  app.add_option("experiment", file, "Experiment file (TOML)")->required();
  app.add_option("--set", overrides,
                 "section.key=value; overrides the file, checked like it; "
                 "repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

train::Experiment ExperimentSource::Load() const {
  train::ExperimentInputs inputs;
  inputs.variables = {{"EIGEN3_INCLUDE_DIR", ISOLOSS_EIGEN3_INCLUDE_DIR}};
  inputs.overrides = overrides;
  return train::LoadExperiment(file, inputs);
}

void ExperimentArguments::Declare(CLI::App& app) {
  ExperimentSource::Declare(app);
  app.add_option("--out", out,
                 "Folder for the results (default: runs/<experiment name>)");
  app.add_flag("--dry-run", dry_run,
               "Check everything, print the resolved experiment and what each "
               "GEMM gets, and train nothing");
}

std::filesystem::path ExperimentArguments::Folder(
    const train::Experiment& experiment) const {
  if (!out.empty()) return out;
  return std::filesystem::path("runs") / experiment.name;
}

bool SpeaksForTheJob() { return transport::DetectLaunch().process == 0; }

void PrintPlan(const train::Experiment& experiment) {
  fmt::print("{}", experiment.ResolvedToml());
  const auto recipes = train::ResolveRecipes(experiment);
  train::CheckReplays(experiment);
  for (size_t i = 0; i < recipes.size(); ++i) {
    fmt::print("\n# arm {}: recipe {}\n{}", experiment.arms[i].name,
               recipes[i].recipe().name, recipes[i].Describe());
  }
}

ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const std::filesystem::path& folder,
                       const std::string& only_arm) {
  const std::atomic<bool>& interrupted = InterruptFlag();
  const std::vector<train::Run> runs = train::PlanRuns(experiment, only_arm);
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);

  std::vector<std::string> names;
  for (const train::Run& run : runs) names.push_back(run.Name());
  if (!SpeaksForTheJob()) names.clear();
  Progress progress(std::move(names), experiment.train.steps);
  train::RunnerHooks hooks;
  hooks.on_step = [&](size_t run, const runlog::StepRow& row) {
    progress.Step(run, row.step, row.loss_nats);
  };
  hooks.on_finish = [&](size_t run, const runlog::RunLog& log) {
    progress.Finish(run, Outcome(log));
  };
  hooks.stop = &interrupted;
  ExecutedRuns executed;
  executed.logs = train::ExecuteRuns(experiment, runs, corpus, folder, hooks);
  // By what the runs left, too: of several processes another one may have got
  // the signal.
  executed.interrupted =
      interrupted.load() ||
      std::any_of(executed.logs.begin(), executed.logs.end(),
                  [](const std::filesystem::path& log) {
                    return log.empty() || log.stem().extension() == ".partial";
                  });
  progress.Clear();
  if (executed.interrupted && SpeaksForTheJob()) {
    fmt::print(stderr,
               "isoloss: interrupted by a signal, so no verdict. Finished runs "
               "are in {}/*.h5, what others had in *.partial.h5.\n",
               folder.string());
  }
  return executed;
}

}  // namespace isoloss::cli
