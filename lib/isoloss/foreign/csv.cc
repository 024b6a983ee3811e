// Reads tables with named columns: W&B's exports, Lightning's metrics.csv,
// TensorBoard's downloads, and any other table with a step and numbers.
#include "isoloss/foreign/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>

#include "isoloss/base/error.h"
#include "isoloss/foreign/csv_rows.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kMin = "__MIN";
constexpr std::string_view kMax = "__MAX";
constexpr std::string_view kJoint = " - ";  // "<run> - <metric>"
constexpr std::string_view kTime =
    "_timestamp";  // SwanLab: "<metric>_timestamp"

using Names = std::vector<std::string>;

bool Has(const Names& names, std::string_view name) {
  return std::ranges::count(names, name) != 0;
}

/// Returns whether the table is a chart of W&B, which has three columns for
/// each line of the chart.
bool IsChart(const Names& names) {
  return std::ranges::any_of(
      names, [](const std::string& name) { return name.ends_with(kMin); });
}

/// A target says where the values of one column go.
struct Target {
  size_t run = 0;
  std::string series;
  std::optional<size_t> min;  ///< columns of W&B's triple
  std::optional<size_t> max;
};

/// These are the columns of a table. A chart of W&B names them "<run> -
/// <metric>" and the same with __MIN and __MAX. If the chart groups runs, the
/// name is "<metric>" alone.
class Columns {
 public:
  Columns(const Names& names, std::string_view step_name) : names_(names) {
    for (size_t i = 0; i < names.size(); ++i) index_.emplace(names[i], i);
    is_chart_ = IsChart(names);
    step_name_ = step_name;
    if (!step_name.empty()) return;
    // The x axis of a chart is its first column, under any name.
    step_name_ = is_chart_ ? names.front() : StepNameAmong(names);
  }

  bool is_chart() const { return is_chart_; }
  const std::string& step_name() const { return step_name_; }
  std::vector<ForeignRun>& runs() { return runs_; }

  /// Returns the column of that name; none if `name` is empty.
  std::optional<size_t> Place(const std::string& name) const {
    const auto found = index_.find(name);
    if (name.empty() || found == index_.end()) return std::nullopt;
    return found->second;
  }

  /// Returns the column that tells rows of training from rows of evaluations.
  std::optional<size_t> PhasePlace() const {
    const auto found = std::ranges::find_if(
        names_, [](const std::string& name) { return IsPhaseName(name); });
    if (is_chart_ || found == names_.end()) return std::nullopt;
    return static_cast<size_t>(found - names_.begin());
  }

  std::map<size_t, Target> Targets() {
    std::map<size_t, Target> targets;
    std::unordered_map<std::string, int> seen;
    for (size_t i = 0; i < names_.size(); ++i) {
      const std::string& name = names_[i];
      if (name == step_name_ || name.empty() || name.ends_with(kMin) ||
          name.ends_with(kMax) || name.starts_with('_') ||
          name == "Wall time" || IsTime(name)) {
        continue;
      }
      Target target{.run = 0, .series = name, .min = {}, .max = {}};
      std::string run_name;
      if (is_chart_) {
        const size_t joint = name.rfind(kJoint);
        if (joint != std::string::npos) {
          run_name = name.substr(0, joint);
          target.series = name.substr(joint + kJoint.size());
        }
        // A chart also has its x axis as "_step", if that counts no log calls.
        if (target.series == "_step") continue;
        target.min = Beside(i, kMin);
        target.max = Beside(i, kMax);
      } else if (Place(name + std::string(kTime))) {
        const size_t dash = DashOf(name);
        if (dash != std::string::npos) {
          run_name = name.substr(0, dash);
          target.series = name.substr(dash + 1);
        }
      }
      // A name may occur twice: two runs have it, or a program is careless.
      const int copy = ++seen[name];
      if (copy > 1) {
        std::string& distinct = is_chart_ ? run_name : target.series;
        distinct += fmt::format(" ({})", copy);
      }
      target.run = RunOf(run_name);
      targets.emplace(i, std::move(target));
    }
    return targets;
  }

 private:
  /// Returns the column of `place`'s triple with this ending, right after it.
  std::optional<size_t> Beside(size_t place, std::string_view ending) const {
    const std::string name = names_[place] + std::string(ending);
    for (size_t i = place + 1; i < names_.size() && i < place + 3; ++i) {
      if (names_[i] == name) return i;
    }
    return Place(name);
  }

