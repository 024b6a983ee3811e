#include "experiment_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
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
  std::string cost;
  for (const runlog::Event& event : log.events) {
    if (event.kind == "cost") cost = "; " + event.text;
  }
  return fmt::format("{} steps, last loss {:.4f} nats{}{}",
                     log.steps.step.back(), log.steps.loss_nats.back(),
                     log.provenance.complete ? "" : ", ended early", cost);
}

/// torchtitan's line, behind the run's name; parsers of such lines skip what
/// stands before `step:`.
void PrintStep(const std::string& run, const runlog::StepRow& row) {
  fmt::print(
      "[{}] step: {:2}  loss: {:8.5f}  grad_norm: {:7.4f}  tps: {:.0f}\n", run,
      row.step, row.loss_nats, row.grad_norm, row.tokens_per_second);
  std::fflush(stdout);
}

/// Events that a user should hear of while the run goes on.
bool IsNews(const runlog::Event& event) {
  return event.kind == "resume" || event.kind == "damage" ||
         event.kind == "abort";
}

std::string NewsOf(const runlog::Event& event) {
  return event.kind == "resume" ? "resumed " + event.text : event.text;
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
  CLI::Option* again =
      app.add_flag("--resume", resume,
                   "Go on with unfinished runs in the folder, from their last "
                   "checkpoint, and keep whole ones");
  app.add_flag("--restart", restart,
               "Discard unfinished runs in the folder and start anew")
      ->excludes(again);
}

train::Leftovers ExperimentArguments::leftovers() const {
  if (resume) return train::Leftovers::kResume;
  return restart ? train::Leftovers::kDiscard : train::Leftovers::kRefuse;
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

namespace {

/// Stops all runs on a signal, or once somebody gives a reason.
class StopFlag {
 public:
  using Ask = decltype(TrainArmsOptions::why_stop);

  explicit StopFlag(const Ask& ask) : ask_(ask), signal_(InterruptFlag()) {}

  const std::atomic<bool>* flag() const { return ask_ ? &stop_ : &signal_; }
  bool signalled() const { return signal_.load(); }
  const std::optional<std::string>& reason() const { return reason_; }

  void AfterStep(const train::Run& run, const runlog::StepRow& row) {
    if (!ask_) return;
    const std::lock_guard lock(mutex_);
    if (auto reason = ask_(run, row); reason && !reason_) reason_ = reason;
    stop_.store(reason_ || signal_.load());
  }

 private:
  const Ask& ask_;
  const std::atomic<bool>& signal_;
  std::mutex mutex_;
  std::atomic<bool> stop_{false};
  std::optional<std::string> reason_;
};

bool IsPartial(const std::filesystem::path& log) {
  return log.empty() || log.stem().extension() == ".partial";
}

}  // namespace

ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const std::filesystem::path& folder,
                       const TrainArmsOptions& options) {
  StopFlag stop(options.why_stop);
  const std::vector<train::Run> runs =
      train::PlanRuns(experiment, options.only_arm);
  const corpus::Corpus corpus = corpus::LoadCorpus(
      experiment.corpus_source, experiment.data.held_out_share);

  std::vector<std::string> names;
  for (const train::Run& run : runs) names.push_back(run.Name());
  const bool bars = SpeaksForTheJob() && !options.print_steps;
  Progress progress(bars ? names : std::vector<std::string>(),
                    experiment.train.steps);
  train::RunnerHooks hooks;
  hooks.on_step = [&](size_t run, const runlog::StepRow& row) {
    stop.AfterStep(runs[run], row);
    if (options.print_steps) {
      PrintStep(names[run], row);
    } else {
      progress.Step(run, row.step, row.loss_nats);
    }
  };
  hooks.on_event = [&](size_t run, const runlog::Event& event) {
    if (IsNews(event)) progress.Say(names[run] + ": " + NewsOf(event));
  };
  std::atomic<bool> aborted{false};
  hooks.on_accepted = options.on_accepted;
  hooks.on_finish = [&](size_t run, const runlog::RunLog& log) {
    if (!log.events.empty() && log.events.back().kind == "abort") {
      aborted.store(true);
    }
    if (bars) progress.Finish(run, Outcome(log));
  };
  hooks.stop = stop.flag();
  if (options.run_hooks) {
    hooks.run_hooks = [&](size_t run) { return options.run_hooks(runs[run]); };
  }
  ExecutedRuns executed;
  executed.logs = train::ExecuteRuns(experiment, runs, corpus, folder,
                                     options.leftovers, hooks);
  executed.stopped_because = stop.reason();
  // By what the runs left, too: of several processes another one may have got
  // the signal.
  executed.interrupted =
      !executed.stopped_because &&
      (stop.signalled() ||
       std::any_of(executed.logs.begin(), executed.logs.end(), IsPartial));
  executed.aborted = aborted.load();
  progress.Clear();
  if (executed.interrupted && SpeaksForTheJob()) {
    fmt::print(stderr,
               "isoloss: interrupted by a signal, so no verdict. Finished runs "
               "are in {}/*.h5, what others had in *.partial.h5. The same "
               "command with --resume goes on.\n",
               folder.string());
  }
  return executed;
}

}  // namespace isoloss::cli
