#include "isoloss/foreign/printed_log.h"

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "isoloss/foreign/field_rows.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/line_rows.h"
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

/// Counts steps from 1 if the training losses of printed lines count from 0.
void CountFromOne(ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (run.step_base != 1 || loss == nullptr || !CountsFromZero(loss->step)) {
    return;
  }
  run.step_base = 0;
  for (Series& series : run.series) {
    // An evaluation keeps its step, since it has seen that number of updates;
    // but that of epoch 0 has seen a whole one.
    if (run.step_unit != "epoch" && (series.quantity == Quantity::kEvalLoss ||
                                     NamesEvaluation(series.name))) {
      continue;
    }
    for (int64_t& step : series.step) ++step;
  }
}

size_t DigitsAt(std::string_view text, size_t at) {
  const size_t end = text.find_first_not_of("0123456789", at);
  return std::min(end, text.size()) - std::min(at, text.size());
}

/// Returns how many decimals the number at the beginning of `text` has.
size_t DecimalsOf(std::string_view text) {
  const size_t whole = DigitsAt(text, 0);
  const bool point = whole < text.size() && text[whole] == '.';
  return point ? DigitsAt(text, whole + 1) : 0;
}

/// Returns the line that ends the text without an end of its own if it breaks
/// off within a number: earlier ones behind the same name have more decimals.
/// Else it is empty.
std::string_view CutLineOf(std::string_view text) {
  constexpr std::string_view kSigns = ":= \t";
  constexpr size_t kReach = 65536;
  constexpr size_t kEarlier = 3;
  text = text.substr(text.size() - std::min(text.size(), kReach));
  const size_t edge = text.find_last_of("\r\n");
  if (edge == text.npos) return "";
  const std::string_view line = text.substr(edge + 1);
  const size_t sign = line.find_last_not_of("0123456789.");
  if (sign == line.npos || sign + 1 == line.size()) return "";
  const size_t name = line.find_last_not_of(kSigns, sign);
  if (name == line.npos || name == sign) return "";
  size_t begin = line.find_last_of(" \t,|;[({", name);
  begin = begin == line.npos ? 0 : begin + 1;
  const std::string_view key = line.substr(begin, sign + 1 - begin);
  size_t fewest = text.npos;
  size_t most = 0;
  size_t at = edge;
  for (size_t i = 0; i < kEarlier; ++i) {
    at = at == 0 ? text.npos : text.rfind(key, at - 1);
    if (at == text.npos) return "";
    const size_t decimals = DecimalsOf(text.substr(at + key.size()));
    fewest = std::min(fewest, decimals);
    most = std::max(most, decimals);
  }
  // The shortest text of a number has a decimal less now and then.
  const size_t last = DecimalsOf(line.substr(sign + 1));
  return last < fewest && (fewest == most || last < fewest / 2) ? line : "";
}

/// Follows headings of evaluations, such as "Evaluation results:" or
/// "***** Running evaluation *****". The lines of numbers below belong to the
/// evaluation, up to the next step of training.
class Headings {
 public:
  /// Returns whether the line is a heading or has no word.
  bool Read(std::string_view line) {
    constexpr size_t kLongest = 60;
    std::string_view text = Trimmed(line);
    const size_t length = text.size();
    for (const char mark : {'=', '*', '-', '#'}) {
      while (text.starts_with(mark)) text.remove_prefix(1);
      while (text.ends_with(mark)) text.remove_suffix(1);
    }
    text = Trimmed(text);
    if (text.empty()) return true;
    if (text.size() > kLongest ||
        text.find_first_of("0123456789=") != text.npos) {
      return false;
    }
    if (SaysTraining(text)) {
      state_ = State::kNone;
    } else if (NamesEvaluation(text)) {
      // Right below "results:" even a step is of the evaluation. A start, as
      // "Running evaluation", has no numbers of its own, and neither has a
      // remark, as "Saving evaluation metrics".
      const bool results =
          text.ends_with(':') ||
          (text.size() < length && (text.find("esult") != text.npos ||
                                    text.find("etrics") != text.npos));
      state_ = results ? State::kResults : State::kBegun;
      return true;
    }
    return false;
  }

