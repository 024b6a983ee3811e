#include "isoloss/foreign/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

/// So many lines tell which key counts the steps.
constexpr size_t kFirstRows = 200;

/// Whether the row tells of an update, so that it should have its loss. Rows of
/// evaluations and clocks have none, or `null`.
bool HasUpdate(const json& row) {
  return std::ranges::any_of(row.items(), [](const auto& item) {
    const Quantity quantity = FindName(item.key()).quantity;
    return item.value().is_number() && (quantity == Quantity::kGradNorm ||
                                        quantity == Quantity::kLearningRate);
  });
}

/// Gathers rows.
class Rows {
 public:
  explicit Rows(std::string_view step_name) : step_name_(step_name) {
    run_.format = "json_lines";
    decided_ = !step_name.empty();
  }

  void Add(json row) {
    ++count_;
    if (decided_) return Keep(row);
    first_.push_back(std::move(row));
    if (first_.size() == kFirstRows) Decide();
  }

  /// Once, after the last row.
  std::vector<ForeignRun> Finish(bool cut);

 private:
  void Decide();
  void Keep(const json& row);
  void AddNumbers(const json& object, const std::string& prefix, int64_t step,
                  bool inner);

  std::string step_name_;
  bool decided_ = false;
  std::vector<json> first_;
  ForeignRun run_;
  Counters counters_;           ///< of the first rows
  std::set<std::string> keys_;  ///< with numbers, of rows without a step
  int64_t count_ = 0;
  int64_t without_step_ = 0;
};

/// A line with the settings may come first, and may have a key of that name.
void Rows::Decide() {
  for (const json& row : first_) {
    for (const auto& [key, value] : row.items()) {
      if (const auto whole = WholeOf(value)) Count(key, *whole, counters_);
    }
  }
  int64_t most = 0;
  for (const std::string_view name : StepNames()) {
    const auto found = counters_.find(name);
    if (found != counters_.end()) most = std::max(most, found->second.rows());
  }
  Counters frequent = counters_;
  std::erase_if(frequent, [most](const auto& counter) {
    return 2 * counter.second.rows() < most;
  });
  step_name_ = ChooseStep(frequent, run_);
  decided_ = true;
  for (const json& row : std::exchange(first_, {})) Keep(row);
}

void Rows::Keep(const json& row) {
  const auto found = row.find(step_name_);
  const auto step = found == row.end() ? std::nullopt : WholeOf(*found);
  if (!step || *step < 0) {
    ++without_step_;
    if (!run_.series.empty() || keys_.size() > kFirstRows) return;
    for (const auto& [key, value] : row.items()) {
      if (!value.is_number()) continue;
      keys_.insert(key);
      run_.settings.try_emplace(key, value.get<double>());
    }
    return;
  }
  std::string prefix;
  for (const auto& [key, value] : row.items()) {
    if (!value.is_string() || !IsPhaseName(key)) continue;
    prefix = PhasePrefix(value.get_ref<const std::string&>());
  }
  AddNumbers(row, prefix, *step, false);
  const bool has_loss = std::ranges::any_of(row.items(), [](const auto& item) {
    return FindName(item.key()).quantity == Quantity::kLoss;
  });
  if (prefix.empty() && !has_loss && HasUpdate(row)) {
    run_.without_loss.push_back(*step);
  }
}

void Rows::AddNumbers(const json& object, const std::string& prefix,
                      int64_t step, bool inner) {
  for (const auto& [key, value] : object.items()) {
    if (!inner && (key == step_name_ || key.starts_with('_'))) continue;
    if (value.is_object() && !inner) {
      // A picture or a table of W&B's has a type, and numbers of no interest.
      if (value.contains("_type")) continue;
      AddNumbers(value, prefix + key + "/", step, true);
    } else if (const auto number = NumberOf(value)) {
      AddShortest(run_.Of(prefix + key), step, *number);
    } else if (prefix.empty() && FindName(key).quantity == Quantity::kLoss &&
               HasUpdate(object)) {
      run_.Of(key).AddWritten(step, std::nullopt, value.dump());
    }
  }
}

std::vector<ForeignRun> Rows::Finish(bool cut) {
  if (!decided_) Decide();
  if (run_.series.empty()) {
    const std::vector<std::string> keys(keys_.begin(), keys_.end());
    ThrowError(
        ErrorKind::kFormat,
        "{} JSON objects hold no number beside a step ({}). Keys with numbers: "
        "{}. Name the one that counts the steps (--step NAME), or write "
        "`step` into each object.",
        count_,
        step_name_.empty() ? "the key step, iteration, global_step or the like"
                           : "the key `" + step_name_ + "`",
        NamesText(keys));
  }
  DescribeStep(step_name_, run_);
  run_.step_name = step_name_;
  run_.rising = RisingNames(counters_, step_name_);
  if (cut) run_.notes.emplace_back("The last line is cut and was left out.");
  if (without_step_ > 0) {
    run_.notes.push_back(fmt::format("{} lines have no `{}` and were left out.",
                                     without_step_, step_name_));
  }
  std::vector<ForeignRun> runs;
  runs.push_back(std::move(run_));
  return runs;
}

}  // namespace

std::vector<ForeignRun> ReadJsonLines(std::string_view text,
                                      std::string_view step_name) {
  Rows rows(step_name);
  int64_t line_number = 0;
  int64_t broken_at = 0;
  ForEachLine(text, [&](std::string_view line) {
    ++line_number;
    if (Trimmed(line).empty() || (line_number > 1 && broken_at == 1)) return;
    if (broken_at > 0) {
      ThrowError(ErrorKind::kFormat,
                 "line {} is no JSON object, but each line must be one. Mend "
                 "the line, or remove it if it holds no values.",
                 broken_at);
    }
    json object = ParseJson(line);
    if (!object.is_object()) {
      broken_at = line_number;
      return;
    }
    rows.Add(std::move(object));
  });
  if (line_number == 0 || broken_at == 1) return {};
  return rows.Finish(broken_at > 0);
}

std::vector<ForeignRun> ReadJsonRows(const json& list,
                                     std::string_view step_name) {
  const auto is_object = [](const json& row) { return row.is_object(); };
  if (list.empty() || !std::ranges::all_of(list, is_object)) return {};
  Rows rows(step_name);
  for (const json& row : list) rows.Add(row);
  return rows.Finish(false);
}

}  // namespace isoloss::foreign
