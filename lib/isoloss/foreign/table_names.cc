#include "isoloss/foreign/table_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "isoloss/base/printable.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kStepNames[] = {
    "step",           "iteration",
    "iter",           "global_step",
    "steps",          "trainer/global_step",
    "train/step",     "train/global_step",
    "Iteration",      "Step",
    "training_step",  "train_step",
    "num_updates",    "total_updates",
    "optimizer_step", "training/global_step",
    "current_steps",  "global_step/max_steps",
    "_step"};

constexpr std::string_view kPhaseNames[] = {"phase", "split", "type",
                                            "mode",  "stage", "set"};

constexpr size_t kMostNames = 12;
constexpr size_t kMostLength = 40;

/// Returns whether the counter may count the steps of a whole run.
bool Counts(const Counter& counter) {
  return counter.restarts() == 0 && !counter.stands_still();
}

}  // namespace

std::vector<std::string_view> StepNames() {
  return {std::begin(kStepNames), std::end(kStepNames)};
}

std::string_view StepNameAmong(const std::vector<std::string>& names) {
  for (const std::string_view known : kStepNames) {
    if (std::ranges::count(names, known) != 0) return known;
  }
  return "";
}

void Counter::Add(int64_t value) {
  ++rows_;
  if (rows_ == 1) {
    first_ = last_ = value;
    return;
  }
  if (rows_ == 2) stride_ = value - first_;
  still_ = still_ && value == first_;
  even_ = even_ && value - last_ == stride_;
  if (value < last_ && value <= first_ + std::max<int64_t>(stride_, 0)) {
    ++restarts_;
  }
  last_ = value;
}

void Count(std::string_view name, int64_t value, Counters& counters) {
  constexpr size_t kMostCounters = 64;
  const auto found = counters.find(name);
  if (found != counters.end()) return found->second.Add(value);
  if (counters.size() >= kMostCounters &&
      std::ranges::count(kStepNames, name) == 0) {
    return;
  }
  counters[std::string(name)].Add(value);
}

std::string ChooseStep(const Counters& counters, ForeignRun& run) {
  std::string first;
  for (const std::string_view name : kStepNames) {
    const auto found = counters.find(name);
    if (found == counters.end()) continue;
    if (first.empty()) first = name;
    if (!Counts(found->second)) continue;
    if (name != first) {
      const Counter& other = counters.find(first)->second;
      run.notes.push_back(fmt::format(
          "`{}` counts the steps, since `{}` {}.", name, first,
          other.stands_still()
              ? std::string("is one number in all rows")
              : fmt::format("begins again {} times", other.restarts())));
    }
    return std::string(name);
  }
  return first;
}

std::vector<std::string> RisingNames(const Counters& counters,
                                     std::string_view step) {
  std::vector<std::string> names;
  const auto own = counters.find(step);
  if (own == counters.end() || Counts(own->second)) return names;
  for (const auto& [name, counter] : counters) {
    if (name != step && counter.rises()) names.push_back(name);
  }
  return names;
}

bool LossRows::Misses(const std::vector<std::string_view>& names, bool has_loss,
                      bool names_loss) {
  constexpr size_t kMostKinds = 64;
  std::string kind;
  for (const std::string_view name : names) kind.append(name).push_back('\n');
  if (has_loss) {
    if (kinds_.size() < kMostKinds) kinds_.insert(std::move(kind));
    return false;
  }
  bool updates = false;
  bool only_clocks = true;
  for (const std::string_view name : names) {
    const Quantity quantity = FindName(name).quantity;
    updates |=
        quantity == Quantity::kGradNorm || quantity == Quantity::kLearningRate;
    only_clocks &= quantity == Quantity::kStepSeconds ||
                   quantity == Quantity::kTokensPerSecond ||
                   quantity == Quantity::kTokensSeen;
  }
  return updates || kinds_.contains(kind) || (names_loss && only_clocks);
}

void DescribeStep(std::string_view name, ForeignRun& run) {
  if (name != "_step" && name != "Step") return;
  run.step_unit = "log call";
  run.step_base = 0;
  run.notes.push_back(fmt::format(
      "`{}` may count calls of log, which are no optimizer steps unless the "
      "trainer logs each step once.",
      name));
}

bool IsPhaseName(std::string_view name) {
  return std::ranges::count(kPhaseNames, SmallLetters(name)) != 0;
}

std::string PhasePrefix(std::string_view word) {
  word = word.substr(0, word.find_first_of(",;|])"));
  if (word.size() > kMostLength) return "";
  return IsEvaluationWord(word) ? SmallLetters(word) + "/" : "";
}

std::string NamesText(const std::vector<std::string>& names) {
  std::string text;
  size_t shown = 0;
  size_t left_out = 0;
  for (const std::string& name : names) {
    if (name.empty()) continue;  // a column of row numbers has no name
    if (shown == kMostNames) {
      ++left_out;
      continue;
    }
    text += fmt::format("{}`{}{}`", shown++ == 0 ? "" : ", ",
                        name.substr(0, kMostLength),
                        name.size() > kMostLength ? "..." : "");
  }
  if (left_out > 0) text += fmt::format(" and {} more", left_out);
  return text.empty() ? "none" : text;
}

size_t DashOf(std::string_view name) {
  for (size_t dash = name.find('-'); dash != name.npos;
       dash = name.find('-', dash + 1)) {
    if (FindName(name.substr(dash + 1)).quantity != Quantity::kOther) {
      return dash;
    }
  }
  return name.rfind('-');
}

std::vector<std::string> NotesOnCopies(const std::vector<std::string>& names) {
  std::map<std::string_view, int> seen;
  for (const std::string& name : names) ++seen[name];
  std::vector<std::string> notes;
  for (const auto& [name, count] : seen) {
    if (count < 2 || name.empty()) continue;
    notes.push_back(fmt::format(
        "{} columns have the name `{}`: the first one counts as {}, and the "
        "second one is called `{} (2)`.",
        count, Printable(std::string(name)), Printable(std::string(name)),
        Printable(std::string(name))));
  }
  return notes;
}

}  // namespace isoloss::foreign
