#include "isoloss/train/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/job_pool.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/new_folder.h"
#include "isoloss/probes/dump.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/run_lock.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/cost.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/routing_replay.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/trainer.h"
#include "isoloss/transport/launch.h"

namespace isoloss::train {
namespace {

namespace fs = std::filesystem;

/// Returns the existing folder in which `folder` is or would be made.
fs::path ExistingPartOf(const fs::path& folder) {
  fs::path part = fs::absolute(folder).lexically_normal();
  std::error_code error;
  while (part.has_relative_path() && !fs::exists(part, error) && !error) {
    part = part.parent_path();
  }
  return part;
}

/// Reserves `bytes` once at the place of `folder`, so that a read-only or full
/// disk is found before hours of training, not after.
void CheckFolderTakes(const fs::path& folder, size_t bytes) {
  std::string probe =
      (ExistingPartOf(folder) / ".isoloss-probe-XXXXXX").string();
  const int file = mkstemp(probe.data());
  int reason = file < 0 ? errno : 0;
  if (file >= 0) {
    reason = posix_fallocate(file, 0, static_cast<off_t>(bytes));
    close(file);
    unlink(probe.c_str());
  }
  if (reason != 0) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder can't take the logs (about {} KiB): {}. Free "
               "some space or choose another one with --out.",
               folder.string(), bytes / 1024 + 1, std::strerror(reason));
  }
}

/// Refuses to lose the results of an interrupted execution if the program is
/// called once more.
void RefuseUnfinished(const std::vector<Run>& runs, const fs::path& folder) {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    const runlog::RunPaths paths = {folder, run.Name()};
    if (!IsUnfinished(paths)) continue;
    // A live run must be neither resumed nor discarded.
    if (transport::DetectLaunch().process == 0) runlog::RunLock not_live(paths);
    names.push_back(run.Name());
  }
  if (names.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it holds {} unfinished run{} ({}), but a new execution would "
             "discard them. Go on with --resume, start anew with --restart, or "
             "choose another folder with --out.",
             folder.string(), names.size(), names.size() == 1 ? "" : "s",
             fmt::join(names, ", "));
}

size_t MissingOf(const std::vector<bool>& kept) {
  return static_cast<size_t>(std::count(kept.begin(), kept.end(), false));
}

/// Does the same as DescribePlannedRun, but pays the cost only once for each
/// arm.
class Planner {
 public:
  Planner(const Experiment& experiment, const corpus::Corpus& corpus)
      : experiment_(experiment), corpus_(corpus) {}

  runlog::Provenance Of(const Run& run) {
    auto found = arms_.find(run.arm);
    if (found == arms_.end()) {
      found = arms_
                  .emplace(run.arm, DescribePlannedRun(experiment_, *run.arm,
                                                       run.seed, corpus_))
                  .first;
    }
    runlog::Provenance planned = found->second;
    planned.seed = static_cast<int64_t>(run.seed);
    if (experiment_.routing.mode == RoutingMode::kReplay) {
      const RoutingReplay replay(experiment_.ReplayPath(run.seed),
                                 ShapeOf(experiment_));
      planned.routing = DescribeRouting(experiment_, &replay);
    }
    return planned;
  }

 private:
  const Experiment& experiment_;
  const corpus::Corpus& corpus_;
  std::map<const Arm*, runlog::Provenance> arms_;
};

/// The gate judges precision between logs of one build, and would only complain
/// after all are trained. Somebody who resumes has been told of it.
void RequireSameBuild(const fs::path& log, const runlog::Provenance& kept,
                      const runlog::Provenance& now, size_t runs) {
  if (kept.commit == now.commit && kept.tool_version == now.tool_version) {
    return;
  }
  ThrowError(ErrorKind::kConfig,
             "{}: it was made by {}, commit {}, but {} more runs are to be "
             "trained by {}, commit {}, and arms are judged between logs of "
             "one build. Choose another folder with --out, keep it all the "
             "same with --resume, or discard it with --restart.",
             log.string(), kept.tool_version, kept.commit, runs,
             now.tool_version, now.commit);
}

/// Refuses to overwrite the dumps of a run whose log is gone: they, too, are a
/// user's results.
void RefuseDumps(const Experiment& experiment, const runlog::RunPaths& paths) {
  if (experiment.log.dump_tensors.empty()) return;
  for (const uint64_t step : experiment.log.dump_steps) {
    const fs::path dump =
        paths.folder / runlog::kDumpFolder /
        probes::DumpFileName(paths.name, static_cast<int64_t>(step));
    if (!fs::exists(dump)) continue;
    ThrowError(ErrorKind::kConfig,
               "{}: it is there without the log of its run, and this one would "
               "overwrite it. Choose another folder with --out, or discard it "
               "with --restart.",
               dump.string());
  }
}