  /// Returns whether a column is SwanLab's clock of another one.
  bool IsTime(const std::string& name) const {
    return name.ends_with(kTime) &&
           Place(name.substr(0, name.size() - kTime.size()));
  }

  size_t RunOf(const std::string& name) {
    const auto found = places_.find(name);
    if (found != places_.end()) return found->second;
    places_.emplace(name, runs_.size());
    runs_.emplace_back().name = name;
    return runs_.size() - 1;
  }

  const Names& names_;
  std::unordered_map<std::string, size_t> index_;  ///< a name's first column
  bool is_chart_ = false;
  std::string step_name_;
  std::vector<ForeignRun> runs_;
  std::map<std::string, size_t> places_;
};

/// Throws if the columns are W&B's table of runs, from its page or its API.
void RefuseRunsTable(const Names& names) {
  constexpr std::array<std::string_view, 4> kOfRuns = {"State", "Created",
                                                       "Runtime", "End Time"};
  const bool page =
      names.front() == "Name" &&
      std::ranges::any_of(kOfRuns, [&names](std::string_view name) {
        return Has(names, name);
      });
  if (!page && !Has(names, "_wandb")) return;
  ThrowError(ErrorKind::kFormat,
             "the table has a run in each row (W&B's table of runs), but a "
             "log has a step in each. Export a chart, or the history.");
}

/// Returns whether TensorBoard wrote the table. Its downloads name the value
/// "Value" and have no other column.
bool IsDownload(const Names& names) {
  return names.size() == 3 && names[0] == "Wall time" && names[1] == "Step" &&
         names[2] == "Value";
}

/// Returns whether steps count from 0, as each n-th step is then n - 1, 2n - 1,
/// ...
bool HasSpacingFromZero(const Series& series) {
  const Spacing spacing = SpacingOf(series.step);
  return spacing.stride > 1 && (series.step.front() + 1) % spacing.stride == 0;
}

/// Returns whether Lightning's logger wrote the table, which has "epoch" and
/// "step" beside the metrics. Since 2.0 it sorts all names as text, and leaves
/// cells empty, since a row has one kind of metrics. Older versions are known
/// by steps that count from 0, since a user's own table counts from 1.
bool IsLightning(const Names& names, bool sparse, const ForeignRun& run) {
  if (!Has(names, "epoch") || !Has(names, "step")) return false;
  if (std::ranges::any_of(run.series, HasSpacingFromZero)) return true;
  if (!std::ranges::is_sorted(names)) return false;
  return sparse || std::ranges::any_of(run.series, [](const Series& series) {
           return series.step.front() == 0;
         });
}

class Table {
 public:
  Table(const Names& names, char separator, Columns& columns)
      : names_(names),
        separator_(separator),
        columns_(columns),
        targets_(columns.Targets()),
        phase_(columns.PhasePlace()),
        with_point_(names.size()),
        numbers_(names.size()) {
    for (const auto& [column, target] : targets_) {
      if (FindName(target.series).quantity != Quantity::kLoss) continue;
      losses_.push_back(column);
    }
  }

  void ReadRows(CsvRows& rows, size_t step_column);
  void Describe();

 private:
  [[noreturn]] void RefuseOtherCells() const;
  void KeepRow(const std::vector<std::string_view>& cells, int64_t step);
  bool MissesLoss();
  void DescribeRun(ForeignRun& run);
  /// The text of the result is valid until the next call for this column.
  std::optional<Written> NumberIn(std::string_view cell, size_t column);
  /// Reads as NumberIn does, and also takes commas between thousands: "1,000".
  std::optional<Written> StepIn(std::string_view cell, size_t column);

  const Names& names_;
  char separator_;
  Columns& columns_;
  std::map<size_t, Target> targets_;
  std::vector<size_t> losses_;  ///< columns
  LossRows loss_rows_;
  std::optional<size_t> phase_;
  std::vector<std::string> with_point_;          ///< of each column
  std::vector<std::optional<Written>> numbers_;  ///< of the row's targets
  int64_t rows_ = 0;
  int64_t cut_ = 0;  ///< line of the first row with other cells
  int64_t without_step_ = 0;
  bool sparse_ = false;  ///< a cell was empty
};

std::optional<Written> Table::NumberIn(std::string_view cell, size_t column) {
  cell = Trimmed(cell);
  if (cell.empty()) sparse_ = true;
  if (separator_ == ';' && std::ranges::count(cell, ',') == 1) {
    std::string& with_point = with_point_[column];
    with_point = cell;
    std::ranges::replace(with_point, ',', '.');
    cell = with_point;
  }
  const auto number = ParsePlainNumber(cell);
  if (!number) return std::nullopt;
  return Written{*number, cell};
}

