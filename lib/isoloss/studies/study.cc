#include "isoloss/studies/study.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <mutex>
#include <numeric>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/log_files.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/compare/integrity.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/stats/divergence.h"
#include "isoloss/train/cost.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Seconds of the plan that count as if they had been trained.
constexpr double kPlanned = 20;

/// "ladder: 1.3M-4, 2 of 7; 3 of 32 runs, 41:00 left".
class StudyProgress {
 public:
  /// `share` of all runs are trained.
  StudyProgress(const Study& study, double share)
      : study_(study), share_(share), total_(share * study.Seconds()) {}

  void BeginCell(const StudyCell& cell, size_t runs) {
    const std::lock_guard lock(mutex_);
    cell_ = &cell;
    runs_ = runs;
    finished_ = 0;
    steps_ = 0;
    skipped_steps_ = 0;
  }
  void Skip() {
    const std::lock_guard lock(mutex_);
    ++finished_;
    skipped_steps_ += cell_->experiment.train.steps;
    skipped_ += SecondsOf(cell_->experiment.train.steps);
  }
  void Step() {
    const std::lock_guard lock(mutex_);
    ++steps_;
    if (Clock::now() - shown_ < std::chrono::milliseconds(200)) return;
    shown_ = Clock::now();
    heartbeat_.Set(Line());
  }
  void FinishRun() {
    const std::lock_guard lock(mutex_);
    ++finished_;
  }
  void EndCell() {
    const std::lock_guard lock(mutex_);
    done_ += share_ * cell_->seconds;
    cell_ = nullptr;
  }

 private:
  double SecondsOf(int64_t steps) const {
    return share_ * cell_->seconds * static_cast<double>(steps) /
           (static_cast<double>(runs_) *
            static_cast<double>(cell_->experiment.train.steps));
  }

  std::string Line() const {
    const auto place = static_cast<size_t>(cell_ - study_.cells.data()) + 1;
    const double done = done_ + SecondsOf(steps_ + skipped_steps_);
    // Until it has gone on for a while, the plan knows more than the clock.
    const double elapsed =
        std::chrono::duration<double>(Clock::now() - start_).count();
    const std::string left =
        report::TimeLeft(kPlanned + elapsed, kPlanned + done - skipped_,
                         std::max(0.0, total_ - done));
    return fmt::format("{}: {}, {} of {}; {} of {} runs{}{}", study_.kind,
                       cell_->name, place, study_.cells.size(), finished_,
                       runs_, left.empty() ? "" : ", ", left);
  }

  const Study& study_;
  const double share_;
  const double total_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  const StudyCell* cell_ = nullptr;
  size_t runs_ = 0;
  size_t finished_ = 0;
  int64_t steps_ = 0;
  int64_t skipped_steps_ = 0;
  double done_ = 0;     // expected seconds of finished cells
  double skipped_ = 0;  // that earlier calls took
  Clock::time_point shown_;
  report::Heartbeat heartbeat_;
};

/// What a run leaves once it has finished.
fs::path ResultOf(const Study& study, const StudyCell& cell,
                  const train::Run& run) {
  const fs::path folder = study.FolderOf(cell);
  return cell.result_file ? cell.result_file(folder, run)
                          : runlog::RunPaths{folder, run.Name()}.Log();
}

/// Of a run among those of all cells.
std::string NameInStudy(const StudyCell& cell, const train::Run& run) {
  return cell.name + "/" + run.Name();
}

/// Runs that have not finished take what is left.
double SecondsLeft(const Study& study, const StudyCell& cell) {
  const std::vector<train::Run> runs = train::PlanRuns(cell.experiment);
  const auto left = std::ranges::count_if(runs, [&](const train::Run& run) {
    return !fs::exists(ResultOf(study, cell, run));
  });
  const double share =
      static_cast<double>(left) / static_cast<double>(runs.size());
  return share * cell.seconds;
}

std::string SecondsText(double seconds) {
  constexpr double kMinute = 60;
  return seconds < kMinute ? fmt::format("{:.0f} s", std::ceil(seconds))
                           : fmt::format("{:.1f} min", seconds / kMinute);
}

std::vector<train::Run> RunsOfPart(const StudyCell& cell,
                                   const StudyPart& part) {
  const std::vector<uint64_t>& seeds = cell.experiment.train.seeds;
  std::vector<train::Run> runs = train::PlanRuns(cell.experiment);
  std::erase_if(runs, [&](const train::Run& run) {
    const auto place = std::ranges::find(seeds, run.seed) - seeds.begin();
    return static_cast<size_t>(place) % part.count != part.index - 1 ||
           !part.only.Has(NameInStudy(cell, run));
  });
  return runs;
}

