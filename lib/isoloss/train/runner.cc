#include "isoloss/train/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/threads.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/trainer.h"
#include "isoloss/transport/launch.h"

namespace isoloss::train {
namespace {

namespace fs = std::filesystem;

/// Creates `folder` and reserves `bytes` in it once, so that a read-only or
/// full disk is found before hours of training, not after.
void CheckFolderTakes(const fs::path& folder, size_t bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder for the logs can't be made: {}. Choose another "
               "one with --out.",
               folder.string(), error.message());
  }
  std::string probe = (folder / ".isoloss-probe-XXXXXX").string();
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

/// What an interrupted execution computed shall not be lost by calling the
/// program once more.
void RefuseUnfinished(const std::vector<Run>& runs, const fs::path& folder) {
  std::vector<std::string> names;
  for (const Run& run : runs) {
    if (IsUnfinished({folder, run.Name()})) names.push_back(run.Name());
  }
  if (names.empty()) return;
  ThrowError(ErrorKind::kConfig,
             "{}: it holds {} unfinished run{} ({}), but a new execution would "
             "discard them. Go on with --resume, start anew with --restart, or "
             "choose another folder with --out.",
             folder.string(), names.size(), names.size() == 1 ? "" : "s",
             fmt::join(names, ", "));
}

/// Why an earlier job ended would be read as this one's reason.
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

/// Refuses what the machine can't hold; it would end in swapping or a kill.
void CheckMemory(const Experiment& experiment, size_t side_by_side) {
  const double available = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                           static_cast<double>(sysconf(_SC_PAGESIZE));
  const double needed =
      EstimatedBytes(experiment) * static_cast<double>(side_by_side);
  if (needed <= available) return;
  ThrowError(ErrorKind::kConfig,
             "{}: {} runs side by side need at least {:.1f} GiB, but this "
             "machine has {:.1f} GiB. Lower the sizes of [model], "
             "train.sequences_per_batch, data.sequence_length or "
             "parallel.workers.",
             experiment.path.string(), side_by_side, needed / 0x1p30,
             available / 0x1p30);
}

/// Threads in all, and how many runs share them.
struct Crew {
  int workers;
  int side_by_side;
};

/// Processes of one job run one run after the other, all in the same order; a
/// job of one does too, because MPI is for one thread. Processes that the
/// launcher did not bind to processors of their own are taken to share the
/// machine's.
Crew CrewFor(const Experiment& experiment, size_t runs) {
  const int processes = transport::DetectLaunch().processes;
  const int requested = experiment.parallel.workers;
  int workers = requested > 0 ? requested : AvailableProcessors();
  if (processes == 1 && experiment.parallel.transport != "mpi") {
    return {workers, std::min(workers, static_cast<int>(runs))};
  }
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (requested == 0 && workers >= online) {
    workers = std::max(1, workers / processes);
  }
  return {workers, 1};
}

/// Upper estimate of what the logs take: columns of 8 bytes, texts, headers;
/// twice, for the journal.
size_t EstimatedLogBytes(const Experiment& experiment, size_t runs) {
  constexpr size_t kTexts = size_t{256} * 1024;
  const auto steps = static_cast<size_t>(experiment.train.steps);
  const model::ModelConfig& model = experiment.model;
  const size_t layers = model.n_moe_layers();
  const size_t ranks = experiment.parallel.mesh.ranks;
  size_t bytes_per_step =
      128 + layers * (model.num_experts * 16 + 128) + ranks * 24;
  if (experiment.log.routing) {
    bytes_per_step += layers * experiment.train.sequences_per_batch *
                      experiment.data.sequence_length * model.top_k *
                      sizeof(int32_t);
  }
  const size_t evaluations =
      steps / static_cast<size_t>(experiment.log.eval_every) + 2;
  // Histograms are mostly zeros; on disk they nearly vanish.
  const auto tensors =
      static_cast<size_t>(EstimatedTensorRows(experiment) * 320);
  return 2 * runs *
         (kTexts + tensors + ranks * ranks * sizeof(int64_t) +
          steps * bytes_per_step +
          evaluations * experiment.log.eval_sequences * sizeof(double));
}

/// Hands out runs to executing threads and collects what they leave.
class Runner {
 public:
  Runner(const Experiment& experiment, const std::vector<Run>& runs,
         const corpus::Corpus& corpus, const fs::path& folder,
         Leftovers leftovers, const RunnerHooks& hooks)
      : experiment_(experiment),
        runs_(runs),
        corpus_(corpus),
        folder_(folder),
        leftovers_(leftovers),
        hooks_(hooks),
        speaks_(transport::DetectLaunch().process == 0),
        paths_(runs.size()) {}

