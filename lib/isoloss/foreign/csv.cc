#include "isoloss/foreign/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/foreign/json_logs.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kMin = "__MIN";
constexpr std::string_view kMax = "__MAX";
constexpr std::string_view kJoint = " - ";  // "<run> - <metric>"
constexpr size_t kMostColumns = 100'000;

/// Cells of one row after the other.
class Rows {
 public:
  Rows(std::string_view text, char separator)
      : rest_(text), separator_(separator) {}

  /// False at the end. Cells point into the text or, of those with doubled
  /// quotes, into copies that live until the next row.
  bool Next(std::vector<std::string_view>& cells) {
    cells.clear();
    copies_.clear();
    if (rest_.empty()) return false;
    while (true) {
      cells.push_back(Cell());
      if (cells.size() > kMostColumns) {
        ThrowError(ErrorKind::kFormat,
                   "a row has more than {} cells, but no log has. Check the "
                   "file.",
                   kMostColumns);
      }
      if (rest_.empty()) return true;
      const char end = rest_.front();
      rest_.remove_prefix(1);
      if (end == separator_) {
        if (!rest_.empty()) continue;
        cells.emplace_back();
        return true;
      }
      if (end == '\r' && rest_.starts_with('\n')) rest_.remove_prefix(1);
      return true;
    }
  }

 private:
  std::string_view Cell() {
    if (rest_.starts_with('"')) return Quoted();
    size_t end = 0;
    while (end < rest_.size() && rest_[end] != separator_ &&
           rest_[end] != '\n' && rest_[end] != '\r') {
      ++end;
    }
    const std::string_view cell = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return cell;
  }

  std::string_view Quoted() {
    rest_.remove_prefix(1);
    std::string cell;
    while (!rest_.empty()) {
      const size_t quote = rest_.find('"');
      cell += rest_.substr(0, quote);
      if (quote == std::string_view::npos) {
        rest_ = {};
        break;
      }
      rest_.remove_prefix(quote + 1);
      if (!rest_.starts_with('"')) break;
      cell += '"';
      rest_.remove_prefix(1);
    }
    // What stands between a closing quote and the separator is no part of it.
    while (!rest_.empty() && rest_.front() != separator_ &&
           rest_.front() != '\n' && rest_.front() != '\r') {
      rest_.remove_prefix(1);
    }
    return copies_.emplace_back(std::move(cell));
  }

  std::string_view rest_;
  char separator_;
  std::list<std::string> copies_;
};

char SeparatorOf(std::string_view header) {
  char best = ',';
  for (const char c : {'\t', ';'}) {
    if (std::ranges::count(header, c) > std::ranges::count(header, best)) {
      best = c;
    }
  }
  return best;
}

/// Where the values of one column go.
struct Target {
  size_t run = 0;
  std::string series;
  std::optional<size_t> min;  ///< columns of W&B's triple
  std::optional<size_t> max;
};

/// A chart of W&B: "<run> - <metric>" and the same with __MIN and __MAX.
class Columns {
 public:
  explicit Columns(const std::vector<std::string>& names) : names_(names) {
    is_chart_ = std::ranges::any_of(
        names, [](const std::string& name) { return name.ends_with(kMin); });
    std::vector<std::string> candidates = names;
    step_name_ = StepNameAmong(candidates);
    // A chart's x axis is its first column, whatever it is called.
    if (is_chart_) step_name_ = names.front();
  }

  bool is_chart() const { return is_chart_; }
  const std::string& step_name() const { return step_name_; }
  std::vector<ForeignRun>& runs() { return runs_; }

  std::map<size_t, Target> Targets() {
    std::map<size_t, Target> targets;
    for (size_t i = 0; i < names_.size(); ++i) {
      const std::string& name = names_[i];
      if (name == step_name_ || name.empty() || name.ends_with(kMin) ||
          name.ends_with(kMax) || name.starts_with('_') ||
          name == "Wall time") {
        continue;
      }
      Target target{.run = 0, .series = name, .min = {}, .max = {}};
      std::string run_name;
      if (is_chart_) {
        const size_t joint = name.rfind(kJoint);
        if (joint == std::string::npos) continue;
        run_name = name.substr(0, joint);
        target.series = name.substr(joint + kJoint.size());
        // The x axis once more, where that is not the number of log calls.
        if (target.series == "_step") continue;
        target.min = Place(name + std::string(kMin));
        target.max = Place(name + std::string(kMax));
      }
      target.run = RunOf(run_name);
      targets.emplace(i, std::move(target));
    }
    return targets;
  }

 private:
  std::optional<size_t> Place(const std::string& name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) return std::nullopt;
    return static_cast<size_t>(found - names_.begin());
  }

  size_t RunOf(const std::string& name) {
    const auto found = places_.find(name);
    if (found != places_.end()) return found->second;
    places_.emplace(name, runs_.size());
    runs_.emplace_back().name = name;
    return runs_.size() - 1;
  }

  const std::vector<std::string>& names_;
  bool is_chart_ = false;
  std::string step_name_;
  std::vector<ForeignRun> runs_;
  std::map<std::string, size_t> places_;
};

