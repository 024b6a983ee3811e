#include "isoloss/campaign/train_arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/new_folder.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/dry_run.h"
#include "isoloss/campaign/job_file.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/report/progress.h"
#include "isoloss/system/interrupt.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/step_columns.h"
#include "isoloss/train/trainer.h"
#include "isoloss/transport/launch.h"
#include "isoloss/verdicts/judge_arms.h"

namespace isoloss::campaign {
namespace {

/// Returns whether looking at tensors took more than a tenth of the run's time.
/// The text of the event ends with the share: ", 1.3 % of the run".
bool IsLargeCost(const runlog::Event& event) {
  constexpr double kTenth = 10;
  const size_t share = event.text.rfind(", ");
  return event.kind == "cost" && share != std::string::npos &&
         std::strtod(event.text.c_str() + share + 2, nullptr) > kTenth;
}

std::string Outcome(const runlog::RunLog& log) {
  if (log.steps.loss_nats.empty()) return "no step";
  std::string cost;
  for (const runlog::Event& event : log.events) {
    if (IsLargeCost(event)) cost = "; " + event.text;
  }
  return fmt::format("{} steps, last loss {:.4f} nats{}{}",
                     log.steps.step.back(), log.steps.loss_nats.back(),
                     log.provenance.complete ? "" : ", ended early", cost);
}

/// Prints torchtitan's line after the run's name. Parsers of such lines skip
/// everything before `step:`.
void PrintStep(const std::string& run, const runlog::StepRow& row) {
  fmt::print(
      "[{}] step: {:2}  loss: {:8.5f}  grad_norm: {:7.4f}  tps: {:.0f}\n", run,
      row.step, row.loss_nats, row.grad_norm, row.tokens_per_second);
  std::fflush(stdout);
}

/// A user should hear of these events while the run goes on.
bool IsNews(const runlog::Event& event) {
  return event.kind == train::kResumeEvent || event.kind == "damage" ||
         event.kind == "abort";
}

std::string NewsOf(const runlog::Event& event) {
  return event.kind == train::kResumeEvent ? "resumed " + event.text
                                           : event.text;
}

/// Stops all runs on a signal, once a pair is hopeless, or after a step.
class StopFlag {
 public:
  StopFlag(verdicts::EarlyAbort* watch, std::optional<int64_t> last)
      : watch_(watch), last_(last), signal_(system::InterruptFlag()) {}

  const std::atomic<bool>* flag() const {
    return watch_ != nullptr || last_ ? &stop_ : &signal_;
  }
  bool signalled() const { return signal_.load(); }
  /// Returns the run that finished the last step first.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }

  void AfterStep(const train::Run& run, const runlog::StepRow& row) {
    if (row.step == last_) {
      const std::lock_guard lock(mutex_);
      if (!stopped_by_) stopped_by_ = run.Name();
      stop_.store(true);
    }
    Watch(run, row);
  }
  /// Takes a step of any run, even of one that had finished before.
  void Watch(const train::Run& run, const runlog::StepRow& row) {
    const bool hopeless = watch_ != nullptr && watch_->Add(run, row);
    if (hopeless || signal_.load()) stop_.store(true);
  }

 private:
  verdicts::EarlyAbort* const watch_;
  const std::optional<int64_t> last_;
  const std::atomic<bool>& signal_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::optional<std::string> stopped_by_;
};

/// Shows the runs of one call of TrainArms, and notes how they end.
class TrainedArms {
 public:
  TrainedArms(const train::Experiment& experiment, const TrainingPlan& plan,
              const std::filesystem::path& folder,
              const TrainArmsOptions& options)
      : experiment_(experiment),
        plan_(plan),
        folder_(folder),
        options_(options),
        names_(NamesOf(plan.runs)),
        bars_(SpeaksForTheJob() && !options.print_steps && !options.quiet),
        stop_(options.watch, options.stop_after),
        progress_(bars_ ? names_ : std::vector<std::string>(),
                  experiment.train.steps) {}

  ExecutedRuns Execute() {
    ExecutedRuns executed{train::ExecuteRuns(experiment_, plan_.runs,
                                             plan_.corpus, folder_,
                                             options_.leftovers, Hooks())};
    if (options_.watch != nullptr) {
      executed.hopeless = options_.watch->hopeless();
    }
    executed.stopped_by = stop_.stopped_by();
    // The logs tell it, too: of several processes another one may have got the
    // signal.
    executed.interrupted =
        !executed.hopeless && !executed.stopped_by &&
        (stop_.signalled() ||
         std::ranges::any_of(executed.logs, [](const auto& log) {
           return log.empty() || logs::IsPartial(log);
         }));
    executed.aborted = aborted_.load();
    progress_.Clear();
    return executed;
  }