  std::vector<fs::path> Execute() {
    const auto [workers, side_by_side] = CrewFor(experiment_, runs_.size());
    std::vector<std::thread> threads;
    try {
      for (int i = 0; i < side_by_side; ++i) {
        // The first few share what does not divide evenly.
        const int team_size =
            workers / side_by_side + (i < workers % side_by_side ? 1 : 0);
        threads.emplace_back([this, team_size] { Work(team_size); });
      }
    } catch (...) {  // the system gives no more threads
      Fail();
    }
    for (std::thread& thread : threads) thread.join();
    if (error_ != nullptr) std::rethrow_exception(error_);
    return std::move(paths_);
  }

 private:
  bool Stopped() const {
    return failed_.load() || (hooks_.stop != nullptr && hooks_.stop->load());
  }
  /// Shall no other run begin? Processes of one job must agree on it, so they
  /// begin it, and stop by a vote.
  bool NoMoreRuns() const {
    return ended_.load() ||
           (transport::DetectLaunch().processes == 1 && Stopped());
  }

  void Work(int team_size) {
    try {
      ThreadTeam team(team_size);
      for (size_t run = next_.fetch_add(1); run < runs_.size() && !NoMoreRuns();
           run = next_.fetch_add(1)) {
        ExecuteOne(run, team);
      }
    } catch (...) {
      Fail();
    }
  }

  /// Keeps the exception being handled, if it is the first, and stops the runs.
  void Fail() {
    const std::lock_guard lock(mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
    failed_.store(true);
  }

  void ExecuteOne(size_t run, ThreadTeam& team) {
    const Run& what = runs_[run];
    const runlog::RunPaths paths = {folder_, what.Name()};
    std::atomic<bool> stop{false};
    RunHooks hooks = hooks_.run_hooks ? hooks_.run_hooks(run) : RunHooks();
    hooks.stop = &stop;
    hooks.reason_folder = folder_.string();
    hooks.on_step = [&](const runlog::StepRow& row) {
      stop.store(Stopped());
      if (speaks_ && hooks_.on_step) hooks_.on_step(run, row);
    };
    hooks.on_event = [&](const runlog::Event& event) {
      if (speaks_ && hooks_.on_event) hooks_.on_event(run, event);
    };
    const RunFiles files = {paths, leftovers_ == Leftovers::kResume};
    const runlog::RunLog log = TrainRun(experiment_, *what.arm, what.seed,
                                        corpus_, team, hooks, files);
    // By the log, not by this process's flag: another one may have voted.
    const bool stopped =
        !log.events.empty() && log.events.back().kind == "interrupt";
    if (stopped) ended_.store(true);
    // Each run writes its own element.
    paths_[run] = stopped ? paths.PartialLog() : paths.Log();
    if (!speaks_) return;
    // Those of a run that its numbers ended may tell why.
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
  const RunnerHooks& hooks_;
  const bool speaks_;  // of several processes, the first one
  std::vector<fs::path> paths_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> ended_{false};  // a run was stopped
  std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_ until the threads have joined
};

}  // namespace

std::string Run::Name() const {
  return fmt::format("{}-seed{}", arm->name, seed);
}

std::vector<Run> PlanRuns(const Experiment& experiment,
                          const std::string& only_arm) {
  // Refuse what an hour's training would meet.
  ResolveRecipes(experiment);
  CheckReplays(experiment);
  CheckLaunch(experiment);
  std::vector<Run> runs;
  for (const uint64_t seed : experiment.train.seeds) {
    for (const Arm& arm : experiment.arms) {
      if (only_arm.empty() || arm.name == only_arm)
        runs.push_back({&arm, seed});
    }
  }
  if (runs.empty()) {
    std::vector<std::string> names;
    for (const Arm& arm : experiment.arms) names.push_back(arm.name);
    ThrowError(ErrorKind::kConfig,
               "{}: there is no arm `{}`. Arms of this experiment: {}.",
               experiment.path.string(), only_arm, fmt::join(names, ", "));
  }
  return runs;
}

std::vector<fs::path> ExecuteRuns(const Experiment& experiment,
                                  const std::vector<Run>& runs,
                                  const corpus::Corpus& corpus,
                                  const fs::path& folder, Leftovers leftovers,
                                  const RunnerHooks& hooks) {
  if (leftovers == Leftovers::kRefuse) RefuseUnfinished(runs, folder);
  if (leftovers == Leftovers::kResume) {
    // All of them before the first one changes a file.
    for (const Run& run : runs) {
      CheckContinuation(
          {folder, run.Name()},
          DescribePlannedRun(experiment, *run.arm, run.seed, corpus));
    }
  }
  CheckMemory(experiment, CrewFor(experiment, runs.size()).side_by_side);
  if (transport::DetectLaunch().process == 0) {
    CheckFolderTakes(folder, EstimatedLogBytes(experiment, runs.size()));
    RemoveReasons(folder);
  }
  if (hooks.on_accepted) hooks.on_accepted();
  return Runner(experiment, runs, corpus, folder, leftovers, hooks).Execute();
}

}  // namespace isoloss::train
