// isoloss watch: runs that are being made, live.

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "commands.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/report/live_view.h"
#include "isoloss/runlog/recorder.h"
#include "judge.h"
#include "open_log.h"
#include "terminal_width.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;
using report::LiveRun;
using report::RunState;
using Clock = std::chrono::steady_clock;

constexpr int kRowsOfFiles = 40;
/// Between two runs of one execution no journal is there; a folder counts as
/// ended when none has come for so long.
constexpr auto kPatience = std::chrono::seconds(5);

struct WatchArguments {
  fs::path path;
  double interval_seconds = 1;
  bool once = false;
  bool ascii = false;
};

/// The files of one run, and what was read of them last.
class WatchedRun {
 public:
  WatchedRun(fs::path folder, const std::string& name)
      : folder_(std::move(folder)) {
    run_.name = name;
  }

  /// Reads what has changed. A run that vanishes for a moment, between its
  /// journal and its log, stays as it was.
  void Update() {
    if (TryRead(".journal", ".h5")) return;
    if (TryRead(".h5", "")) return;
    TryRead(".partial.h5", "");
  }

  const LiveRun& run() const { return run_; }

 private:
  struct Stamp {
    fs::path file;
    uintmax_t size = 0;
    fs::file_time_type time;
    bool operator==(const Stamp&) const = default;
  };

  /// Reads NAME`extension` unless NAME`unless` is there.
  bool TryRead(const std::string& extension, const std::string& unless) {
    std::error_code error;
    const fs::path file = folder_ / (run_.name + extension);
    if (!unless.empty() && fs::exists(folder_ / (run_.name + unless), error)) {
      return false;
    }
    Stamp stamp{file, fs::file_size(file, error), {}};
    if (!error) stamp.time = fs::last_write_time(file, error);
    if (error) return false;
    const bool live = extension != ".h5";
    run_.quiet_seconds =
        live ? std::chrono::duration<double>(fs::file_time_type::clock::now() -
                                             stamp.time)
                   .count()
             : std::numeric_limits<double>::quiet_NaN();
    if (stamp == last_) return true;
    Read(file, live);
    last_ = stamp;
    return true;
  }

  void Read(const fs::path& file, bool live) {
    try {
      OpenedLog opened = OpenLog(file);
      // A torn tail is a record that is being written just now.
      run_.log = std::move(opened.log);
      run_.state = report::StateOf(run_.log, live);
      run_.note.clear();
    } catch (const Error& problem) {
      std::error_code error;
      if (!fs::exists(file, error)) return;  // finished in this moment
      run_.state = RunState::kUnreadable;
      run_.note = problem.what();
    }
  }

  fs::path folder_;
  Stamp last_;
  LiveRun run_;
};

/// Is it a log of a run, not a dump of tensors or a hidden temporary file?
bool IsRunFile(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name.starts_with(".") || name.find(".dump-") != std::string::npos) {
    return false;
  }
  return file.extension() == ".journal" || file.extension() == ".h5";
}

/// Everything below one path: the runs of a folder, or one run.
class Watched {
 public:
  explicit Watched(const fs::path& path) : path_(path) {
    std::error_code error;
    folder_ = fs::is_directory(path, error);
    if (!folder_) Add(path.parent_path(), runlog::RunPaths::Of(path).name);
  }

  void Update() {
    if (folder_) FindRuns();
    for (auto& [name, run] : runs_) run.Update();
  }

  bool folder() const { return folder_; }

  std::vector<LiveRun> Runs() const {
    std::vector<LiveRun> runs;
    for (const auto& [name, run] : runs_) runs.push_back(run.run());
    return runs;
  }

 private:
  void Add(const fs::path& folder, const std::string& name) {
    runs_.try_emplace(name, folder, name);
  }

  void FindRuns() {
    std::error_code error;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(path_, error)) {
      if (IsRunFile(entry.path()))
        Add(path_, runlog::RunPaths::Of(entry.path()).name);
    }
  }

  fs::path path_;
  bool folder_ = false;
  std::map<std::string, WatchedRun> runs_;
};

bool UnderWay(const LiveRun& run) {
  return run.state == RunState::kStarting || run.state == RunState::kRunning;
}

/// Draws over what it drew before.
class Screen {
 public:
  explicit Screen(bool ascii)
      : terminal_(isatty(STDOUT_FILENO) == 1), ascii_(ascii) {}

