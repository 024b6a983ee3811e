// The optimizer's state from step to step.
#include <algorithm>
#include <string>
#include <utility>

#include "isoloss/base/matrix.h"
#include "isoloss/operations/check.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;

/// Every element of `found` is that of `wanted`, bit for bit, after rounding to
/// the type of `found` if that is another one.
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

/// What `before` of this step holds instead of `after` of the step before.
Explanation StateMistake(const OperationCase& given, const std::string& before,
                         const Floats& found) {
  const bool is_parameter = before == "parameter_before";
  const Floats* older = given.previous->Find(before);
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

void CheckWeight(const OperationCase& given, std::vector<Finding>& findings) {
  if (given.update_before == nullptr) return;
  const Floats* after = given.update_before->Find("parameter_after");
  const Floats& weight = *given.operation.Find("weight");
  if (after == nullptr || after->extent != weight.extent) return;
  if (after->type != weight.type && after->type != "float32") return;
  const auto compare = [&](const Floats& wanted) {
    return CompareState(weight, "weight", wanted, given.where);
  };
  Finding finding = FindingOf(given, "weight", "weight", compare(*after));
  if (finding.is_right()) return findings.push_back(std::move(finding));
  // An optimizer may hold a square the other way.
  if (weight.extent.size() == 2 && weight.extent[0] == weight.extent[1]) {
    Floats turned = *after;
    const Matrix<float> transposed = Transposed(after->Rows());
    turned.values.assign(transposed.data(),
                         transposed.data() + transposed.size());
    if (compare(turned).other() == 0) return;
  }
  const bool is_old =
      compare(*given.update_before->Find("parameter_before")).other() == 0;
  finding.explanation = {
      .name = is_old ? "weight_of_step_before" : "other_weight",
      .sentence = is_old
                      ? "the layer read the weight from before the update of "
                        "the step before"
                      : "the layer read another weight than the update of "
                        "the step before left"};
  findings.push_back(std::move(finding));
}

void CheckStateBetweenSteps(const OperationCase& given,
                            std::vector<Finding>& findings) {
  if (given.previous == nullptr) return;
  for (const char* stem : {"exp_avg", "exp_avg_sq", "parameter"}) {
    const std::string before = std::string(stem) + "_before";
    const Floats* after = given.previous->Find(std::string(stem) + "_after");
    const Floats& found = *given.operation.Find(before);
    if (after == nullptr || after->extent != found.extent) continue;
    // A coarser type after the step does not tell what a finer one held.
    if (after->type != found.type && after->type != "float32") continue;
    Finding finding =
        FindingOf(given, before, before,
                  CompareState(found, before, *after, given.where));
    if (!finding.is_right()) {
      finding.explanation = StateMistake(given, before, found);
    }
    findings.push_back(std::move(finding));
  }
}

void CheckSkippedStep(const OperationCase& given,
                      std::vector<Finding>& findings) {
  for (const char* stem : {"exp_avg", "exp_avg_sq", "parameter"}) {
    const std::string after = std::string(stem) + "_after";
    const Floats* found = given.operation.Find(after);
    if (found == nullptr) continue;
    const Floats& before = *given.operation.Find(std::string(stem) + "_before");
    findings.push_back(FindingOf(
        given, after, after, CompareState(*found, after, before, given.where)));
  }
}

}  // namespace isoloss::operations
