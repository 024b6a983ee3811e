// Compares the optimizer's state from step to step.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/operations/check.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;

/// Compares every element of `found` with `wanted`, bit for bit. If types
/// differ, `wanted` is first rounded to the type of `found`.
Comparison CompareState(const Floats& found, const std::string& name,
                        const Floats& wanted, const std::string& where) {
  const Grid grid =
      found.type == wanted.type ? Grid::kFp32 : GridOf(found, name, where);
  Comparison comparison(grid);
  const size_t cols = std::max<size_t>(found.Rows().cols(), 1);
  for (size_t i = 0; i < found.values.size(); ++i) {
    comparison.AddExact(i / cols, i % cols, found.values[i],
                        RoundTo(grid, static_cast<double>(wanted.values[i])));
  }
  return comparison;
}

/// Compares a weight, which an optimizer may hold transposed if it is square.
Comparison CompareWeight(const Floats& weight, const Floats& wanted,
                         const std::string& where) {
  Comparison comparison = CompareState(weight, "weight", wanted, where);
  if (comparison.other() == 0 || weight.extent.size() != 2 ||
      weight.extent[0] != weight.extent[1]) {
    return comparison;
  }
  Floats turned = wanted;
  const Matrix<float> transposed = Transposed(wanted.Rows());
  turned.values.assign(transposed.data(),
                       transposed.data() + transposed.size());
  Comparison other_way = CompareState(weight, "weight", turned, where);
  return other_way.other() == 0 ? other_way : comparison;
}

/// Says what `before` of this step holds instead of `after` of the step before.
Explanation StateMistake(const OperationCase& given, const Operation& last,
                         const std::string& before, const Floats& found) {
  const bool is_parameter = before == "parameter_before";
  const Floats* older = last.Find(before);
  Floats zeros = found;
  std::ranges::fill(zeros.values, 0.0f);
  const auto is = [&](const Floats& values) {
    return CompareState(found, before, values, given.where).other() == 0;
  };
  if (!is_parameter && is(zeros)) {
    return {.name = "moments_lost_between_steps",
            .sentence = "moments began anew between the steps"};
  }
  if (older != nullptr && is(*older)) {
    return {.name = "update_lost_between_steps",
            .sentence = "the update of the step before was lost"};
  }
  return {.name = is_parameter ? "other_parameter" : "other_moments",
          .sentence = is_parameter
                          ? "the parameter is another one than after the step "
                            "before"
                          : "moments are others than after the step before"};
}

}  // namespace

std::vector<std::string> UpdateNamesOf(const std::string& linear_module) {
  return {linear_module + ".weight", linear_module};
}

std::span<const char* const> StateStems(const Operation& update) {
  static constexpr const char* kAdamW[] = {"exp_avg", "exp_avg_sq",
                                           "parameter"};
  static constexpr const char* kMuon[] = {"momentum", "parameter"};
  if (update.type == "muon") return kMuon;
  return kAdamW;
}

bool IsRoundedAtRandom(const Operation& update) {
  return update.Text("rounding") == "stochastic";
}

std::string WhyNotComparable(const Floats& found, const Floats& after) {
  if (after.extent != found.extent) return "their shapes differ";
  if (after.type == found.type) return "";
  // A coarser type after the step does not tell what a finer one held.
  if (after.type != "float32") return "their types do not tell";
  return GridOf(found) ? "" : "no rounding to its type is known";
}

/// Tells which weight the layer read instead of the right one.
static Explanation OtherWeight(bool is_old, bool is_new, bool is_of_this_step) {
  return {.name = is_old   ? "weight_of_step_before"
                  : is_new ? "weight_after_update"
                           : "other_weight",
          .sentence = is_old   ? "the layer read the weight from before the "
                                 "update of the step before"
                      : is_new ? "the layer read the weight from after the "
                                 "update of this step"
                      : is_of_this_step
                          ? "the layer read another weight than the optimizer "
                            "updated in this step"
                          : "the layer read another weight than the update of "
                            "the step before left"};
}