std::optional<Written> Table::StepIn(std::string_view cell, size_t column) {
  const auto number = NumberIn(cell, column);
  if (number || separator_ == ';') return number;
  const auto grouped = ParseNumber(cell);
  return grouped ? std::optional(Written{*grouped, cell}) : std::nullopt;
}

bool Table::MissesLoss() {
  std::vector<std::string_view> names;
  bool has_loss = false;
  for (const auto& [column, target] : targets_) {
    if (!numbers_[column]) continue;
    if (std::ranges::binary_search(losses_, column)) {
      has_loss = true;
    } else {
      names.emplace_back(target.series);
    }
  }
  return loss_rows_.Misses(names, has_loss, true);
}

void Table::KeepRow(const std::vector<std::string_view>& cells, int64_t step) {
  const std::string prefix = phase_ ? PhasePrefix(Trimmed(cells[*phase_])) : "";
  for (const auto& [column, target] : targets_) {
    numbers_[column] = NumberIn(cells[column], column);
  }
  const bool misses = prefix.empty() && !columns_.is_chart() &&
                      !losses_.empty() && MissesLoss();
  for (const auto& [column, target] : targets_) {
    const auto& number = numbers_[column];
    const std::string_view cell = Trimmed(cells[column]);
    ForeignRun& run = columns_.runs()[target.run];
    if (!number) {
      if (!misses || !std::ranges::binary_search(losses_, column)) continue;
      if (cell.empty()) {
        run.without_loss.push_back(step);
      } else {
        run.Of(target.series).AddWritten(step, std::nullopt, cell);
      }
      continue;
    }
    Series& series =
        run.Of(prefix.empty() ? target.series : prefix + target.series);
    series.Add(step, number->value, number->text);
    // Minimum and maximum only differ if the chart merged points or runs.
    const bool bucketed = (target.min && Trimmed(cells[*target.min]) != cell) ||
                          (target.max && Trimmed(cells[*target.max]) != cell);
    if (bucketed) series.averaging = Averaging::kBucketMean;
  }
}

void Table::RefuseOtherCells() const {
  ThrowError(ErrorKind::kFormat,
             "row {} has another number of cells than the {} columns of the "
             "first line. Remove the row, or export the table again.",
             cut_, names_.size());
}

void Table::ReadRows(CsvRows& rows, size_t step_column) {
  std::vector<std::string_view> cells;
  int64_t line = 1;
  while (rows.Next(cells)) {
    ++line;
    if (cells.size() == 1 && Trimmed(cells[0]).empty()) continue;
    if (cut_ > 0) RefuseOtherCells();
    if (cells.size() != names_.size()) {
      cut_ = line;
      continue;
    }
    ++rows_;
    const auto number = StepIn(cells[step_column], step_column);
    if (!number || !(number->value >= 0) ||
        number->value > static_cast<double>(kMostWhole) ||
        number->value !=
            static_cast<double>(static_cast<int64_t>(number->value))) {
      ++without_step_;
      continue;
    }
    KeepRow(cells, static_cast<int64_t>(number->value));
  }
  if (rows_ == 0 && cut_ == 0) {
    ThrowError(ErrorKind::kFormat,
               "the table has a first line with the columns {}, but no row "
               "below it. Give the table of a run that logged something.",
               NamesText(names_));
  }
  if (rows_ == 0) RefuseOtherCells();
  if (without_step_ == rows_) {
    ThrowError(ErrorKind::kFormat,
               "none of {} rows has a whole number from 0 on in the column "
               "`{}`, which counts the steps. Name another of the columns {} "
               "(--step NAME).",
               rows_, columns_.step_name(), NamesText(names_));
  }
}

void Table::DescribeRun(ForeignRun& run) {
  run.format = "csv";
  if (columns_.is_chart()) {
    run.format = "wandb_chart";
    run.notes.emplace_back(
        "W&B exports a sample of long runs: steps may be missing.");
    DescribeStep(columns_.step_name(), run);
  } else if (IsDownload(names_)) {
    run.format = "tensorboard_csv";
    run.notes.emplace_back(
        "TensorBoard keeps about 1,000 points of a series for a download, "
        "drawn at random. The event file has all.");
    for (Series& series : run.series) {
      const Spacing spacing = SpacingOf(series.step);
      series.thinned = spacing.gaps > 0;
    }
  } else if (columns_.step_name() == "step" &&
             IsLightning(names_, sparse_, run)) {
    run.format = "lightning";
    run.step_base = 0;
    for (int64_t& step : run.without_loss) ++step;
    for (Series& series : run.series) {
      for (int64_t& step : series.step) ++step;
      if (series.name.ends_with("_epoch")) {
        series.averaging = Averaging::kIntervalMean;
      }
    }
  } else {
    DescribeStep(columns_.step_name(), run);
  }
}