/// Says which runs have logs in the folder that are kept. FindKept throws if
/// the folder holds files that may neither be kept nor overwritten.
struct KeptRuns {
  std::vector<bool> kept;  ///< of each run: it has finished
  int64_t steps = 0;       ///< that unfinished runs have on disk
};

KeptRuns FindKept(const Experiment& experiment, const std::vector<Run>& runs,
                  const corpus::Corpus& corpus, const fs::path& folder,
                  Leftovers leftovers, const RunnerHooks& hooks) {
  KeptRuns found{.kept = std::vector<bool>(runs.size())};
  std::vector<bool>& kept = found.kept;
  if (leftovers == Leftovers::kDiscard) return found;
  if (leftovers == Leftovers::kRefuse) RefuseUnfinished(runs, folder);
  Planner planner(experiment, corpus);
  std::vector<std::function<void(size_t)>> checks;
  for (size_t i = 0; i < runs.size(); ++i) {
    const runlog::RunPaths paths = {folder, runs[i].Name()};
    if (IsUnfinished(paths)) {
      found.steps += CheckContinuation(paths, planner.Of(runs[i]));
      continue;
    }
    if (!fs::exists(paths.Log())) {
      RefuseDumps(experiment, paths);
      continue;
    }
    const runlog::Provenance now = planner.Of(runs[i]);
    const runlog::RunLog log = ReadFinished(
        paths, now,
        hooks.run_hooks ? hooks.run_hooks(i).perturbation : std::string());
    kept[i] = true;
    if (leftovers == Leftovers::kRefuse) {
      checks.emplace_back(
          [paths, now, before = log.provenance](size_t missing) {
            RequireSameBuild(paths.Log(), before, now, missing);
          });
    }
    if (hooks.on_kept) hooks.on_kept(i, log);
  }
  if (const size_t missing = MissingOf(kept); missing > 0) {
    for (const auto& check : checks) check(missing);
  }
  return found;
}

/// Half of a run's bytes are its journal, which already holds the steps of
/// unfinished runs.
size_t BytesToWrite(const Experiment& experiment, const KeptRuns& found) {
  const size_t all = EstimatedLogBytes(experiment, MissingOf(found.kept));
  const double share = static_cast<double>(found.steps) /
                       static_cast<double>(experiment.train.steps);
  const double there =
      static_cast<double>(EstimatedLogBytes(experiment, 1)) / 2 * share;
  return all - std::min(all, static_cast<size_t>(there));
}

/// Returns "2 finished runs (a-seed1, b-seed1) and 1 unfinished (a-seed2)"; ""
/// if there is nothing to discard.
std::string DescribeLeftovers(const std::vector<Run>& runs,
                              const fs::path& folder) {
  std::vector<std::string> finished;
  std::vector<std::string> unfinished;
  for (const Run& run : runs) {
    const runlog::RunPaths paths = {folder, run.Name()};
    if (IsUnfinished(paths)) {
      unfinished.push_back(run.Name());
    } else if (fs::exists(paths.Log())) {
      finished.push_back(run.Name());
    }
  }
  std::vector<std::string> parts;
  for (const auto& [what, names] :
       {std::pair("finished", finished), std::pair("unfinished", unfinished)}) {
    if (names.empty()) continue;
    parts.push_back(fmt::format("{} {} run{} ({})", names.size(), what,
                                names.size() == 1 ? "" : "s",
                                fmt::join(names, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, " and "));
}

/// Returns whether an earlier job of several processes may have said why it
/// ended; such a job left an unfinished run. Looking for the reason means
/// reading the whole folder, which may hold thousands of further runs.
bool MayHoldReasons(const std::vector<Run>& runs, const fs::path& folder) {
  return transport::DetectLaunch().processes > 1 ||
         std::ranges::any_of(runs, [&](const Run& run) {
           return IsUnfinished({folder, run.Name()});
         });
}

/// Removes the reasons of earlier jobs, which would be read as this job's
/// reason.
void RemoveReasons(const fs::path& folder) {
  std::vector<fs::path> reasons;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("abort-process") && name.ends_with(".txt")) {
      reasons.push_back(entry.path());
    }
  }
  for (const fs::path& reason : reasons) fs::remove(reason);
}