void CheckWeight(const OperationCase& given, std::vector<Finding>& findings) {
  const Floats& weight = *given.operation.Find("weight");
  const auto wanted_of = [&](const Operation* update,
                             const std::string& name) -> const Floats* {
    const Floats* wanted = update == nullptr ? nullptr : update->Find(name);
    const Floats* copy =
        update == nullptr ? nullptr : update->Find("weight_after");
    if (copy != nullptr && name == "parameter_after") wanted = copy;
    // Random bits decided what the model had of the master before.
    if (copy != nullptr && name == "parameter_before" &&
        IsRoundedAtRandom(*update)) {
      return nullptr;
    }
    return wanted != nullptr && WhyNotComparable(weight, *wanted).empty()
               ? wanted
               : nullptr;
  };
  const Floats* after_last = wanted_of(given.update_before, "parameter_after");
  const Floats* before = wanted_of(given.update_here, "parameter_before");
  const auto compare = [&](const Floats& wanted) {
    return CompareWeight(weight, wanted, given.where);
  };
  const auto is = [&](const Operation* update, const char* name) {
    const Floats* wanted = wanted_of(update, name);
    return wanted != nullptr && compare(*wanted).other() == 0;
  };
  const Floats* wanted = after_last;
  if (wanted == nullptr || compare(*wanted).other() == 0) {
    // The layer reads the weight before the update, unless called after it.
    const bool is_right =
        before == nullptr || compare(*before).other() == 0 ||
        (!given.update_is_later && is(given.update_here, "parameter_after"));
    if (!is_right) wanted = before;
  }
  if (wanted == nullptr) return;
  Finding finding = FindingOf(given, "weight", "weight", compare(*wanted));
  if (!finding.is_right()) {
    const bool is_old = is(given.update_before, "parameter_before");
    const bool is_new = is(given.update_here, "parameter_after");
    finding.explanation = OtherWeight(is_old, is_new, wanted == before);
  }
  findings.push_back(std::move(finding));
}

/// Checks that the count grows by 1 from a step to the next one, or not at all
/// if a step is skipped.
static void CheckStepCount(const OperationCase& given, const Operation& before,
                           std::vector<Finding>& findings) {
  if (given.operation.type == "muon") return;  // it corrects no bias
  const double last = before.Number("step", 0);
  const double count = given.operation.Number("step", 0);
  const bool skips = given.operation.texts.contains("expected") ||
                     before.texts.contains("expected");
  if (count == last + 1 || (skips && count == last)) return;
  Comparison comparison(Grid::kFp32);
  comparison.AddOther(0, 0, static_cast<float>(count), last + 1);
  Finding finding = FindingOf(given, "step", "step", comparison);
  finding.explanation = {
      .name = count <= last ? "count_began_anew" : "count_jumped",
      .sentence = count == last
                      ? "the count of the bias correction did not grow"
                  : count < last
                      ? "the count of the bias correction began anew"
                      : "the count of the bias correction grew by more than 1"};
  findings.push_back(std::move(finding));
}

void CheckStateBetweenSteps(const OperationCase& given,
                            std::vector<Finding>& findings) {
  const Operation* last =
      given.call_before != nullptr ? given.call_before : given.previous;
  if (last == nullptr) return;
  for (const char* stem : StateStems(given.operation)) {
    const std::string before = std::string(stem) + "_before";
    const Floats* after = last->Find(std::string(stem) + "_after");
    const Floats& found = *given.operation.Find(before);
    if (after == nullptr || !WhyNotComparable(found, *after).empty()) continue;
    Finding finding =
        FindingOf(given, before, before,
                  CompareState(found, before, *after, given.where));
    if (!finding.is_right()) {
      finding.explanation = StateMistake(given, *last, before, found);
    }
    findings.push_back(std::move(finding));
  }
  CheckStepCount(given, *last, findings);
}

void CheckSkippedStep(const OperationCase& given,
                      std::vector<Finding>& findings) {
  for (const char* stem : StateStems(given.operation)) {
    const std::string after = std::string(stem) + "_after";
    const Floats* found = given.operation.Find(after);
    if (found == nullptr) continue;
    const Floats& before = *given.operation.Find(std::string(stem) + "_before");
    findings.push_back(FindingOf(
        given, after, after, CompareState(*found, after, before, given.where)));
  }
}

}  // namespace isoloss::operations
