#include "isoloss/foreign/json_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/foreign/due_losses.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {

using nlohmann::json;

namespace {

/// The first lines, up to this number, tell which key counts the steps.
constexpr size_t kFirstRows = 200;

bool IsLoss(const std::string& key) {
  return FindName(key).quantity == Quantity::kLoss;
}

/// Reads a step, also one with the number of all steps: "5/100".
std::optional<int64_t> StepValueOf(const json& value) {
  if (!value.is_string()) return WholeOf(value);
  const auto& text = value.get_ref<const std::string&>();
  const size_t slash = text.find('/');
  return slash == std::string::npos ? std::nullopt
                                    : ParseWhole(text.substr(0, slash));
}

}  // namespace

JsonRows::JsonRows(std::string_view format, std::string_view step_name)
    : step_name_(step_name), decided_(!step_name.empty()) {
  run_.format = format;
}

void JsonRows::Add(json row) {
  ++count_;
  if (decided_) return Keep(row);
  first_.push_back(std::move(row));
  if (first_.size() == kFirstRows) Decide();
}

/// Chooses the key of the steps by many lines, since a first line with settings
/// may have a key of that name.
void JsonRows::Decide() {
  for (const json& row : first_) {
    for (const auto& [key, value] : row.items()) {
      if (const auto whole = StepValueOf(value)) Count(key, *whole, counters_);
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

void JsonRows::Keep(const json& row) {
  const auto found = row.find(step_name_);
  const auto step = found == row.end() ? std::nullopt : StepValueOf(*found);
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

std::vector<JsonRows::Field> JsonRows::FieldsOf(const json& row) const {
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

bool JsonRows::MissesLoss(const std::vector<Field>& fields) {
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

void JsonRows::AddMissing(const std::vector<Field>& fields, int64_t step) {
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
void JsonRows::AddNulls() {
  const Series* loss = run_.Main(Quantity::kLoss);
  if (loss == nullptr || loss->step.empty()) return;
  const int64_t first = std::ranges::min(loss->step);
  std::erase_if(null_, [first](int64_t step) { return step < first; });
  if (loss->step.size() > 1) KeepDue(run_, null_);
  Series& series = run_.Of(loss->name);
  for (const int64_t step : null_) series.AddWritten(step, {}, "null");
}

std::vector<ForeignRun> JsonRows::Finish(bool cut) {
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
  if (!counts_steps_) DescribeStep(step_name_, run_);
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

}  // namespace isoloss::foreign
