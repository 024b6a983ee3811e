#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "isoloss/report/heartbeat.h"
#include "isoloss/studies/plan.h"
#include "isoloss/system/interrupt.h"

namespace isoloss::studies {
namespace {

using Clock = std::chrono::steady_clock;

/// The plan counts as if this many of its seconds had been trained.
constexpr double kPlanned = 20;

/// Shows "ladder: 1.3M-4, 2 of 7; 3 of 32 runs, 41:00 left".
class Progress {
 public:
  /// `share` of all runs are trained.
  Progress(const Plan& plan, double share)
      : plan_(plan), share_(share), total_(share * plan.Seconds()) {}

  void BeginCell(const Cell& cell, size_t runs) {
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
    const auto place = static_cast<size_t>(cell_ - plan_.cells.data()) + 1;
    const double done = done_ + SecondsOf(steps_ + skipped_steps_);
    // The plan knows more than the clock until training has gone on for a
    // while.
    const double elapsed =
        std::chrono::duration<double>(Clock::now() - start_).count();
    const std::string left =
        report::TimeLeft(kPlanned + elapsed, kPlanned + done - skipped_,
                         std::max(0.0, total_ - done));
    return fmt::format("{}: {}, {} of {}; {} of {} runs{}{}", plan_.kind,
                       cell_->name, place, plan_.cells.size(), finished_, runs_,
                       left.empty() ? "" : ", ", left);
  }

  const Plan& plan_;
  const double share_;
  const double total_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  const Cell* cell_ = nullptr;
  size_t runs_ = 0;
  size_t finished_ = 0;
  int64_t steps_ = 0;
  int64_t skipped_steps_ = 0;
  double done_ = 0;     // expected seconds of finished cells
  double skipped_ = 0;  // that earlier calls took
  Clock::time_point shown_;
  report::Heartbeat heartbeat_;
};

std::vector<train::Run> RunsOfPart(const Cell& cell, const Part& part) {
  const std::vector<uint64_t>& seeds = cell.experiment.train.seeds;
  std::vector<train::Run> runs = train::PlanRuns(cell.experiment);
  std::erase_if(runs, [&](const train::Run& run) {
    const auto place = std::ranges::find(seeds, run.seed) - seeds.begin();
    return static_cast<size_t>(place) % part.count != part.index - 1 ||
           !part.only.Has(cell.NameOf(run));
  });
  return runs;
}

void TrainCell(const Plan& plan, const Cell& cell, const Part& part,
               Progress& progress) {
  const std::vector<train::Run> runs = RunsOfPart(cell, part);
  if (runs.empty()) return;
  progress.BeginCell(cell, runs.size());
  train::RunnerHooks hooks;
  hooks.on_kept = [&](size_t, const runlog::RunLog&) { progress.Skip(); };
  hooks.on_step = [&](size_t, const runlog::StepRow&) { progress.Step(); };
  hooks.on_finish = [&](size_t, const runlog::RunLog&) {
    progress.FinishRun();
  };
  hooks.stop = &system::InterruptFlag();
  if (cell.hooks) {
    hooks.run_hooks = [&](size_t run) { return cell.hooks(runs[run]); };
  }
  if (cell.execute) {
    cell.execute(runs, plan.FolderOf(cell), hooks);
  } else {
    train::ExecuteRuns(cell.experiment, runs,
                       train::LoadCorpusOf(cell.experiment),
                       plan.FolderOf(cell), train::Leftovers::kResume, hooks);
  }
  progress.EndCell();
}

}  // namespace

bool Train(const Plan& plan, const Part& part) {
  system::ListenToSignals();
  Progress progress(plan, 1.0 / static_cast<double>(part.count));
  for (const Cell& cell : plan.cells) {
    if (system::InterruptFlag().load()) return false;
    TrainCell(plan, cell, part, progress);
  }
  return !system::InterruptFlag().load();
}

}  // namespace isoloss::studies
