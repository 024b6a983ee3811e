// Implements `isoloss watch`, which shows runs live while they are made.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "arguments.h"
#include "commands.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/campaign/watched_runs.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/logs/open_log.h"
#include "isoloss/report/live_screen.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/system/interrupt.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct WatchArguments {
  fs::path path;
  double interval_seconds = 1;
  bool once = false;
  bool ascii = false;
};

/// Returns false if a signal came meanwhile.
bool Sleep(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (system::InterruptFlag().load()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return !system::InterruptFlag().load();
}

/// Runs that can't be read were shown with the reason.
ExitCode EndCode(const campaign::WatchedRuns& watched) {
  return watched.unreadable() ? ExitCode::kInvalid : ExitCode::kPass;
}

ExitCode WatchOnce(campaign::WatchedRuns& watched,
                   const WatchArguments& arguments) {
  watched.Update();
  const report::LivePicture picture{watched.Runs(), watched.Job()};
  if (picture.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: 0 journals and logs, but --once shows at least 1 run. Pass "
               "the folder of a run, or leave out --once to wait for one.",
               arguments.path.string());
  }
  report::LiveScreen(arguments.ascii).DrawOnce(picture);
  return EndCode(watched);
}

ExitCode WatchLive(campaign::WatchedRuns& watched,
                   const WatchArguments& arguments) {
  report::LiveScreen screen(arguments.ascii);
  system::ListenToSignals();  // from here on a signal ends the loop, not the
                              // program
  while (true) {
    const auto begin = Clock::now();
    watched.Update();
    const std::chrono::duration<double> reading = Clock::now() - begin;
    const report::LivePicture picture{watched.Runs(), watched.Job()};
    screen.Draw(picture, arguments.path);
    if (watched.ended()) return EndCode(watched);
    // With thousands of runs, reading must not keep their file system busy all
    // the time.
    if (!Sleep(std::max(arguments.interval_seconds, reading.count())))
      return ExitCode::kPass;
  }
}

ExitCode Watch(const WatchArguments& arguments) {
  std::error_code error;
  const fs::path journal = runlog::RunPaths::Of(arguments.path).Journal();
  if (!fs::is_directory(arguments.path, error) && !fs::exists(journal, error)) {
    // Says at once what is wrong with the file of a single run. A whole file of
    // another kind ends the command: nothing more comes, and nothing is wrong
    // with it.
    try {
      logs::OpenLog(arguments.path);
    } catch (const hdf5::WrongKindError& reason) {
      fmt::print("{}\n", Printable(reason.what()));
      return ExitCode::kPass;
    }
  }
  campaign::WatchedRuns watched(arguments.path);
  return arguments.once ? WatchOnce(watched, arguments)
                        : WatchLive(watched, arguments);
}

Action DeclareWatch(CLI::App& app) {
  auto arguments = std::make_shared<WatchArguments>();
  AddOption(app, "path", arguments->path,
            "Folder of runs, or the journal or log of one")
      .Required()
      .TypeName(kLogFile);
  AddOption(app, "--interval", arguments->interval_seconds,
            "Seconds between two pictures")
      .NumberIn(0.05, 3600.0)
      .ShowDefault();
  AddFlag(app, "--once", arguments->once, "Show one picture and end");
  AddFlag(app, "--ascii", arguments->ascii, "Draw with 7-bit characters only");
  Describe(
      app,
      "Watch runs while they are made: step, loss curve, speed, time left, "
      "events, and of a job of several runs how far it is and how long it will "
      "take. It reads their journals and never disturbs them; ends when the "
      "job has ended, or with Ctrl-C");
  return [arguments] { return Watch(*arguments); };
}

}  // namespace

extern constinit const Command kCommand_watch = {
    "watch", "Watch runs while they are made", "isoloss watch runs/demo",
    &DeclareWatch};

}  // namespace isoloss::cli