void TrainCell(const Study& study, const StudyCell& cell, const StudyPart& part,
               StudyProgress& progress) {
  const std::vector<train::Run> runs = RunsOfPart(cell, part);
  if (runs.empty()) return;
  progress.BeginCell(cell, runs.size());
  train::RunnerHooks hooks;
  hooks.on_kept = [&](size_t, const runlog::RunLog&) { progress.Skip(); };
  hooks.on_step = [&](size_t, const runlog::StepRow&) { progress.Step(); };
  hooks.on_finish = [&](size_t, const runlog::RunLog&) {
    progress.FinishRun();
  };
  hooks.stop = &campaign::InterruptFlag();
  if (cell.hooks) {
    hooks.run_hooks = [&](size_t run) { return cell.hooks(runs[run]); };
  }
  if (cell.execute) {
    cell.execute(runs, study.FolderOf(cell), hooks);
  } else {
    train::ExecuteRuns(cell.experiment, runs,
                       train::LoadCorpusOf(cell.experiment),
                       study.FolderOf(cell), train::Leftovers::kResume, hooks);
  }
  progress.EndCell();
}

/// Machines that share the folder may have other builds.
void RequireOneArithmetic(const StudyCell& cell,
                          const std::vector<compare::Run>& runs) {
  for (const train::Arm& arm : cell.experiment.arms) {
    const std::vector<std::string> mixed =
        compare::MixedNumerics(compare::RunsOfArm(runs, arm.name));
    if (!mixed.empty()) {
      ThrowError(ErrorKind::kFormat, "cell {}, {} such runs: {}", cell.name,
                 mixed.size(), mixed.front());
    }
  }
}

}  // namespace

double Study::Seconds() const {
  double seconds = 0;
  for (const StudyCell& cell : cells) seconds += cell.seconds;
  return seconds;
}

fs::path StudyFolder(const std::string& name, const std::string& kind,
                     bool quick, const fs::path& out) {
  if (!out.empty()) return out;
  return fs::path("runs") / (name + "-" + kind + (quick ? "-quick" : ""));
}

void CheckSeeds(const std::string& kind, size_t seeds) {
  if (seeds >= 2) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} seeds were asked for, but the spread between seeds takes "
             "at least 2. Give --seeds 8.",
             kind, seeds);
}

std::vector<uint64_t> ConsecutiveSeeds(const train::Experiment& experiment,
                                       size_t count) {
  std::vector<uint64_t> seeds(count);
  std::iota(seeds.begin(), seeds.end(), experiment.train.seeds.front());
  return seeds;
}

void LogNoTensors(train::Experiment& experiment) {
  train::LogConfig& log = experiment.log;
  log.statistics_first = log.statistics_every = 0;
  log.digests_first = log.digests_every = 0;
}

void LogLossesOnly(train::Experiment& experiment) {
  train::LogConfig& log = experiment.log;
  log.eval_every = experiment.train.steps;
  log.routing = false;
  LogNoTensors(experiment);
}

std::string CostText(double seconds, double seconds_left) {
  std::string all = SecondsText(seconds);
  if (seconds_left == seconds) return all;
  if (seconds_left == 0) return "done";
  return SecondsText(seconds_left) + " left of " + all;
}

std::string CostText(const Study& study, const StudyCell& cell) {
  return CostText(cell.seconds, SecondsLeft(study, cell));
}

std::string CostText(const Study& study) {
  double left = 0;
  for (const StudyCell& cell : study.cells) left += SecondsLeft(study, cell);
  return CostText(study.Seconds(), left);
}

void EstimateStudy(std::vector<StudyCell>& cells) {
  campaign::ArmRates rates;
  for (StudyCell& cell : cells) {
    if (cell.execute) continue;
    std::vector<train::Run> unknown = train::PlanRuns(cell.experiment);
    std::erase_if(unknown, [&](const train::Run& run) {
      return rates.contains(run.arm->name);
    });
    rates.merge(campaign::MeasureArms(cell.experiment, unknown));
    cell.seconds = campaign::TrainingSeconds(
        cell.experiment, train::PlanRuns(cell.experiment), rates);
  }
}

campaign::RunList ListStudy(const Study& study) {
  campaign::RunList list{.folder = study.folder, .runs = {}};
  for (const StudyCell& cell : study.cells) {
    const std::vector<train::Run> runs = train::PlanRuns(cell.experiment);
    const Crew crew = train::CrewFor(cell.experiment, runs.size());
    const double thread_seconds =
        cell.seconds * crew.workers / static_cast<double>(runs.size());
    for (const train::Run& run : runs) {
      list.runs.push_back(
          {.name = NameInStudy(cell, run),
           .file = ResultOf(study, cell, run).lexically_relative(study.folder),
           .thread_seconds = thread_seconds});
    }
  }
  return list;
}

