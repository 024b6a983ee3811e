// isoloss watch: runs that are being made, live.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "interrupt.h"
#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/report/live_view.h"
#include "isoloss/runlog/recorder.h"
#include "isoloss/runlog/sealed_file.h"
#include "job_file.h"
#include "judge.h"
#include "log_files.h"
#include "open_log.h"
#include "terminal_width.h"

namespace isoloss::cli {
namespace {

namespace fs = std::filesystem;
using report::LiveRun;
using report::RunState;
using Clock = std::chrono::steady_clock;

constexpr int kRowsOfFiles = 40;
/// Where no job has said what it will make, a folder counts as ended when no
/// journal has come for so long.
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
      : folder_(std::move(folder)), name_(name) {
    run_.name = Printable(name);
  }

  /// Reads what has changed. A run that vanishes for a moment, between its
  /// journal and its log, stays as it was.
  void Update() {
    if (TryRead(".journal", ".h5")) return;
    if (TryRead(".h5", "")) return;
    TryRead(".partial.h5", "");
  }

  const LiveRun& run() const { return run_; }
  /// False of a probe log or an ensemble under a name of the user's.
  bool is_run() const { return is_run_; }

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
    const fs::path file = folder_ / (name_ + extension);
    if (!unless.empty() && fs::exists(folder_ / (name_ + unless), error)) {
      return false;
    }
    Stamp stamp{file, fs::file_size(file, error), {}};
    if (!error) stamp.time = fs::last_write_time(file, error);
    if (error) return ReadAnyway(file, extension != ".h5");
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

  /// What has no size is no file, but may have a file's name: a pipe, say.
  /// False if nothing is there.
  bool ReadAnyway(const fs::path& file, bool live) {
    std::error_code error;
    if (!fs::exists(file, error)) return false;
    Read(file, live);
    return true;
  }

  void Read(const fs::path& file, bool live) {
    try {
      run_.log.charge.reset();  // the new one takes its place
      OpenedLog opened = OpenLog(file);
      // A torn tail is a record that is being written just now.
      run_.log = std::move(opened.log);
      is_run_ = true;
      run_.state = report::StateOf(run_.log, live);
      run_.note.clear();
    } catch (const runlog::WrongKindError&) {
      is_run_ = false;
    } catch (const Error& problem) {
      std::error_code error;
      if (!fs::exists(file, error)) return;  // finished in this moment
      is_run_ = true;
      run_.state = RunState::kUnreadable;
      run_.note = Printable(problem.what());
    }
  }

  fs::path folder_;
  std::string name_;
  Stamp last_;
  LiveRun run_;
  bool is_run_ = true;
};

/// By its name: a log or journal of a run, and no hidden temporary file.
bool IsRunFile(const fs::path& file) {
  if (file.filename().string().starts_with(".")) return false;
  return file.extension() == ".journal" ||
         (file.extension() == ".h5" && !IsNamedAsOther(file));
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
    if (!folder_) return;
    plan_ = LiveJob(path_);
    saw_job_ = saw_job_ || plan_;
  }

  /// The job that is at work there now.
  std::optional<report::LiveJob> Job() const {
    if (!plan_) return std::nullopt;
    return report::JobOf(plan_->runs, plan_->steps, Runs());
  }
  bool saw_job() const { return saw_job_; }

  bool folder() const { return folder_; }

  std::vector<LiveRun> Runs() const {
    std::vector<LiveRun> runs;
    for (const auto& [name, run] : runs_) {
      if (run.is_run()) runs.push_back(run.run());
    }
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
  bool saw_job_ = false;
  std::optional<JobPlan> plan_;
  std::map<std::string, WatchedRun> runs_;
};

bool UnderWay(const LiveRun& run) {
  return run.state == RunState::kStarting || run.state == RunState::kRunning;
}

/// One picture: the runs that are there and the job that makes them.
struct Picture {
  std::vector<LiveRun> runs;
  std::optional<report::LiveJob> job;

