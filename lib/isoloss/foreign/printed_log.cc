#include "isoloss/foreign/printed_log.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "isoloss/foreign/format.h"
#include "isoloss/foreign/plan.h"
#include "isoloss/foreign/text.h"
#include "isoloss/foreign/told.h"

namespace isoloss::foreign {

bool LineReader::has_loss() const {
  return run_.Main(Quantity::kLoss) != nullptr ||
         run_.Main(Quantity::kEvalLoss) != nullptr;
}

namespace {

/// Returns whether the line is quoted. Sources and documents show logs in
/// comments, strings and lists. No program prints a line that begins so.
bool IsQuoted(std::string_view line) {
  constexpr std::string_view kMarks[] = {"//", "#", "*", "\"", ">", "- ", "`"};
  line = Trimmed(line);
  return std::ranges::any_of(
      kMarks, [line](std::string_view mark) { return line.starts_with(mark); });
}

/// Counts steps from 1 if the training losses of printed lines begin at step 0.
void CountFromOne(ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (run.step_base != 1 || loss == nullptr || loss->step.empty() ||
      std::ranges::min(loss->step) != 0) {
    return;
  }
  run.step_base = 0;
  for (Series& series : run.series) {
    // An evaluation keeps its step, since it has seen that number of updates.
    if (series.quantity == Quantity::kEvalLoss) continue;
    for (int64_t& step : series.step) ++step;
  }
}

/// Lets the formats, in turn, read each line of a printed log.
class PrintedLog {
 public:
  explicit PrintedLog(std::string_view step_name) {
    for (const Format* format : AllFormats()) {
      if (format->lines == nullptr) continue;
      candidates_.push_back({format, format->lines()});
      candidates_.back().reader->UseStep(step_name);
    }
  }

  void Read(std::string_view line);
  /// Returns the runs; empty if no format knows a line.
  std::vector<ForeignRun> Finish();

 private:
  struct Candidate {
    const Format* format;
    std::unique_ptr<LineReader> reader;
    int64_t lines = 0;
    int64_t last_line = 0;

    /// DeepSpeed prints lines between those of the trainer that uses it. So a
    /// format with a loss goes before one with more lines.
    std::tuple<bool, bool, int64_t> rank() const {
      return {lines > 0 && reader->has_loss(),
              lines > 0 && !format->last_resort, lines};
    }
  };

  void ReadFailure(std::string_view line);

  std::vector<Candidate> candidates_;
  SettingsReader reader_;
  ForeignRun told_;
  ForeignRun told_on_steps_;  ///< in lines that the last resort takes for steps
  int64_t line_ = 0;
  bool ignored_ = false;  ///< in an error that the program ignores
  bool ended_ = false;    ///< a line after the last step says "complete"
  int64_t failure_line_ = 0;
  std::string failure_;  ///< the last one
};

void PrintedLog::ReadFailure(std::string_view line) {
  constexpr std::string_view kEnds[] = {"raining complete", "raining finished"};
  ended_ = ended_ || std::ranges::any_of(kEnds, [line](std::string_view end) {
             return line.find(end) != std::string_view::npos;
           });
  // An ignored exception lasts to the end of its traceback, which names it.
  if (std::exchange(ignored_, false)) {
    ignored_ = line.starts_with(' ') || line.starts_with("Traceback");
    return;
  }
  ignored_ = line.find("Exception ignored") != std::string_view::npos;
  if (ignored_ || ended_) return;
  std::string failure = FailureIn(line);
  if (failure.empty()) return;
  failure_ = std::move(failure);
  failure_line_ = line_;
}

void PrintedLog::Read(std::string_view line) {
  ++line_;
  if (IsQuoted(line)) {
    // A dump of settings has lines that look quoted, too.
    const bool lists = line.find_first_of("\"-") == line.find_first_not_of(" ");
    return lists ? reader_.Read(line, told_) : reader_.ReadHeading(line);
  }
  for (Candidate& one : candidates_) {
    if (!one.reader->Read(line)) continue;
    ++one.lines;
    one.last_line = line_;
    ended_ = false;
    if (one.format->last_resort) reader_.Read(line, told_on_steps_);
    return;
  }
  ReadFailure(line);
  reader_.Read(line, told_);
}

std::vector<ForeignRun> PrintedLog::Finish() {
  const auto best = std::ranges::max_element(candidates_, {}, &Candidate::rank);
  if (best->lines == 0) return {};
  best->reader->Finish();
  CountFromOne(best->reader->run());
  std::vector<ForeignRun> runs;
  runs.push_back(std::move(best->reader->run()));
  runs.back().format = best->format->name;
  runs.back().settings.merge(told_.settings);
  if (!best->format->last_resort) {
    runs.back().settings.merge(told_on_steps_.settings);
  }
  if (failure_line_ > best->last_line) runs.back().broke_off = failure_;
  return runs;
}

}  // namespace

std::vector<ForeignRun> ReadPrintedLog(std::string_view text,
                                       std::string_view step_name) {
  PrintedLog log(step_name);
  ForEachLine(text, [&log](std::string_view line) { log.Read(line); });
  return log.Finish();
}

}  // namespace isoloss::foreign
