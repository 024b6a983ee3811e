#include "isoloss/report/live_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>

namespace isoloss::report {
namespace {

using document::Chart;
using document::DrawChart;
using document::kBlue;
using document::kBold;
using document::kDim;
using document::kGreen;
using document::kRed;
using document::kYellow;
using document::Paint;
using document::TextStyle;

constexpr size_t kPaceSteps = 20;
constexpr size_t kLastEvents = 3;
/// A run takes these lines besides its chart and events: head, bar, axis and
/// labels.
constexpr int kLinesBesides = 6;
constexpr int kHighestChart = 8;
constexpr int kLowestChart = 3;
constexpr int kNarrowestChart = 30;
constexpr int kNarrowestBar = 10;
/// The bar follows "  42 %  ".
constexpr int kBarHead = 8;
/// A journal that was quiet for this many steps, and this long, is remarkable,
/// because the run may have been killed.
constexpr double kQuietSteps = 10;
constexpr double kQuietSeconds = 30;

const char* StateWord(RunState state) {
  switch (state) {
    case RunState::kStarting:
      return "starting";
    case RunState::kRunning:
      return "running";
    case RunState::kInterrupted:
      return "interrupted";
    case RunState::kAborted:
      return "aborted";
    case RunState::kFinished:
      return "finished";
    case RunState::kUnreadable:
      return "unreadable";
  }
  return "";
}

const char* StateColor(RunState state) {
  switch (state) {
    case RunState::kFinished:
      return kGreen;
    case RunState::kAborted:
    case RunState::kUnreadable:
      return kRed;
    case RunState::kInterrupted:
      return kYellow;
    default:
      return kBlue;
  }
}

int64_t LastStep(const runlog::RunLog& log) {
  return log.steps.step.empty() ? 0 : log.steps.step.back();
}

/// Returns "3.2145", or "-" for a column that the log lacks.
std::string LastText(const std::vector<double>& values) {
  return values.empty() ? "-" : fmt::format("{:.4f}", values.back());
}

std::string ThousandsText(double value) {
  if (!(value >= 0 && value < 1e15)) return "-";
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string LeftText(const LiveRun& run, const Pace& pace) {
  const double left =
      static_cast<double>(run.log.provenance.steps_planned - LastStep(run.log));
  return DurationText(std::max(left, 0.0) * pace.step_seconds);
}

/// Returns the first of `lines` that fits, or else the last line, cut.
std::string FirstThatFits(const std::vector<std::string>& lines, int columns) {
  for (const std::string& line : lines) {
    if (ClipLine(line, columns) == line) return line;
  }
  return ClipLine(lines.back(), columns);
}

/// Returns "step 120 of 600  loss 3.2145 nats  grad norm 0.8123", or a shorter
/// text.
std::string NumbersText(const LiveRun& run,
                        int columns = std::numeric_limits<int>::max()) {
  const auto& s = run.log.steps;
  const int64_t step = LastStep(run.log);
  const int64_t planned = run.log.provenance.steps_planned;
  const std::string loss = LastText(s.loss_nats);
  return FirstThatFits(
      {fmt::format("step {} of {}  loss {} nats  grad norm {}", step, planned,
                   loss, LastText(s.grad_norm)),
       fmt::format("step {} of {}  loss {} nats", step, planned, loss),
       fmt::format("step {}/{}  loss {}", step, planned, loss),
       fmt::format("step {}/{}", step, planned)},
      columns);
}

std::string Bar(const LiveRun& run, const TextStyle& style) {
  const int64_t planned = run.log.provenance.steps_planned;
  const double share = planned > 0
                           ? std::clamp(static_cast<double>(LastStep(run.log)) /
                                            static_cast<double>(planned),
                                        0.0, 1.0)
                           : 0.0;
  const auto pace = PaceOf(run.log.steps);
  std::string speed;
  if (pace) {
    const std::string left = LeftText(run, *pace);
    speed = fmt::format("  {} token/s  {} left",
                        ThousandsText(pace->tokens_per_second), left);
    // The time left is worth more than the speed.
    if (style.width - kBarHead - static_cast<int>(speed.size()) <
        kNarrowestBar) {
      speed = fmt::format("  {} left", left);
    }
  }
  const int width =
      std::max(0, style.width - kBarHead - static_cast<int>(speed.size()));
  const double percent = std::floor(100 * share);
  if (width < 1) return fmt::format("{:.0f} %{}", percent, speed);
  const int filled = static_cast<int>(share * width);
  std::string cells;
  for (int i = 0; i < width; ++i) {
    if (style.ascii) {
      cells += i < filled ? '#' : '.';
    } else {
      cells += i < filled ? "█" : "░";
    }
  }
  return fmt::format("{:>4.0f} %  {}{}", percent, cells, speed);
}

std::string QuietText(const LiveRun& run) {
  const auto pace = PaceOf(run.log.steps);
  const double usual = pace ? kQuietSteps * pace->step_seconds : 0;
  if (!(run.quiet_seconds > std::max(kQuietSeconds, usual))) return "";
  return fmt::format("  nothing new for {}: was it killed?",
                     DurationText(run.quiet_seconds));
}

void AppendEvents(const LiveRun& run, const TextStyle& style,
                  std::vector<std::string>& lines) {
  const auto& events = run.log.events;
  const size_t first = events.size() - std::min(events.size(), kLastEvents);
  for (size_t i = first; i < events.size(); ++i) {
    const auto seconds = static_cast<std::time_t>(events[i].unix_seconds);
    std::tm utc = {};
    gmtime_r(&seconds, &utc);
    std::string text =
        fmt::format("  {:02}:{:02}:{:02}  {:<10}  {}", utc.tm_hour, utc.tm_min,
                    utc.tm_sec, events[i].kind, events[i].text);
    std::replace(text.begin(), text.end(), '\n', ' ');
    lines.push_back(Paint(ClipLine(text, style.width), kDim, style));
  }
}

void AppendRun(const LiveRun& run, int chart_rows, const TextStyle& style,
               std::vector<std::string>& lines) {
  lines.push_back(Paint(ClipLine(run.name, style.width), kBold, style) +
                  ClipLine(QuietText(run),
                           style.width - static_cast<int>(run.name.size())));
  lines.push_back("  " + NumbersText(run, style.width - 2));
  lines.push_back(Bar(run, style));
  if (chart_rows >= kLowestChart && style.width >= kNarrowestChart &&
      run.log.steps.step.size() > 1) {
    Chart chart;
    chart.step = run.log.steps.step;
    chart.curves = {{run.log.steps.loss_nats, false}};
    chart.rows = chart_rows;
    const auto drawn = DrawChart(chart, style);
    lines.insert(lines.end(), drawn.begin(), drawn.end());
  }
  AppendEvents(run, style, lines);
  if (!run.note.empty())
    lines.push_back(ClipLine("  " + run.note, style.width));
  lines.emplace_back();
}

std::string EndedLine(const LiveRun& run, size_t name_width,
                      const TextStyle& style) {
  const std::string state = fmt::format("{:<11}", StateWord(run.state));
  const int room =
      std::max(10, style.width - static_cast<int>(name_width) - 15);
  const std::string rest = run.note.empty() ? NumbersText(run, room) : run.note;
  return fmt::format("{:<{}}  {}  {}", run.name, name_width,
                     Paint(state, StateColor(run.state), style),
                     ClipLine(rest, room));
}

}  // namespace

bool IsUnderWay(RunState state) {
  return state == RunState::kStarting || state == RunState::kRunning;
}

RunState StateOf(const runlog::RunLog& log, bool has_journal) {
  const std::string last = log.events.empty() ? "" : log.events.back().kind;
  if (last == "interrupt") return RunState::kInterrupted;
  const auto is_abort = [](const runlog::Event& event) {
    return event.kind == "abort";
  };
  if (!has_journal) {
    return std::ranges::any_of(log.events, is_abort) ? RunState::kAborted
                                                     : RunState::kFinished;
  }
  return log.steps.step.empty() ? RunState::kStarting : RunState::kRunning;
}

std::optional<Pace> PaceOf(const runlog::StepColumns& steps) {
  const size_t count = std::min(steps.step_seconds.size(), kPaceSteps);
  if (count == 0 || steps.tokens_seen.size() < steps.step_seconds.size()) {
    return std::nullopt;
  }
  const double seconds =
      std::accumulate(steps.step_seconds.end() - static_cast<ptrdiff_t>(count),
                      steps.step_seconds.end(), 0.0);
  if (!(seconds > 0)) return std::nullopt;
  const size_t before = steps.tokens_seen.size() - count;
  // FP64 does not overflow, whatever the log holds.
  const double tokens =
      static_cast<double>(steps.tokens_seen.back()) -
      (before == 0 ? 0 : static_cast<double>(steps.tokens_seen[before - 1]));
  return Pace{tokens / seconds, seconds / static_cast<double>(count)};
}

std::string DurationText(double seconds) {
  if (!(seconds >= 0 && seconds < 1e12)) return "?";
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  const int64_t minutes = whole / 60;
  if (minutes < 60) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{}:{:02}:{:02}", minutes / 60, minutes % 60, whole % 60);
}

std::string ClipLine(std::string_view line, int columns) {
  std::string clipped;
  int seen = 0;
  bool escape = false;
  for (const char c : line) {
    if (c == '\x1b') escape = true;
    if (escape) {
      clipped += c;
      escape = c != 'm';
      continue;
    }
    const bool begins = (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    seen += begins ? 1 : 0;
    if (seen <= columns) clipped += c;
  }
  return clipped;
}

LiveJob JobOf(const std::vector<std::string>& planned, int64_t steps,
              const std::vector<LiveRun>& runs) {
  LiveJob job{.runs = planned.size()};
  const auto all = static_cast<double>(steps);
  double left = all * static_cast<double>(planned.size());
  double steps_per_second = 0;
  for (const std::string& name : planned) {
    const auto run = std::ranges::find(runs, name, &LiveRun::name);
    if (run == runs.end()) {
      job.waiting.push_back(name);
      continue;
    }
    if (!IsUnderWay(run->state) && run->state != RunState::kInterrupted) {
      ++job.finished;
      left -= all;
      continue;
    }
    left -= std::min(static_cast<double>(LastStep(run->log)), all);
    // The job goes on with this run when its turn comes.
    if (!IsUnderWay(run->state)) {
      job.waiting.push_back(name);
    } else if (const auto pace = PaceOf(run->log.steps)) {
      steps_per_second += 1 / pace->step_seconds;
    }
  }
  if (job.runs > 0 && steps > 0) {
    job.done = 1 - left / (all * static_cast<double>(job.runs));
  }
  if (steps_per_second > 0) job.seconds_left = left / steps_per_second;
  return job;
}

std::string JobLine(const LiveJob& job, int columns) {
  const std::string left =
      job.seconds_left ? DurationText(*job.seconds_left) + " left" : "";
  const std::string comma = left.empty() ? "" : ", ";
  const double percent = std::floor(100 * job.done);
  return FirstThatFits(
      {fmt::format("{:.0f} % done, {} of {} runs finished{}{}", percent,
                   job.finished, job.runs, comma, left),
       fmt::format("{:.0f} %, {} of {} runs{}{}", percent, job.finished,
                   job.runs, comma, left),
       fmt::format("{:.0f} %{}{}", percent, comma, left),
       left.empty() ? fmt::format("{:.0f} %", percent) : left},
      columns);
}

std::vector<std::string> DrawLiveRuns(const std::vector<LiveRun>& runs,
                                      int rows, const TextStyle& style,
                                      const std::optional<LiveJob>& job) {
  int live = 0;
  int events = 0;
  size_t name_width = 0;
  for (const LiveRun& run : runs) {
    if (IsUnderWay(run.state)) {
      ++live;
      events += static_cast<int>(std::min(run.log.events.size(), kLastEvents));
    } else {
      name_width = std::max(name_width, run.name.size());
    }
  }
  int ended = static_cast<int>(runs.size()) - live;
  std::vector<std::string> lines;
  if (job) {
    lines.push_back(Paint(JobLine(*job, style.width), kBold, style));
    if (!job->waiting.empty()) {
      lines.push_back(fmt::format("{} waiting: {}", job->waiting.size(),
                                  fmt::join(job->waiting, ", ")));
    }
    lines.emplace_back();
    ended += static_cast<int>(lines.size());
  }
  int chart_rows = 0;
  if (live > 0) {
    chart_rows = std::min(
        kHighestChart, (rows - ended - events - kLinesBesides * live) / live);
  }
  for (const LiveRun& run : runs) {
    if (IsUnderWay(run.state)) AppendRun(run, chart_rows, style, lines);
  }
  for (const LiveRun& run : runs) {
    if (!IsUnderWay(run.state)) {
      lines.push_back(EndedLine(run, name_width, style));
    }
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) line = ClipLine(line, style.width);
  return lines;
}

std::string LiveLine(const std::vector<LiveRun>& runs,
                     const std::optional<LiveJob>& job) {
  std::vector<std::string> texts;
  for (const LiveRun& run : runs) {
    texts.push_back(
        fmt::format("{}: {}, {}", run.name, StateWord(run.state),
                    run.note.empty() ? NumbersText(run) : run.note));
  }
  if (job) {
    texts.push_back(JobLine(*job, std::numeric_limits<int>::max()));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace isoloss::report