/// TensorBoard names the value of a download "Value" and nothing else.
bool IsDownload(const std::vector<std::string>& names) {
  return names.size() == 3 && names[0] == "Wall time" && names[1] == "Step" &&
         names[2] == "Value";
}

/// Lightning's logger: "epoch" and "step" beside the metrics, sorted as text.
bool IsLightning(const std::vector<std::string>& names) {
  return std::ranges::count(names, "epoch") != 0 &&
         std::ranges::count(names, "step") != 0 &&
         std::ranges::is_sorted(names);
}

void Describe(const std::vector<std::string>& names, Columns& columns) {
  for (ForeignRun& run : columns.runs()) {
    run.format = "csv";
    if (columns.is_chart()) {
      run.format = "wandb_chart";
      run.notes.emplace_back(
          "W&B exports a sample of long runs: steps may be missing.");
      DescribeStep(columns.step_name(), run);
    } else if (IsDownload(names)) {
      run.format = "tensorboard_csv";
      run.notes.emplace_back(
          "TensorBoard keeps about 1,000 points of a series for a download, "
          "drawn at random. The event file has all.");
      for (Series& series : run.series) {
        const Spacing spacing = SpacingOf(series.step);
        series.thinned = spacing.gaps > 0;
      }
    } else if (IsLightning(names)) {
      run.format = "lightning";
      run.step_base = 0;
      for (Series& series : run.series) {
        for (int64_t& step : series.step) ++step;
        if (series.name.ends_with("_epoch")) {
          series.averaging = Averaging::kIntervalMean;
        }
      }
    } else {
      DescribeStep(columns.step_name(), run);
    }
  }
}

struct Row {
  const std::vector<std::string_view>& cells;
  int64_t step;
};

void KeepRow(const Row& row, const std::map<size_t, Target>& targets,
             std::vector<ForeignRun>& runs) {
  for (const auto& [column, target] : targets) {
    const std::string_view cell = Trimmed(row.cells[column]);
    const auto number = ParseNumber(cell);
    if (!number) continue;
    Series& series = runs[target.run].Of(target.series);
    series.Add(row.step, *number, cell);
    // They differ only where the chart put points or runs together.
    const bool bucketed =
        (target.min && Trimmed(row.cells[*target.min]) != cell) ||
        (target.max && Trimmed(row.cells[*target.max]) != cell);
    if (bucketed) series.averaging = Averaging::kBucketMean;
  }
}

}  // namespace

std::vector<ForeignRun> ReadCsv(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const std::string_view header = text.substr(0, text.find('\n'));
  Rows rows(text, SeparatorOf(header));
  std::vector<std::string_view> cells;
  if (!rows.Next(cells) || cells.size() < 2) return {};
  std::vector<std::string> names;
  for (const std::string_view cell : cells) names.emplace_back(Trimmed(cell));
  if (names.front() == "Name" && std::ranges::count(names, "State") != 0) {
    ThrowError(ErrorKind::kFormat,
               "the table has a run in each row (W&B's table of runs), but a "
               "log has a step in each. Export a chart, or the history.");
  }
  Columns columns(names);
  const auto step = std::ranges::find(names, columns.step_name());
  if (step == names.end()) return {};
  const auto step_column = static_cast<size_t>(step - names.begin());
  const std::map<size_t, Target> targets = columns.Targets();
  int64_t line = 1;
  int64_t cut = 0;
  int64_t without_step = 0;
  while (rows.Next(cells)) {
    ++line;
    if (cells.size() == 1 && Trimmed(cells[0]).empty()) continue;
    if (cut > 0) {
      ThrowError(ErrorKind::kFormat,
                 "row {} has another number of cells than the {} columns of "
                 "the first line. Remove the row, or export the table again.",
                 cut, names.size());
    }
    if (cells.size() != names.size()) {
      cut = line;
      continue;
    }
    const auto number = ParseNumber(cells[step_column]);
    constexpr double kMost = 9007199254740992;  // 2^53
    if (!number || !(*number >= 0) || *number > kMost ||
        *number != static_cast<double>(static_cast<int64_t>(*number))) {
      ++without_step;
      continue;
    }
    KeepRow({cells, static_cast<int64_t>(*number)}, targets, columns.runs());
  }
  Describe(names, columns);
  for (ForeignRun& run : columns.runs()) {
    if (cut > 0)
      run.notes.emplace_back("The last row is cut and was left out.");
    if (without_step > 0) {
      run.notes.push_back(
          fmt::format("{} rows have no whole number as `{}` and were left out.",
                      without_step, columns.step_name()));
    }
  }
  return std::move(columns.runs());
}

}  // namespace isoloss::foreign
