#include "isoloss/studies/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/build_info.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/campaign/plan_file.h"
#include "isoloss/campaign/run_cost.h"
#include "isoloss/compare/integrity.h"
#include "isoloss/device/devices.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/stats/divergence.h"
#include "isoloss/train/cost.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;

/// Returns the file that a run leaves once it has finished.
fs::path ResultOf(const Plan& plan, const Cell& cell, const train::Run& run) {
  const fs::path folder = plan.FolderOf(cell);
  return cell.result_file ? cell.result_file(folder, run)
                          : runlog::RunPaths{folder, run.Name()}.Log();
}

/// Returns the seconds of the runs that have not finished.
double SecondsLeft(const Plan& plan, const Cell& cell) {
  const std::vector<train::Run> runs = train::PlanRuns(cell.experiment);
  const auto left = std::ranges::count_if(runs, [&](const train::Run& run) {
    return !fs::exists(ResultOf(plan, cell, run));
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

/// Refuses runs of different arithmetic: machines that share the folder may
/// have different builds.
void RequireOneArithmetic(const Cell& cell,
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

/// Refuses runs and parts that the plan does not have.
void CheckPart(const Plan& plan, const Part& part) {
  if (!part.only.all()) {
    std::vector<std::string> names;
    for (const auto& run : ListRuns(plan).runs) names.push_back(run.name);
    part.only.Check(names);
  }
  for (const Cell& cell : plan.cells) {
    const size_t seeds = cell.experiment.train.seeds.size();
    if (seeds >= part.count) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: {} parts were asked for, but parts share seeds, of which "
               "{} has {}. Give at most so many parts, or more --seeds.",
               plan.kind, part.count, cell.name, seeds);
  }
}

/// Refuses a folder that holds another study or foreign files.
void CheckFolder(const Plan& plan) {
  const fs::path path = plan.folder / campaign::kPlanFile;
  RemoveStaleTemporaries(plan.folder);  // else it is not empty
  if (fs::exists(plan.folder) && !fs::is_empty(plan.folder) &&
      !fs::exists(path)) {
    ThrowError(
        ErrorKind::kConfig,
        "{}: it holds files, but no {} of a study, so nothing is written "
        "there. Give another folder with --out.",
        plan.folder.string(), campaign::kPlanFile);
  }
  if (fs::exists(path)) {
    const std::string difference = campaign::PlanDifference(path, plan.text);
    if (!difference.empty()) {
      ThrowError(
          ErrorKind::kConfig,
          "{}: it holds a study of another plan, which differs in {}, but "
          "all runs of one must be of the same. Give another folder "
          "with --out, or remove this one.",
          plan.folder.string(), difference);
    }
  }
}

}  // namespace

double Plan::Seconds() const {
  double seconds = 0;
  for (const Cell& cell : cells) seconds += cell.seconds;
  return seconds;
}

std::string PlannedToml(train::Experiment experiment) {
  train::ParallelConfig& parallel = experiment.parallel;
  const train::ParallelConfig any;
  parallel.transport = any.transport;
  parallel.on = any.on;
  parallel.micro_batches = any.micro_batches;
  parallel.workers = any.workers;
  parallel.deadline_seconds = any.deadline_seconds;
  parallel.shuffle_seed = any.shuffle_seed;
  return experiment.TomlWithoutSeeds();
}

config::Writer BeginPlanText(const std::string& kind, const std::string& key,
                             const std::string& experiments) {
  Digest digest;
  digest.Update(experiments);
  config::Writer text;
  text.Text("study", kind);
  text.Text("version", GetBuildInfo().version);
  text.Text(key, DigestToHex(digest.Value()));
  return text;
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

std::string CostText(const Plan& plan, const Cell& cell) {
  return CostText(cell.seconds, SecondsLeft(plan, cell));
}

std::string CostText(const Plan& plan) {
  double left = 0;
  for (const Cell& cell : plan.cells) left += SecondsLeft(plan, cell);
  return CostText(plan.Seconds(), left);
}

void EstimateCosts(std::vector<Cell>& cells) {
  campaign::ArmRates rates;
  for (Cell& cell : cells) {
    if (cell.execute || !device::IsHere(cell.experiment.parallel.on)) continue;
    std::vector<train::Run> unknown = train::PlanRuns(cell.experiment);
    std::erase_if(unknown, [&](const train::Run& run) {
      return rates.contains(run.arm->name);
    });
    rates.merge(campaign::MeasureArms(cell.experiment, unknown));
    cell.seconds = campaign::TrainingSeconds(
        cell.experiment, train::PlanRuns(cell.experiment), rates);
  }
}

campaign::RunList ListRuns(const Plan& plan) {
  campaign::RunList list{.folder = plan.folder, .runs = {}};
  for (const Cell& cell : plan.cells) {
    // All cells have one device, but for those without models.
    if (!cell.execute) list.on = cell.experiment.parallel.on;
  }
  for (const Cell& cell : plan.cells) {
    const std::vector<train::Run> runs = train::PlanRuns(cell.experiment);
    double thread_seconds = 0;
    if (device::IsHere(list.on)) {
      const Crew crew = train::CrewFor(cell.experiment, runs.size());
      thread_seconds =
          cell.seconds * crew.workers / static_cast<double>(runs.size());
    }
    for (const train::Run& run : runs) {
      list.runs.push_back(
          {.name = cell.NameOf(run),
           .file = ResultOf(plan, cell, run).lexically_relative(plan.folder),
           .thread_seconds = thread_seconds});
    }
  }
  return list;
}

void PrepareFolder(const Plan& plan, const Part& part) {
  CheckPart(plan, part);
  CheckFolder(plan);
  fs::create_directories(plan.folder);
  for (const Cell& cell : plan.cells) {
    fs::create_directories(plan.FolderOf(cell));
  }
  const fs::path path = plan.folder / campaign::kPlanFile;
  if (!fs::exists(path)) WriteFileAtomically(path, plan.text);
}

void RequireFolder(const Plan& plan) {
  CheckFolder(plan);
  if (!fs::exists(plan.folder / campaign::kPlanFile)) {
    ThrowNothingToJudge(plan);
  }
}

Part ParsePart(const std::string& text) {
  Part part;
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

std::vector<compare::Run> RunsOf(const Plan& plan, const Cell& cell) {
  const fs::path folder = plan.FolderOf(cell);
  if (!fs::exists(folder)) return {};
  std::vector<fs::path> logs = logs::LogsIn(folder);
  std::erase_if(logs, logs::IsPartial);
  if (logs.empty()) return {};
  std::vector<compare::Run> runs = logs::ReadRuns(logs);
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

std::map<std::string, std::map<int64_t, RunEnd>> EndsOf(const Plan& plan,
                                                        const Cell& cell) {
  std::map<std::string, std::map<int64_t, RunEnd>> ends;
  for (const compare::Run& run : RunsOf(plan, cell)) {
    const runlog::RunLog& log = run.log;
    RunEnd& end = ends[log.provenance.arm][log.provenance.seed];
    end.diverged = Diverged(log);
    if (!log.provenance.complete || log.eval.loss_nats.empty()) continue;
    const auto loss = static_cast<double>(log.eval.loss_nats.back());
    if (std::isfinite(loss)) end.loss = loss;
  }
  return ends;
}

void ThrowNothingToJudge(const Plan& plan) {
  ThrowError(ErrorKind::kConfig,
             "{}: too few finished runs are there to be judged. Call isoloss "
             "{} without --no-train, which trains them.",
             plan.folder.string(), plan.kind);
}

}  // namespace isoloss::studies