  bool empty() const { return runs.empty() && !job; }
};

/// Draws over what it drew before, on the terminal's other screen: pictures
/// leave no trace among the lines above, but for the last one.
class Screen {
 public:
  explicit Screen(bool ascii)
      : terminal_(KnowsEscapes(STDOUT_FILENO)), ascii_(ascii) {}
  ~Screen() { Leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Draw(const Picture& picture, const fs::path& path) {
    if (!terminal_) {
      fmt::print("{}\n", picture.empty() ? Waiting(path)
                                         : LiveLine(picture.runs, picture.job));
      std::fflush(stdout);
      return;
    }
    last_ = Lines(picture, path);
    // Other screen, no cursor; then each line over the one that was there.
    std::string text = inside_ ? "" : "\x1b[?1049h\x1b[?25l";
    inside_ = true;
    text += "\x1b[H";
    for (const std::string& line : last_) text += line + "\x1b[K\n";
    text += "\x1b[J";
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  /// The whole picture, wherever it goes.
  void DrawOnce(const Picture& picture) {
    for (const std::string& line :
         DrawLiveRuns(picture.runs, terminal_ ? Rows() : kRowsOfFiles, Style(),
                      picture.job)) {
      fmt::print("{}\n", line);
    }
  }

 private:
  static std::string Waiting(const fs::path& path) {
    return fmt::format("{}: no run yet, waiting", Printable(path.string()));
  }

  std::vector<std::string> Lines(const Picture& picture,
                                 const fs::path& path) const {
    const int rows = Rows();
    std::vector<std::string> lines = {
        report::ClipLine(Waiting(path), Style().width)};
    if (!picture.empty()) {
      lines = DrawLiveRuns(picture.runs, rows, Style(), picture.job);
    }
    // One line more would scroll.
    lines.resize(std::min(lines.size(), static_cast<size_t>(rows)));
    return lines;
  }

  void Leave() {
    if (!inside_) return;
    std::string text = "\x1b[?25h\x1b[?1049l";
    for (const std::string& line : last_) text += line + "\n";
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
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
    const int rows = TerminalHeight().value_or(kRowsOfFiles);
    return rows < 2 ? kRowsOfFiles : rows - 1;
  }

  bool terminal_;
  bool ascii_;
  bool inside_ = false;  // the other screen
  std::vector<std::string> last_;
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
  const Picture picture{watched.Runs(), watched.Job()};
  if (picture.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: 0 journals and logs, but --once shows at least 1 run. Pass "
               "the folder of a run, or leave out --once to wait for one.",
               arguments.path.string());
  }
  Screen(arguments.ascii).DrawOnce(picture);
  return EndCode(picture.runs);
}

ExitCode WatchLive(Watched& watched, const WatchArguments& arguments) {
  Screen screen(arguments.ascii);
  InterruptFlag();  // from here on a signal ends the loop, not the program
  auto last_live = Clock::now();
  while (true) {
    watched.Update();
    const Picture picture{watched.Runs(), watched.Job()};
    screen.Draw(picture, arguments.path);
    const auto now = Clock::now();
    const bool live =
        picture.job || std::ranges::any_of(picture.runs, UnderWay);
    if (live) last_live = now;
    // A job that was seen says itself when it ends.
    const bool settled =
        !watched.folder() || watched.saw_job() || now - last_live >= kPatience;
    if (!live && !picture.runs.empty() && settled) {
      return EndCode(picture.runs);
    }
    if (!Sleep(arguments.interval_seconds)) return ExitCode::kPass;
  }
}

ExitCode Watch(const WatchArguments& arguments) {
  std::error_code error;
  const fs::path journal = runlog::RunPaths::Of(arguments.path).Journal();
  if (!fs::is_directory(arguments.path, error) && !fs::exists(journal, error)) {
    // Says at once what is wrong with a single run's file. Of another kind that
    // is whole there is nothing to wait for, and nothing is wrong with it.
    try {
      OpenLog(arguments.path);
    } catch (const runlog::WrongKindError& reason) {
      fmt::print("{}\n", Printable(reason.what()));
      return ExitCode::kPass;
    }
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
      ->check(NumberIn(0.05, 3600.0))
      ->capture_default_str();
  app.add_flag("--once", arguments->once, "Show one picture and end");
  app.add_flag("--ascii", arguments->ascii, "Draw with 7-bit characters only");
  app.description(
      "Watch runs while they are made: step, loss curve, speed, time left, "
      "events, and of a job of several runs how far it is and how long it will "
      "take. It reads their journals and never disturbs them; ends when the "
      "job has ended, or with Ctrl-C");
  return [arguments] { return Watch(*arguments); };
}

}  // namespace isoloss::cli