  void Draw(const std::vector<LiveRun>& runs, const fs::path& path) {
    if (!terminal_) {
      fmt::print("{}\n", runs.empty() ? Waiting(path) : LiveLine(runs));
      std::fflush(stdout);
      return;
    }
    const int rows = Rows();
    std::vector<std::string> lines = {
        report::ClipLine(Waiting(path), Style().width)};
    if (!runs.empty()) lines = DrawLiveRuns(runs, rows, Style());
    // A block as high as the terminal would scroll, and the next redraw miss
    // its place.
    lines.resize(std::min(lines.size(), static_cast<size_t>(rows)));
    std::string text;
    if (lines_drawn_ > 0) text = fmt::format("\x1b[{}F\x1b[J", lines_drawn_);
    for (const std::string& line : lines) text += line + "\n";
    lines_drawn_ = lines.size();
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  /// The whole picture, wherever it goes.
  void DrawOnce(const std::vector<LiveRun>& runs) {
    for (const std::string& line :
         DrawLiveRuns(runs, terminal_ ? Rows() : kRowsOfFiles, Style())) {
      fmt::print("{}\n", line);
    }
  }

 private:
  static std::string Waiting(const fs::path& path) {
    return fmt::format("{}: no run yet, waiting", path.string());
  }

  report::TextStyle Style() const {
    ReportArguments arguments;
    arguments.ascii = ascii_;
    report::TextStyle style = arguments.Style();
    // A line as wide as the terminal would wrap.
    if (terminal_) {
      style.width = std::min(style.width, TerminalWidth().value_or(80)) - 1;
    }
    return style;
  }

  static int Rows() {
    winsize size = {};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) {
      return kRowsOfFiles;
    }
    return size.ws_row - 1;
  }

  bool terminal_;
  bool ascii_;
  size_t lines_drawn_ = 0;
};

/// False if a signal came meanwhile.
bool Sleep(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
    if (InterruptFlag().load()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return !InterruptFlag().load();
}

/// Runs that can't be read were shown with the reason.
ExitCode EndCode(const std::vector<LiveRun>& runs) {
  const bool unreadable = std::ranges::any_of(runs, [](const LiveRun& run) {
    return run.state == RunState::kUnreadable;
  });
  return unreadable ? ExitCode::kInvalid : ExitCode::kPass;
}

ExitCode WatchOnce(Watched& watched, const WatchArguments& arguments) {
  watched.Update();
  const std::vector<LiveRun> runs = watched.Runs();
  if (runs.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: 0 journals and logs, but --once shows at least 1 run. Pass "
               "the folder of a run, or leave out --once to wait for one.",
               arguments.path.string());
  }
  Screen(arguments.ascii).DrawOnce(runs);
  return EndCode(runs);
}

ExitCode WatchLive(Watched& watched, const WatchArguments& arguments) {
  Screen screen(arguments.ascii);
  InterruptFlag();  // from here on a signal ends the loop, not the program
  auto last_live = Clock::now();
  while (true) {
    watched.Update();
    const std::vector<LiveRun> runs = watched.Runs();
    screen.Draw(runs, arguments.path);
    const auto now = Clock::now();
    if (std::ranges::any_of(runs, UnderWay)) last_live = now;
    const bool ended =
        !runs.empty() && (!watched.folder() || now - last_live >= kPatience);
    if (ended && std::ranges::none_of(runs, UnderWay)) return EndCode(runs);
    if (!Sleep(arguments.interval_seconds)) return ExitCode::kPass;
  }
}

ExitCode Watch(const WatchArguments& arguments) {
  std::error_code error;
  const fs::path journal = runlog::RunPaths::Of(arguments.path).Journal();
  if (!fs::is_directory(arguments.path, error) && !fs::exists(journal, error)) {
    // Says at once what is wrong with a single run's file.
    OpenLog(arguments.path);
  }
  Watched watched(arguments.path);
  return arguments.once ? WatchOnce(watched, arguments)
                        : WatchLive(watched, arguments);
}

}  // namespace

Action DeclareWatch(CLI::App& app) {
  auto arguments = std::make_shared<WatchArguments>();
  app.add_option("path", arguments->path,
                 "Folder of runs, or the journal or log of one")
      ->required();
  app.add_option("--interval", arguments->interval_seconds,
                 "Seconds between two pictures")
      ->check(CLI::Range(0.05, 3600.0))
      ->capture_default_str();
  app.add_flag("--once", arguments->once, "Show one picture and end");
  app.add_flag("--ascii", arguments->ascii, "Draw with 7-bit characters only");
  app.description(
      "Watch runs while they are made: step, loss curve, speed, time left, "
      "events. It reads their journals and never disturbs them; ends when all "
      "have ended, or with Ctrl-C");
  return [arguments] { return Watch(*arguments); };
}

}  // namespace isoloss::cli
