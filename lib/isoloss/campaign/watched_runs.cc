#include "isoloss/campaign/watched_runs.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/logs/log_files.h"
#include "isoloss/logs/open_log.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/rows.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// WatchedRuns::ended says what the time is for.
constexpr auto kPatience = std::chrono::seconds(5);

/// Returns whether the name is that of a log or journal of a run, and not of a
/// hidden temporary file.
bool IsRunFile(const fs::path& file) {
  if (file.filename().string().starts_with(".")) return false;
  return file.extension() == ".journal" ||
         (file.extension() == ".h5" && !logs::IsNamedAsOther(file));
}

/// Keeps only the curves, since thousands of runs are held at a time.
runlog::RunLog CurvesOf(runlog::RunLog&& log) {
  const size_t all = runlog::ValueBytesOf(log);
  runlog::RunLog curves;
  curves.schema_version = log.schema_version;
  curves.provenance = std::move(log.provenance);
  curves.steps = std::move(log.steps);
  curves.events = std::move(log.events);
  curves.provenance.graph = {};
  curves.charge =
      hdf5::Lessened(log.charge, all - runlog::ValueBytesOf(curves));
  return curves;
}

}  // namespace

WatchedRun::WatchedRun(fs::path folder, const std::string& name,
                       const std::string& shown)
    : folder_(std::move(folder)), name_(name) {
  run_.name = Printable(shown);
}

void WatchedRun::Update() {
  if (TryRead(".journal", ".h5")) return;
  if (TryRead(".h5", "")) return;
  TryRead(".partial.h5", "");
}

bool WatchedRun::TryRead(const std::string& extension,
                         const std::string& unless) {
  std::error_code error;
  const fs::path file = folder_ / (name_ + extension);
  if (!unless.empty() && fs::exists(folder_ / (name_ + unless), error)) {
    return false;
  }
  const bool live = extension != ".h5";
  Stamp stamp{file, fs::file_size(file, error), {}};
  if (!error) stamp.time = fs::last_write_time(file, error);
  if (error) return ReadAnyway(file, live);
  run_.quiet_seconds = live ? std::chrono::duration<double>(
                                  fs::file_time_type::clock::now() - stamp.time)
                                  .count()
                            : std::numeric_limits<double>::quiet_NaN();
  if (stamp == last_) return true;
  Read(file, live);
  last_ = stamp;
  return true;
}

bool WatchedRun::ReadAnyway(const fs::path& file, bool live) {
  std::error_code error;
  if (!fs::exists(file, error)) return false;
  Read(file, live);
  return true;
}

void WatchedRun::Read(const fs::path& file, bool live) {
  try {
    run_.log.charge.reset();  // the new one takes its place
    logs::OpenedLog opened = logs::OpenLog(file);
    // A torn tail is a record that is being written just now.
    run_.log = CurvesOf(std::move(opened.log));
    is_run_ = true;
    run_.state = report::StateOf(run_.log, live);
    run_.note.clear();
  } catch (const hdf5::WrongKindError&) {
    is_run_ = false;
  } catch (const Error& problem) {
    std::error_code error;
    if (!fs::exists(file, error)) return;  // finished in this moment
    is_run_ = true;
    run_.state = report::RunState::kUnreadable;
    run_.note = Printable(problem.what());
  }
}

WatchedRuns::WatchedRuns(const fs::path& path)
    : path_(path), last_live_(Clock::now()) {
  std::error_code error;
  folder_ = fs::is_directory(path, error);
  if (folder_) {
    sweep_ = WatchedSweep::In(path);
  } else {
    const std::string name = runlog::RunPaths::Of(path).name;
    Add(path.parent_path(), name, name);
  }
}

void WatchedRuns::Update() {
  if (folder_) FindRuns();
  for (auto& [name, run] : runs_) run.Update();
  if (folder_ && !sweep_) plan_ = LiveJob(path_);
  saw_job_ = saw_job_ || plan_;
  ended_ = HasEnded();
}

bool WatchedRuns::HasEnded() {
  if (sweep_) return sweep_->AllFinished();
  const auto is_run = [](const auto& named) { return named.second.is_run(); };
  const auto under_way = [](const auto& named) {
    return named.second.is_run() &&
           report::IsUnderWay(named.second.run().state);
  };
  const auto now = Clock::now();
  if (plan_ || std::ranges::any_of(runs_, under_way)) {
    last_live_ = now;
    return false;
  }
  const bool settled = !folder_ || saw_job_ || now - last_live_ >= kPatience;
  return settled && std::ranges::any_of(runs_, is_run);
}

std::optional<report::LiveJob> WatchedRuns::Job() const {
  if (sweep_) return sweep_->Job();
  if (!plan_) return std::nullopt;
  return report::JobOf(plan_->runs, plan_->steps, Runs());
}

std::vector<report::LiveRun> WatchedRuns::Runs() const {
  std::vector<report::LiveRun> runs;
  for (const auto& [name, run] : runs_) {
    if (run.is_run()) runs.push_back(run.run());
  }
  return runs;
}

bool WatchedRuns::unreadable() const {
  return std::ranges::any_of(runs_, [](const auto& named) {
    return named.second.is_run() &&
           named.second.run().state == report::RunState::kUnreadable;
  });
}

void WatchedRuns::Add(const fs::path& folder, const std::string& name,
                      const std::string& shown) {
  runs_.try_emplace(shown, folder, name, shown);
}

void WatchedRuns::FindRuns() {
  if (sweep_) {
    // Finished runs are counted, not read, since there may be thousands.
    sweep_->Update();
    for (const WatchedSweep::Begun& run : sweep_->begun()) {
      Add(run.folder, run.file, run.name);
    }
    return;
  }
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(path_, error)) {
    if (!IsRunFile(entry.path())) continue;
    const std::string name = runlog::RunPaths::Of(entry.path()).name;
    Add(path_, name, name);
  }
}

}  // namespace isoloss::campaign
