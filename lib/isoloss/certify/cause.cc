#include "isoloss/certify/cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "isoloss/base/printable.h"
#include "isoloss/certify/result_cause.h"

namespace isoloss::certify {
namespace {

using operations::Floats;
using operations::Operation;
using operations::OperationFile;

bool IsZero(const Floats* tensor) {
  return tensor != nullptr && !tensor->values.empty() &&
         std::ranges::all_of(tensor->values,
                             [](float value) { return value == 0.0f; });
}

/// Returns the kind of a tensor that lasts longer than a step; "": it does not.
std::string_view KindOfState(const Operation& operation,
                             const std::string& tensor) {
  if (tensor == "parameter_before") return kWeights;
  if (tensor.ends_with("_before")) return kMoments;
  if (operation.is_linear() && (tensor == "weight" || tensor == "bias")) {
    return kWeights;
  }
  if (operation.type == "router" && tensor == "bias") return kRouterBias;
  return "";
}

std::string_view KindOfSetting(const Operation& operation,
                               const std::string& name) {
  if (operation.is_linear() || operation.type == "router") return kSetting;
  if (name == "step") return kStepCounter;
  return name == "lr" ? kSchedule : kSetting;
}

/// Counts states of each kind and keeps the first one as an example.
class States {
 public:
  explicit States(std::string name) : name_(std::move(name)) {}

  void Add(std::string_view kind, const std::string& module,
           const TensorDifference& tensor, bool began_anew) {
    Found& found = found_[kind];
    ++found.count;
    found.anew += began_anew ? 1 : 0;
    if (found.count > 1) return;
    found.example = fmt::format("{}: {}", Printable(module), tensor.Text());
  }

  std::vector<Cause> Take() const {
    std::vector<Cause> causes;
    for (const std::string_view kind :
         {kWeights, kMoments, kStepCounter, kSchedule, kRouterBias,
          kScaleHistory, kSetting}) {
      const auto found = found_.find(kind);
      if (found == found_.end()) continue;
      causes.push_back({kind, TextOf(kind, found->second)});
    }
    return causes;
  }

 private:
  struct Found {
    int64_t count = 0;
    int64_t anew = 0;
    std::string example = {};
  };

  std::string TextOf(std::string_view kind, const Found& found) const {
    static const std::map<std::string_view, const char*> kNouns = {
        {kWeights, "Weights"},
        {kMoments, "States of the optimizer"},
        {kStepCounter, "Step counters of the optimizer"},
        {kSchedule, "Learning rates"},
        {kRouterBias, "Biases of routers"},
        {kScaleHistory, "Scales of equal tensors"},
        {kSetting, "Settings"}};
    return fmt::format("{} {} in {} ({} tensors or numbers). {}.",
                       kNouns.at(kind),
                       found.anew == found.count ? "began anew" : "differ",
                       name_, found.count, found.example);
  }

  std::string name_;
  std::map<std::string_view, Found> found_;
};

void AddTensors(const Operation& first, const Operation& other,
                States& states) {
  for (const auto& [name, tensor] : first.floats) {
    const operations::LinearOperand* operand =
        operations::OperandOfTensor(name);
    const bool is_scale = name.ends_with("_scales") && operand != nullptr &&
                          !DifferenceOf(operand->tensor, first, other);
    const std::string_view kind =
        is_scale ? kScaleHistory : KindOfState(first, name);
    if (kind.empty()) continue;
    if (const auto difference = DifferenceOf(name, first, other)) {
      states.Add(kind, first.module, *difference,
                 !is_scale && IsZero(other.Find(name)) && !IsZero(&tensor));
    }
  }
}

void AddSettings(const Operation& first, const Operation& other,
                 States& states) {
  for (const auto& [name, value] : first.numbers) {
    const auto found = other.numbers.find(name);
    if (found == other.numbers.end() || found->second == value) continue;
    const TensorDifference difference = {
        .name = name,
        .elements = 1,
        .of = 1,
        .first = fmt::format("{}", value),
        .other = fmt::format("{}", found->second)};
    states.Add(KindOfSetting(first, name), first.module, difference,
               name == "step" && found->second == 1.0);
  }
}

}  // namespace

bool Has(const std::vector<Cause>& causes, std::string_view kind) {
  return std::ranges::find(causes, kind, &Cause::kind) != causes.end();
}

void AddNew(std::vector<Cause> more, std::vector<Cause>& causes) {
  for (Cause& cause : more) {
    if (!Has(causes, cause.kind)) causes.push_back(std::move(cause));
  }
}

std::vector<Cause> StateCauses(const OperationFiles& files) {
  States states(files.names[1]);
  const auto partners = Partners(files.first, files.other);
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] == nullptr) continue;
    AddTensors(files.first.operations[i], *partners[i], states);
    AddSettings(files.first.operations[i], *partners[i], states);
  }
  return states.Take();
}

std::vector<Cause> CausesBetween(const OperationFile& before,
                                 const OperationFile& after,
                                 const std::string& name_after) {
  States states(name_after);
  const auto partners = Partners(before, after);
  for (size_t i = 0; i < partners.size(); ++i) {
    if (partners[i] == nullptr) continue;
    const Operation& left = before.operations[i];
    for (const auto& [name, tensor] : left.floats) {
      if (!name.ends_with("_after")) continue;
      const std::string state =
          name.substr(0, name.size() - std::string_view("_after").size());
      const Floats* found = partners[i]->Find(state + "_before");
      if (found == nullptr || found->type != tensor.type) continue;
      if (const auto different = DifferenceOf(state, tensor, *found)) {
        states.Add(KindOfState(left, state + "_before"), left.module,
                   *different, IsZero(found) && !IsZero(&tensor));
      }
    }
  }
  return states.Take();
}

/// Names the reason why a part read other values than in the other run.
static Cause CauseOfInput(const OperationDifference& difference) {
  const std::string& tensor = difference.tensor.name;
  const std::string_view state = KindOfState(*difference.first, tensor);
  if (!state.empty()) {
    return {state,
            fmt::format("{} of {} was another one before the step began.",
                        tensor, Printable(difference.module))};
  }
  if (tensor == "labels") {
    return {kData, "The labels of the step are others."};
  }
  if (difference.tensor.zeros == difference.tensor.elements &&
      difference.tensor.elements > 1) {
    return {kRandomNumbers,
            fmt::format("All results before it are equal, and where {} "
                        "differs, it is zero in one of the runs: a dropout "
                        "drew other random numbers.",
                        tensor)};
  }
  if (difference.after.empty()) {
    return {kUnrecorded,
            "The first operation reads other values: the batch, or an "
            "operation before it that was not recorded."};
  }
  return {kUnrecorded,
          fmt::format("All results before it are equal. So the difference "
                      "arose after {}, in an operation that was not recorded: "
                      "attention, a norm, an activation, random numbers, or a "
                      "sum over ranks.",
                      difference.after)};
}

Cause CauseOf(const OperationDifference& difference,
              const OperationFiles& files, const std::string& recipe,
              Executor& executor) {
  using What = OperationDifference::What;
  switch (difference.what) {
    case What::kMissing:
      return {kAlgorithm, "The runs computed other operations."};
    case What::kSetting:
      return {KindOfSetting(*difference.first, difference.tensor.name),
              fmt::format("{}: {}.", Printable(difference.module),
                          difference.tensor.Text())};
    case What::kInput:
      return CauseOfInput(difference);
    case What::kResult:
      break;
  }
  return CauseOfResult(difference, files, recipe, executor);
}

}  // namespace isoloss::certify