/// Executes runs side by side and collects their logs.
class Runner {
 public:
  Runner(const Experiment& experiment, const std::vector<Run>& runs,
         const corpus::Corpus& corpus, const fs::path& folder,
         Leftovers leftovers, const std::vector<bool>& kept,
         const RunnerHooks& hooks)
      : experiment_(experiment),
        runs_(runs),
        corpus_(corpus),
        folder_(folder),
        leftovers_(leftovers),
        kept_(kept),
        hooks_(hooks),
        speaks_(transport::DetectLaunch().process == 0),
        paths_(runs.size()) {
    for (size_t i = 0; i < runs.size(); ++i) {
      if (kept[i]) paths_[i] = runlog::RunPaths{folder, runs[i].Name()}.Log();
    }
  }

  std::vector<fs::path> Execute() {
    pool_.Run(
        runs_.size(), CrewFor(experiment_, MissingOf(kept_)),
        [this] { return NoMoreRuns(); },
        [this](size_t run, Executor& executor) {
          if (!kept_[run] || IsShared()) ExecuteOne(run, executor);
        });
    return std::move(paths_);
  }

 private:
  bool Stopped() const {
    return pool_.failed() || (hooks_.stop != nullptr && hooks_.stop->load());
  }
  /// Returns whether no further run shall begin. Processes of one job must
  /// agree on it, so they begin each run, and stop by a vote.
  bool NoMoreRuns() const {
    return ended_.load() ||
           (transport::DetectLaunch().processes == 1 && Stopped());
  }

  /// Returns whether several processes agree on each run, also on a whole one.
  static bool IsShared() { return transport::DetectLaunch().processes > 1; }

  void ExecuteOne(size_t run, Executor& executor) {
    const Run& what = runs_[run];
    const runlog::RunPaths paths = {folder_, what.Name()};
    std::atomic<bool> stop{false};
    RunHooks hooks = hooks_.run_hooks ? hooks_.run_hooks(run) : RunHooks();
    hooks.stop = &stop;
    hooks.on_step = [&](const runlog::StepRow& row) {
      if (speaks_ && hooks_.on_step) hooks_.on_step(run, row);
      stop.store(Stopped());  // after on_step, which may stop the runs
    };
    hooks.on_event = [&](const runlog::Event& event) {
      if (speaks_ && hooks_.on_event) hooks_.on_event(run, event);
    };
    const RunFiles files = {paths, leftovers_ != Leftovers::kDiscard};
    const runlog::RunLog log = TrainRun(experiment_, *what.arm, what.seed,
                                        corpus_, executor, hooks, files);
    // The log decides, not this process's flag: another process may have voted
    // to stop.
    const bool stopped =
        !log.events.empty() && log.events.back().kind == "interrupt";
    if (stopped) ended_.store(true);
    // Each run writes its own element.
    paths_[run] = stopped ? paths.PartialLog() : paths.Log();
    if (!speaks_) return;
    // If its numbers ended a run, its checkpoints may tell why.
    if (log.provenance.complete && experiment_.log.checkpoint_every == 0) {
      RemoveFolder(paths.Checkpoints());
    }
    if (hooks_.on_finish) hooks_.on_finish(run, log);
  }

  const Experiment& experiment_;
  const std::vector<Run>& runs_;
  const corpus::Corpus& corpus_;
  const fs::path& folder_;
  const Leftovers leftovers_;
  const std::vector<bool>& kept_;
  const RunnerHooks& hooks_;
  const bool speaks_;  // of several processes, the first one
  std::vector<fs::path> paths_;
  JobPool pool_;
  std::atomic<bool> ended_{false};  // a run was stopped
};

}  // namespace

std::string Run::Name() const {
  return fmt::format("{}-seed{}", arm->name, seed);
}

std::vector<std::string> ArmNames(const Experiment& experiment) {
  std::vector<std::string> names;
  for (const Arm& arm : experiment.arms) names.push_back(arm.name);
  return names;
}

const Arm& ArmNamed(const Experiment& experiment, const std::string& name) {
  for (const Arm& arm : experiment.arms) {
    if (arm.name == name) return arm;
  }
  const std::vector<std::string> names = ArmNames(experiment);
  ThrowError(ErrorKind::kConfig,
             "{}: there is no arm `{}`. Arms of this experiment: {}.{}",
             experiment.path.string(), name, fmt::join(names, ", "),
             DidYouMean(name, names));
}

std::vector<Run> PlanRuns(const Experiment& experiment,
                          const std::string& only_arm) {
  // Refuses now what would only fail after an hour of training.
  CheckReplays(experiment);
  CheckLaunch(experiment);
  if (!only_arm.empty()) ArmNamed(experiment, only_arm);
  std::vector<Run> runs;
  for (const uint64_t seed : experiment.train.seeds) {
    for (const Arm& arm : experiment.arms) {
      if (only_arm.empty() || arm.name == only_arm)
        runs.push_back({&arm, seed});
    }
  }
  return runs;
}