void CheckStudy(const Study& study, const StudyPart& part) {
  if (!part.only.all()) {
    std::vector<std::string> names;
    for (const auto& run : ListStudy(study).runs) names.push_back(run.name);
    part.only.Check(names);
  }
  for (const StudyCell& cell : study.cells) {
    const size_t seeds = cell.experiment.train.seeds.size();
    if (seeds >= part.count) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: {} parts were asked for, but parts share seeds, of which "
               "{} has {}. Give at most so many parts, or more --seeds.",
               study.kind, part.count, cell.name, seeds);
  }
  const fs::path path = study.folder / campaign::kPlanFile;
  RemoveStaleTemporaries(study.folder);  // else it is not empty
  if (fs::exists(study.folder) && !fs::is_empty(study.folder) &&
      !fs::exists(path)) {
    ThrowError(
        ErrorKind::kConfig,
        "{}: it holds files, but no {} of a study, so nothing is written "
        "there. Give another folder with --out.",
        study.folder.string(), campaign::kPlanFile);
  }
  if (fs::exists(path)) {
    const std::string difference = campaign::PlanDifference(path, study.plan);
    if (!difference.empty()) {
      ThrowError(
          ErrorKind::kConfig,
          "{}: it holds a study of another plan, which differs in {}, but "
          "all runs of one must be of the same. Give another folder "
          "with --out, or remove this one.",
          study.folder.string(), difference);
    }
  }
}

void PrepareStudy(const Study& study, const StudyPart& part) {
  CheckStudy(study, part);
  fs::create_directories(study.folder);
  for (const StudyCell& cell : study.cells) {
    fs::create_directories(study.FolderOf(cell));
  }
  const fs::path path = study.folder / campaign::kPlanFile;
  if (!fs::exists(path)) WriteFileAtomically(path, study.plan);
}

void RequireStudy(const Study& study) {
  CheckStudy(study);
  if (!fs::exists(study.folder / campaign::kPlanFile)) {
    ThrowNothingToJudge(study);
  }
}

StudyPart ParseStudyPart(const std::string& text) {
  StudyPart part;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, part.index);
  if (index.ec == std::errc() && index.ptr != end && *index.ptr == '/') {
    const auto count = std::from_chars(index.ptr + 1, end, part.count);
    if (count.ec == std::errc() && count.ptr == end && part.index >= 1 &&
        part.index <= part.count) {
      return part;
    }
  }
  ThrowError(ErrorKind::kConfig,
             "--part {}: it must be K/N with 1 <= K <= N. Give 1/4, 2/4, 3/4 "
             "and 4/4 to four machines.",
             text);
}

bool TrainStudy(const Study& study, const StudyPart& part) {
  campaign::ListenToSignals();
  StudyProgress progress(study, 1.0 / static_cast<double>(part.count));
  for (const StudyCell& cell : study.cells) {
    if (campaign::InterruptFlag().load()) return false;
    TrainCell(study, cell, part, progress);
  }
  return !campaign::InterruptFlag().load();
}

std::vector<compare::Run> RunsOf(const Study& study, const StudyCell& cell) {
  const fs::path folder = study.FolderOf(cell);
  if (!fs::exists(folder)) return {};
  std::vector<fs::path> logs = campaign::LogsIn(folder);
  std::erase_if(logs, campaign::IsPartial);
  if (logs.empty()) return {};
  std::vector<compare::Run> runs = campaign::ReadRuns(logs);
  const std::vector<uint64_t>& seeds = cell.experiment.train.seeds;
  std::erase_if(runs, [&](const compare::Run& run) {
    const auto seed = static_cast<uint64_t>(run.log.provenance.seed);
    return std::ranges::count(seeds, seed) == 0;
  });
  RequireOneArithmetic(cell, runs);
  return runs;
}

bool Diverged(const runlog::RunLog& log) {
  const std::vector<double> losses(log.steps.loss_nats.begin(),
                                   log.steps.loss_nats.end());
  return stats::DivergedAt(losses, log.provenance.steps_planned,
                           log.provenance.complete)
      .has_value();
}

void ThrowNothingToJudge(const Study& study) {
  ThrowError(ErrorKind::kConfig,
             "{}: too few finished runs are there to be judged. Call isoloss "
             "{} without --no-train, which trains them.",
             study.folder.string(), study.kind);
}

std::optional<double> FinalLoss(const runlog::RunLog& log) {
  if (!log.provenance.complete || log.eval.loss_nats.empty()) {
    return std::nullopt;
  }
  const auto loss = static_cast<double>(log.eval.loss_nats.back());
  if (!std::isfinite(loss)) return std::nullopt;
  return loss;
}

}  // namespace isoloss::studies