 private:
  static std::vector<std::string> NamesOf(const std::vector<train::Run>& runs) {
    std::vector<std::string> names;
    for (const train::Run& run : runs) names.push_back(run.Name());
    return names;
  }

  train::RunnerHooks Hooks() {
    train::RunnerHooks hooks;
    hooks.on_step = [this](size_t run, const runlog::StepRow& row) {
      stop_.AfterStep(plan_.runs[run], row);
      if (options_.print_steps) {
        PrintStep(names_[run], row);
      } else if (bars_) {
        progress_.Step(run, row.step, row.loss_nats);
      }
    };
    hooks.on_event = [this](size_t run, const runlog::Event& event) {
      if (IsNews(event) && !options_.quiet) {
        progress_.Say(names_[run] + ": " + NewsOf(event));
      }
    };
    hooks.on_kept = [this](size_t run, const runlog::RunLog& log) {
      Keep(run, log);
    };
    hooks.on_accepted = [this](size_t missing, const std::string& discarded) {
      if (SpeaksForTheJob()) Begin(missing, discarded);
    };
    hooks.on_finish = [this](size_t run, const runlog::RunLog& log) {
      if (train::WasAborted(log)) aborted_.store(true);
      if (bars_) progress_.Finish(run, Outcome(log));
    };
    hooks.stop = stop_.flag();
    if (options_.run_hooks) {
      hooks.run_hooks = [this](size_t run) {
        return options_.run_hooks(plan_.runs[run]);
      };
    }
    return hooks;
  }

  /// A run that had finished before.
  void Keep(size_t run, const runlog::RunLog& log) {
    kept_.emplace_back(run, Outcome(log));
    if (train::WasAborted(log)) aborted_.store(true);
    for (size_t i = 0; options_.watch && i < log.steps.step.size(); ++i) {
      stop_.Watch(plan_.runs[run], train::RowAt(log.steps, i));
    }
  }

  /// All runs are accepted, and `missing` of them will be trained.
  void Begin(size_t missing, const std::string& discarded) {
    if (!options_.quiet) {
      if (!discarded.empty()) {
        progress_.Say(fmt::format("{}: --restart discards {}.",
                                  folder_.string(), discarded));
      }
      for (const auto& [run, outcome] : kept_) {
        progress_.Say(names_[run] + ": kept, as it is finished: " + outcome);
        if (bars_) progress_.Skip(run);
      }
    }
    // An earlier verdict must not stand beside logs that it was not given on.
    if (options_.judged || missing > 0) {
      verdicts::RemoveVerdicts(experiment_, folder_);
    }
    if (missing > 0) {
      made_.emplace(folder_, "Choose another one with --out.");
      job_.emplace(folder_, JobPlan{experiment_.train.steps, names_});
    }
  }

  const train::Experiment& experiment_;
  const TrainingPlan& plan_;
  const std::filesystem::path& folder_;
  const TrainArmsOptions& options_;
  const std::vector<std::string> names_;
  const bool bars_;
  StopFlag stop_;
  report::Progress progress_;
  std::atomic<bool> aborted_{false};
  std::optional<NewFolder> made_;  ///< goes away after the files in it
  std::optional<JobFile> job_;
  std::vector<std::pair<size_t, std::string>> kept_;  ///< run, its outcome
};

}  // namespace

bool SpeaksForTheJob() { return transport::DetectLaunch().process == 0; }

void RequireOneProcess(const char* command, const char* but) {
  const int processes = transport::DetectLaunch().processes;
  if (processes == 1) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it was started as {} processes, but {}. Start it without a "
             "launcher.",
             command, processes, but);
}

TrainingPlan PlanTraining(const train::Experiment& experiment,
                          const std::string& only_arm) {
  return {train::PlanRuns(experiment, only_arm),
          train::LoadCorpusOf(experiment)};
}

ExecutedRuns TrainArms(const train::Experiment& experiment,
                       const TrainingPlan& plan,
                       const std::filesystem::path& folder,
                       const TrainArmsOptions& options) {
  if (SpeaksForTheJob()) verdicts::CheckVerdicts(experiment, folder);
  if (options.dry_run) {
    DryRun(experiment, plan.runs, plan.corpus, folder, options.run_hooks,
           options.leftovers);
    return {};
  }
  ExecutedRuns executed =
      TrainedArms(experiment, plan, folder, options).Execute();
  if (executed.interrupted && SpeaksForTheJob() && !options.quiet &&
      !options.how_to_go_on.empty()) {
    fmt::print(stderr,
               "isoloss: interrupted by a signal, so no verdict. Finished runs "
               "are in {}/*.h5, what others had in *.partial.h5. The same "
               "command with {} goes on.\n",
               Printable(folder.string()), options.how_to_go_on);
  }
  return executed;
}

}  // namespace isoloss::campaign