std::vector<bool> CheckRuns(const Experiment& experiment,
                            const std::vector<Run>& runs,
                            const corpus::Corpus& corpus,
                            const fs::path& folder, Leftovers leftovers,
                            const RunnerHooks& hooks) {
  // A program may have changed the arms since the file was read.
  for (const Arm& arm : experiment.arms) ResolvePhases(experiment, arm);
  KeptRuns found = FindKept(experiment, runs, corpus, folder, leftovers, hooks);
  const size_t missing = MissingOf(found.kept);
  if (missing == 0) return std::move(found.kept);
  CheckMemory(experiment, CrewFor(experiment, missing));
  if (transport::DetectLaunch().process == 0) {
    CheckFolderTakes(folder, BytesToWrite(experiment, found));
  }
  return std::move(found.kept);
}

LeftLogs ExecuteRuns(const Experiment& experiment, const std::vector<Run>& runs,
                     const corpus::Corpus& corpus, const fs::path& folder,
                     Leftovers leftovers, const RunnerHooks& hooks) {
  // All checks are made before the first run changes a file.
  std::vector<bool> kept =
      CheckRuns(experiment, runs, corpus, folder, leftovers, hooks);
  const size_t missing = MissingOf(kept);
  if (hooks.on_accepted) {
    hooks.on_accepted(missing, leftovers == Leftovers::kDiscard
                                   ? DescribeLeftovers(runs, folder)
                                   : std::string());
  }
  std::optional<NewFolder> made;
  if (missing > 0 && transport::DetectLaunch().process == 0) {
    made.emplace(folder, "Choose another one with --out.");
    if (MayHoldReasons(runs, folder)) RemoveReasons(folder);
  }
  Runner runner(experiment, runs, corpus, folder, leftovers, kept, hooks);
  return {runner.Execute(), std::move(kept)};
}

std::vector<uint64_t> SeedsIn(const fs::path& folder,
                              const Experiment& experiment) {
  std::set<uint64_t> seeds;
  std::error_code none;  // a folder that is not there yet
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder, none)) {
    const fs::path file = entry.path().filename();
    if (file.extension() != ".h5" && file.extension() != ".journal") continue;
    const std::string name = file.stem().string();
    for (const Arm& arm : experiment.arms) {
      const std::string front = arm.name + "-seed";
      if (!name.starts_with(front)) continue;
      uint64_t seed = 0;
      const char* end = name.data() + name.size();
      const auto parsed =
          std::from_chars(name.data() + front.size(), end, seed);
      if (parsed.ec == std::errc() && parsed.ptr == end &&
          Run{&arm, seed}.Name() == name) {
        seeds.insert(seed);
      }
    }
  }
  return {seeds.begin(), seeds.end()};
}

OtherLogs FindOtherSeeds(const Experiment& experiment,
                         const std::vector<Run>& runs,
                         const corpus::Corpus& corpus, const fs::path& folder) {
  std::set<uint64_t> planned;
  std::vector<const Arm*> arms;
  for (const Run& run : runs) {
    planned.insert(run.seed);
    if (std::ranges::count(arms, run.arm) == 0) arms.push_back(run.arm);
  }
  OtherLogs others;
  Planner planner(experiment, corpus);
  for (const uint64_t seed : SeedsIn(folder, experiment)) {
    if (planned.contains(seed)) continue;
    std::vector<OtherLogs::File> files;
    std::string reason;
    for (const Arm* arm : arms) {
      const Run run = {arm, seed};
      const runlog::RunPaths paths = {folder, run.Name()};
      if (IsUnfinished(paths) || !fs::exists(paths.Log())) {
        reason = fmt::format("{} is not finished", run.Name());
        continue;
      }
      try {
        const runlog::RunLog log = runlog::ReadRunLog(paths.Log());
        const std::string difference =
            RunDifference(log.provenance, planner.Of(run));
        if (!difference.empty() || !PerturbationOf(log).empty()) {
          reason = fmt::format(
              "{} is of another run:{}", run.Name(),
              difference.empty() ? "  " + PerturbationOf(log)
                                 : difference.substr(0, difference.find('\n')));
        }
        files.push_back({paths.Log(), arm, seed});
      } catch (const Error& error) {
        reason = error.what();
      }
    }
    if (reason.empty()) {
      std::ranges::move(files, std::back_inserter(others.files));
    } else {
      others.left_out.push_back(
          fmt::format("seed {} is not judged: {}", seed, reason));
    }
  }
  return others;
}

}  // namespace isoloss::train