  /// Returns whether the line, which may hold numbers, is below a heading.
  bool Covers(std::string_view line) const {
    if (state_ == State::kNone) return false;
    return state_ == State::kResults || !CountsSteps(line);
  }
  /// Takes a line that a reader knows into account.
  void TakeRow(std::string_view line) {
    if (state_ == State::kNone) return;
    state_ = CountsSteps(line) ? State::kNone : State::kBegun;
  }
  /// Takes a line that no reader knows into account.
  void TakeOther() {
    if (state_ == State::kResults) state_ = State::kBegun;
  }

 private:
  enum class State { kNone, kBegun, kResults };

  static bool CountsSteps(std::string_view line) {
    constexpr size_t kLongestLine = 4000;  // of one that FieldsReader reads
    if (line.size() > kLongestLine) return false;
    const std::vector<LineItem> items = ItemsOf(line);
    const RowParts parts = PartsOf(items);
    return parts.counter() != nullptr || parts.epoch != nullptr;
  }

  State state_ = State::kNone;
};

/// Lets the formats, in turn, read each line of a printed log.
class PrintedLog {
 public:
  /// If `last_resort` is set, the formats of programs are left out.
  PrintedLog(std::string_view step_name, bool last_resort) {
    for (const Format* format : AllFormats()) {
      if (format->lines == nullptr || (last_resort && !format->last_resort)) {
        continue;
      }
      candidates_.push_back({format, format->lines()});
      candidates_.back().reader->UseStep(step_name);
    }
  }

  void Read(std::string_view line);
  /// Returns whether lines of no program tell the losses of training, and those
  /// of programs do not.
  bool NeedsLastResort() const;
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
    int64_t losses() const {
      const Series* loss = reader->run().Main(Quantity::kLoss);
      return loss == nullptr ? 0 : std::ssize(loss->step);
    }
    std::tuple<bool, bool, int64_t> rank() const {
      return {lines > 0 && reader->has_loss(),
              lines > 0 && !format->last_resort, lines};
    }
  };

  void ReadFailure(std::string_view line);

  std::vector<Candidate> candidates_;
  Headings headings_;
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
  const bool heads = headings_.Read(line);
  if (IsQuoted(line)) {
    // A dump of settings has lines that look quoted, too.
    const bool lists = line.find_first_of("\"-") == line.find_first_not_of(" ");
    return lists ? reader_.Read(line, told_) : reader_.ReadHeading(line);
  }
  const bool evaluates = headings_.Covers(line);
  for (Candidate& one : candidates_) {
    one.reader->SetUnderEvaluation(evaluates);
    if (!one.reader->Read(line)) continue;
    headings_.TakeRow(line);
    ++one.lines;
    one.last_line = line_;
    ended_ = false;
    if (one.format->last_resort) reader_.Read(line, told_on_steps_);
    return;
  }
  if (!heads) headings_.TakeOther();
  ReadFailure(line);
  reader_.Read(line, told_);
}

bool PrintedLog::NeedsLastResort() const {
  int64_t others = 0;
  int64_t last = 0;
  for (const Candidate& one : candidates_) {
    int64_t& most = one.format->last_resort ? last : others;
    most = std::max(most, one.losses());
  }
  // Some lines of any log look as those of a program.
  constexpr int64_t kFew = 10;
  return last > 0 && (others == 0 || others < last / kFew);
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
  const std::string_view cut = CutLineOf(text);
  text.remove_suffix(cut.size());
  PrintedLog log(step_name, false);
  ForEachLine(text, [&log](std::string_view line) { log.Read(line); });
  std::vector<ForeignRun> runs;
  if (log.NeedsLastResort()) {
    PrintedLog fields(step_name, true);
    ForEachLine(text, [&fields](std::string_view line) { fields.Read(line); });
    runs = fields.Finish();
  } else {
    runs = log.Finish();
  }
  if (!runs.empty() && !cut.empty()) {
    runs.front().notes.emplace_back(
        "The last line breaks off within a number, so it was left out.");
  }
  return runs;
}

}  // namespace isoloss::foreign
