#include "isoloss/train/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "isoloss/base/error.h"
#include "isoloss/base/threads.h"
#include "isoloss/runlog/writer.h"
#include "isoloss/train/trainer.h"

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

Crew CrewFor(const Experiment& experiment, size_t runs) {
  const int requested = experiment.parallel.workers;
  const int workers = requested > 0 ? requested : AvailableProcessors();
  return {workers, std::min(workers, static_cast<int>(runs))};
}

/// Upper estimate of what the logs take: columns of 8 bytes, texts, headers.
size_t EstimatedLogBytes(const Experiment& experiment, size_t runs) {
  constexpr size_t kTexts = size_t{256} * 1024;
  constexpr size_t kBytesPerStep = 128;
  const auto steps = static_cast<size_t>(experiment.train.steps);
  const size_t evaluations =
      steps / static_cast<size_t>(experiment.log.eval_every) + 2;
  return runs * (kTexts + steps * kBytesPerStep +
                 evaluations * experiment.log.eval_sequences * sizeof(double));
}

/// Hands out runs to executing threads and collects what they leave.
class Runner {
 public:
  Runner(const Experiment& experiment, const std::vector<Run>& runs,
         const corpus::Corpus& corpus, const fs::path& folder,
         const RunnerHooks& hooks)
      : experiment_(experiment),
        runs_(runs),
        corpus_(corpus),
        folder_(folder),
        hooks_(hooks),
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

  void Work(int team_size) {
    try {
      ThreadTeam team(team_size);
      for (size_t run = next_.fetch_add(1); run < runs_.size() && !Stopped();
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
    std::atomic<bool> stop{false};
    RunHooks hooks;
    hooks.stop = &stop;
    hooks.on_step = [&](const runlog::StepRow& row) {
      stop.store(Stopped());
      if (hooks_.on_step) hooks_.on_step(run, row);
    };
    const runlog::RunLog log =
        TrainRun(experiment_, *what.arm, what.seed, corpus_, team, hooks);
    const bool stopped = stop.load() && !log.provenance.complete;
    const fs::path partial = folder_ / (what.Name() + ".partial.h5");
    const fs::path path = stopped ? partial : folder_ / (what.Name() + ".h5");
    runlog::WriteRunLog(log, path);
    // What an earlier, stopped execution left would be a second log of the run.
    if (!stopped) fs::remove(partial);
    paths_[run] = path;  // each run writes its own element
    if (hooks_.on_finish) hooks_.on_finish(run, log);
  }

  const Experiment& experiment_;
  const std::vector<Run>& runs_;
  const corpus::Corpus& corpus_;
  const fs::path& folder_;
  const RunnerHooks& hooks_;
  std::vector<fs::path> paths_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;  // guarded by mutex_ until the threads have joined
};

}  // namespace

std::string Run::Name() const {
  return fmt::format("{}-seed{}", arm->name, seed);
}

std::vector<Run> PlanRuns(const Experiment& experiment,
                          const std::string& only_arm) {
  ResolveRecipes(experiment);  // refuses what an hour's training would meet
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
                                  const fs::path& folder,
                                  const RunnerHooks& hooks) {
  CheckMemory(experiment, CrewFor(experiment, runs.size()).side_by_side);
  CheckFolderTakes(folder, EstimatedLogBytes(experiment, runs.size()));
  return Runner(experiment, runs, corpus, folder, hooks).Execute();
}

}  // namespace isoloss::train