void Table::Describe() {
  for (ForeignRun& run : columns_.runs()) {
    DescribeRun(run);
    if (cut_ > 0) {
      run.notes.emplace_back("The last row is cut and was left out.");
    }
    if (without_step_ > 0) {
      run.notes.push_back(
          fmt::format("{} rows have no whole number as `{}` and were left out.",
                      without_step_, columns_.step_name()));
    }
  }
}

/// Counts all columns of whole numbers in one pass over the rows.
Counters CountersOf(CsvRows rows, const Names& names, bool thousands) {
  Counters counters;
  std::vector<std::string_view> cells;
  while (rows.Next(cells)) {
    if (cells.size() != names.size()) continue;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (names[i].empty()) continue;
      const auto value =
          thousands ? ParseNumber(cells[i]) : ParsePlainNumber(cells[i]);
      if (!value || *value != std::floor(*value) ||
          std::abs(*value) > static_cast<double>(kMostWhole)) {
        continue;
      }
      Count(names[i], static_cast<int64_t>(*value), counters);
    }
  }
  return counters;
}

Names NamesOf(const std::vector<std::string_view>& cells) {
  Names names;
  for (const std::string_view cell : cells) names.emplace_back(Trimmed(cell));
  return names;
}

std::string_view FirstLine(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

bool IsNumber(std::string_view cell) {
  return ParsePlainNumber(cell).has_value();
}

/// Reads CSV (RFC 4180) or a table with tabs or semicolons; the first line
/// tells which. An empty cell is missing; a cell that is no number is left out.
/// Between semicolons a number may have a comma in place of its point. A last
/// row that a killed program has cut is dropped, and noted. The result is empty
/// if the first line does not have a column that counts the steps.
std::vector<ForeignRun> ReadTable(Source& log, std::string_view step_name) {
  const std::string_view text = log.text();
  const size_t first = text.find_first_not_of(" \t\r\n");
  // No table begins with a brace.
  if (first == std::string_view::npos || text[first] == '{') return {};
  const char separator = SeparatorOf(FirstLine(text));
  CsvRows rows(text, separator);
  std::vector<std::string_view> cells;
  if (!rows.Next(cells) || cells.size() < 2) return {};
  const Names names = NamesOf(cells);
  RefuseRunsTable(names);
  const Counters counters = CountersOf(rows, names, separator != ';');
  ForeignRun choice;
  std::string step(step_name);
  if (step.empty() && !IsChart(names)) step = ChooseStep(counters, choice);
  Columns columns(names, step);
  const auto step_column = columns.Place(columns.step_name());
  if (!step_column) return {};
  Table table(names, separator, columns);
  table.ReadRows(rows, *step_column);
  table.Describe();
  if (!columns.is_chart()) {
    std::ranges::copy(NotesOnCopies(names), std::back_inserter(choice.notes));
  }
  for (ForeignRun& run : columns.runs()) {
    run.step_name = columns.step_name();
    run.rising = RisingNames(counters, run.step_name);
    std::ranges::copy(choice.notes, std::back_inserter(run.notes));
  }
  return std::move(columns.runs());
}

}  // namespace

extern const Format kFormat_csv = {.name = "csv", .read = &ReadTable};

std::vector<std::string> CsvColumns(std::string_view text) {
  CsvRows rows(text, SeparatorOf(FirstLine(text)));
  std::vector<std::string_view> cells;
  if (!rows.Next(cells) || std::ranges::any_of(cells, IsNumber)) return {};
  Names names = NamesOf(cells);
  if (!rows.Next(cells) || cells.size() != names.size() ||
      std::ranges::none_of(cells, IsNumber)) {
    return {};
  }
  return names;
}

bool IsNamelessCsv(std::string_view text) {
  CsvRows rows(text, SeparatorOf(FirstLine(text)));
  std::vector<std::string_view> cells;
  if (!rows.Next(cells) || !std::ranges::all_of(cells, IsNumber)) return false;
  const size_t count = cells.size();
  return rows.Next(cells) && cells.size() == count &&
         std::ranges::all_of(cells, IsNumber);
}

}  // namespace isoloss::foreign
