#include "isoloss/foreign/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/foreign/due_losses.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/table_names.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

using nlohmann::json;

/// The first lines, up to this number, tell which key counts the steps.
constexpr size_t kFirstRows = 200;

bool IsLoss(const std::string& key) {
  return FindName(key).quantity == Quantity::kLoss;
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

  /// Returns the runs. Called once, after the last row.
  std::vector<ForeignRun> Finish(bool cut);

 private:
  void Decide();
  void Keep(const json& row);
  /// A field belongs to one row, or to an object within it: "train/loss".
  struct Field {
    std::string name;
    const json* value = nullptr;
  };
  std::vector<Field> FieldsOf(const json& row) const;
  bool MissesLoss(const std::vector<Field>& fields);
  void AddMissing(const std::vector<Field>& fields, int64_t step);
  void AddNulls();

  std::string step_name_;
  bool decided_ = false;
  std::vector<json> first_;
  ForeignRun run_;
  LossRows loss_rows_;
  std::vector<int64_t> null_;   ///< steps of updates whose loss is null
  Counters counters_;           ///< of the first rows
  std::set<std::string> keys_;  ///< with numbers, of rows without a step
  int64_t count_ = 0;
  int64_t without_step_ = 0;
};

/// Chooses the key of the steps by many lines, since a first line with settings
/// may have a key of that name.
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
  const std::vector<Field> fields = FieldsOf(row);
  for (const auto& [name, value] : fields) {
    const auto number = NumberOf(*value);
    if (number) AddShortest(run_.Of(prefix + name), *step, *number);
  }
  if (prefix.empty() && MissesLoss(fields)) AddMissing(fields, *step);
}

std::vector<Rows::Field> Rows::FieldsOf(const json& row) const {
  std::vector<Field> fields;
  for (const auto& [key, value] : row.items()) {
    if (key == step_name_ || key.starts_with('_')) continue;
    // A picture or a table of W&B's has a type, and its numbers do not matter.
    if (!value.is_object() || value.contains("_type")) {
      fields.push_back({key, &value});
      continue;
    }
    for (const auto& [inner, part] : value.items()) {
      fields.push_back({key + "/" + inner, &part});
    }
  }
  return fields;
}

bool Rows::MissesLoss(const std::vector<Field>& fields) {
  std::vector<std::string_view> names;
  bool has_loss = false;
  bool names_loss = false;
  for (const auto& [name, value] : fields) {
    if (IsLoss(name)) {
      names_loss = true;
      has_loss |= NumberOf(*value).has_value();
    } else if (!value->is_null()) {
      names.emplace_back(name);
    }
  }
  return loss_rows_.Misses(names, has_loss, names_loss);
}

void Rows::AddMissing(const std::vector<Field>& fields, int64_t step) {
  std::vector<int64_t>* missing = &run_.without_loss;
  for (const auto& [name, value] : fields) {
    if (!IsLoss(name)) continue;
    if (!value->is_null()) {
      return run_.Of(name).AddWritten(step, std::nullopt, value->dump());
    }
    missing = &null_;
  }
  missing->push_back(step);
}

/// Adds NaN for null at a step where a loss was due, since JSON has no NaN. If
/// a loss is logged at each tenth step, null in between is no value.
void Rows::AddNulls() {
  const Series* loss = run_.Main(Quantity::kLoss);
  if (loss == nullptr || loss->step.empty()) return;
  const int64_t first = std::ranges::min(loss->step);
  std::erase_if(null_, [first](int64_t step) { return step < first; });
  if (loss->step.size() > 1) KeepDue(run_, null_);
  Series& series = run_.Of(loss->name);
  for (const int64_t step : null_) series.AddWritten(step, {}, "null");
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
  AddNulls();
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

/// Throws if the object gives two numbers to one key, since nobody can tell
/// which one is meant.
void RefuseTwoNumbers(std::string_view line, int64_t line_number) {
  std::map<std::string_view, std::string_view> values;
  JsonMembers members(line);
  while (members.Next()) {
    const auto [at, is_new] = values.emplace(members.key(), members.value());
    if (is_new || at->second == members.value() ||
        !ParsePlainNumber(members.value())) {
      continue;
    }
    ThrowError(ErrorKind::kFormat,
               "line {} gives the numbers {} and {} to the key `{}`, but an "
               "object has each key once. Write each under a name of its own.",
               line_number, Printable(std::string(at->second)),
               Printable(std::string(members.value())),
               Printable(std::string(members.key())));
  }
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
    RefuseTwoNumbers(line, line_number);
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
