// Finds what no finding judges, and what contradicts the recording itself.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/operations/check.h"
#include "isoloss/operations/rank_points.h"

namespace isoloss::operations {
namespace {

bool IsFinite(const Floats& tensor) {
  return std::ranges::all_of(tensor.values,
                             [](float value) { return std::isfinite(value); });
}

/// Collects open points over all steps and ranks of one run.
class OpenPoints {
 public:
  explicit OpenPoints(const std::vector<OperationFile>& files) : files_(files) {
    for (size_t f = 0; f < files.size(); ++f) {
      by_rank_[files[f].rank][files[f].step] = f;
      by_step_[files[f].step].push_back(f);
      Updates& updates = updates_.emplace_back();
      std::map<std::string, bool>& layers = layers_.emplace_back();
      for (const Operation& operation : files[f].operations) {
        if (operation.is_update()) updates[operation.module] = &operation;
        if (!operation.is_linear()) continue;
        layers[operation.module] |= operation.Find("grad_weight") != nullptr;
      }
    }
  }

  std::vector<OpenPoint> Find() {
    for (size_t f = 0; f < files_.size(); ++f) {
      // The recorder itself knows these.
      AddLines(f, files_[f].unrecorded, /*forbid_pass=*/false);
      AddLines(f, files_[f].contradictions, /*forbid_pass=*/true);
      for (const Operation& operation : files_[f].operations) {
        AddMissingInputs(f, operation);
        AddRowsOfNoGroup(f, operation);
        AddUncomparedWeight(f, operation);
        AddUndeclared(f, operation);
      }
    }
    for (const auto& [rank, steps] : by_rank_) AddStates(steps);
    for (const auto& [step, files] : by_step_) {
      AddSkippedSteps(files);
      AddReplicas(files);
    }
    return std::move(points_);
  }

 private:
  using Updates = std::map<std::string, const Operation*>;

  void Add(size_t file, const std::string& module, std::string text,
           bool forbids_pass) {
    points_.push_back({file, module, std::move(text), forbids_pass});
  }

  void AddLines(size_t file, const std::string& text, bool forbid_pass) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('.')) line.pop_back();
      Add(file, "", line, forbid_pass);
    }
  }

  // ---- one operation --------------------------------------------------------

  void AddMissingInputs(size_t file, const Operation& operation) {
    const auto add = [&](const std::string& result, const char* input) {
      Add(file, operation.module,
          fmt::format("{} was not checked, since {} is missing", result, input),
          true);
    };
    if (operation.is_linear() && operation.Find("grad_output") == nullptr) {
      for (const char* result : {"grad_input", "grad_weight"}) {
        if (operation.Find(result) != nullptr) add(result, "grad_output");
      }
      for (const char* codes : {"dgrad_dy_codes", "wgrad_dy_codes"}) {
        if (operation.FindCodes(codes) != nullptr) add(codes, "grad_output");
      }
    }
    if (operation.type == "router" && operation.Find("weights") != nullptr &&
        operation.FindIntegers("expert_ids") == nullptr) {
      add("weights", "expert_ids");
    }
  }

  /// Adds what an update by Muon does not declare: any usual way was right.
  void AddUndeclared(size_t file, const Operation& operation) {
    if (operation.type != "muon") return;
    std::string names;
    const auto add = [&](const char* name, bool is_known) {
      if (!is_known) names += (names.empty() ? "" : ", ") + std::string(name);
    };
    for (const char* name : {"momentum_rule", "scale_rule", "ns_dtype"}) {
      add(name, operation.texts.contains(name));
    }
    add("nesterov", operation.numbers.contains("nesterov"));
    if (names.empty()) return;
    Add(file, operation.module,
        "each usual value was taken for right of what is not declared: " +
            names,
        false);
  }

  /// Padding of a buffer must be zero, since nothing tells what else it is.
  void AddRowsOfNoGroup(size_t file, const Operation& operation) {
    const Integers* ends = operation.FindIntegers("group_ends");
    if (operation.type != "grouped_linear" || ends == nullptr) return;
    const size_t first =
        ends->values.empty() ? 0 : static_cast<size_t>(ends->values.back());
    for (const char* name : {"output", "grad_input"}) {
      const Floats* result = operation.Find(name);
      if (result == nullptr || first >= result->extent[0]) continue;
      const size_t cols = result->extent[1];
      if (std::all_of(
              result->values.begin() + static_cast<ptrdiff_t>(first * cols),
              result->values.end(),
              [](float value) { return value == 0.0f; })) {
        continue;
      }
      Add(file, operation.module,
          fmt::format("rows {} to {} of {} were not checked, since they are of "
                      "no group and not zero: group_ends leaves them out",
                      first, result->extent[0] - 1, name),
          true);
    }
  }

  /// Adds a weight if updates are recorded at all, since a layer may be frozen.
  void AddUncomparedWeight(size_t file, const Operation& operation) {
    if (!operation.is_linear()) return;
    bool has_updates = false;
    std::string why = "no update has its name";
    for (const int64_t step : {files_[file].step, files_[file].step - 1}) {
      const std::map<int64_t, size_t>& steps = by_rank_.at(files_[file].rank);
      const auto place = steps.find(step);
      if (place == steps.end()) continue;
      const Updates& updates = updates_[place->second];
      has_updates = has_updates || !updates.empty();
      for (const std::string& name : UpdateNamesOf(operation.module)) {
        const auto found = updates.find(name);
        if (found == updates.end()) continue;
        why = WhyNotComparable(*operation.Find("weight"),
                               *found->second->Find("parameter_before"));
        if (why.empty()) return;
      }
    }
    if (!has_updates) return;
    Add(file, operation.module,
        "the weight was not compared with the optimizer's: " + why, false);
  }

  // ---- steps of one rank ----------------------------------------------------

  /// Returns whether the layer of this parameter got a gradient in that file;
  /// true also if nothing tells it.
  bool MayHaveGradient(const std::string& parameter, size_t before,
                       size_t file) const {
    // The parameter may be `layer.weight` or `layer`.
    std::string layer = parameter;
    if (!layers_[before].contains(layer)) {
      layer = parameter.substr(0, parameter.rfind('.'));
    }
    if (!layers_[before].contains(layer)) return true;
    const auto found = layers_[file].find(layer);
    return found != layers_[file].end() && found->second;
  }

  static bool HasChanges(const OperationFile& file) {
    return std::ranges::any_of(file.operations, [](const Operation& update) {
      const Floats* before = update.Find("parameter_before");
      const Floats* after = update.Find("parameter_after");
      return before != nullptr && after != nullptr &&
             before->values != after->values;
    });
  }

  /// Returns whether some rank's file of the step has the update of the layer's
  /// weight, or may have it, since it is not here.
  bool MayBeUpdated(const OperationFile& file, const std::string& layer) const {
    const std::vector<size_t>& of_step = by_step_.at(file.step);
    if (!file.mesh.empty() &&
        static_cast<int64_t>(of_step.size()) < file.ranks) {
      return true;
    }
    return std::ranges::any_of(of_step, [&](size_t f) {
      return std::ranges::any_of(
          UpdateNamesOf(layer),
          [&](const std::string& name) { return updates_[f].contains(name); });
    });
  }

  /// Adds weights that got a gradient and stayed as they were, though the
  /// optimizer updated others.
  void AddUntrained(size_t last, size_t next) {
    if (!HasChanges(files_[last])) return;
    std::set<std::string> met;
    for (const Operation& before : files_[last].operations) {
      if (!before.is_linear() || !met.insert(before.module).second) continue;
      const Floats* gradient = before.Find("grad_weight");
      if (gradient == nullptr || MayBeUpdated(files_[last], before.module) ||
          std::ranges::all_of(gradient->values,
                              [](float value) { return value == 0.0f; })) {
        continue;
      }
      const auto after = std::ranges::find_if(
          files_[next].operations, [&](const Operation& operation) {
            return operation.is_linear() && operation.module == before.module &&
                   operation.Find("weight")->values ==
                       before.Find("weight")->values;
          });
      if (after == files_[next].operations.end()) continue;
      Add(next, before.module,
          fmt::format(
              "the weight got a gradient in step {} and did not change, "
              "though others did: no optimizer has it. If it is to stay "
              "as it is, it must need no gradient",
              files_[last].step),
          true);
    }
  }

  /// Compares a parameter that both steps updated. Returns whether any of its
  /// state was compared.
  bool AddState(size_t file, const Operation& before, const Operation& after) {
    if (before.Find("parameter_before")->extent !=
        after.Find("parameter_before")->extent) {
      Add(file, after.module,
          "state was not compared with the step before, since shapes differ",
          true);
      return false;
    }
    bool is_compared = false;
    for (const std::string stem : StateStems(after)) {
      const Floats* left = before.Find(stem + "_after");
      const Floats& found = *after.Find(stem + "_before");
      const std::string why = left == nullptr
                                  ? "the step before lacks " + stem + "_after"
                                  : WhyNotComparable(found, *left);
      is_compared = is_compared || why.empty();
      if (why.empty()) continue;
      Add(file, after.module,
          fmt::format("{}_before was not compared with the step before: {}",
                      stem, why),
          false);
    }
    return is_compared;
  }

  void AddStates(const std::map<int64_t, size_t>& steps) {
    for (auto last = steps.begin(); last != steps.end(); ++last) {
      const auto next = std::next(last);
      if (next == steps.end()) break;
      const Updates& before = updates_[last->second];
      const Updates& after = updates_[next->second];
      if (before.empty() || after.empty()) continue;
      if (next->first != last->first + 1) {
        Add(next->second, "",
            fmt::format("the optimizer's state was not compared between steps "
                        "{} and {}, which do not follow each other",
                        last->first, next->first),
            false);
        continue;
      }
      AddUntrained(last->second, next->second);
      AddStates(last->second, before, next->second, after);
    }
  }

  void AddStates(size_t last, const Updates& before, size_t next,
                 const Updates& after) {
    bool is_compared = false;
    for (const auto& [name, update] : before) {
      const auto found = after.find(name);
      if (found != after.end()) {
        is_compared |= AddState(next, *update, *found->second);
        continue;
      }
      Add(next, name,
          fmt::format("an update is missing, which step {} had",
                      files_[last].step),
          MayHaveGradient(name, last, next));
    }
    for (const auto& [name, update] : after) {
      if (before.contains(name)) continue;
      Add(next, name,
          fmt::format("state was not compared: step {} has no update of the "
                      "parameter",
                      files_[last].step),
          false);
    }
    if (is_compared) return;
    Add(next, "",
        fmt::format("no state of the optimizer was compared with that of step "
                    "{}, though both files hold updates",
                    files_[last].step),
        true);
  }

  // ---- all ranks of one step ------------------------------------------------

  /// A scaler skips the step of all parameters if one gradient is not finite.
  void AddSkippedSteps(const std::vector<size_t>& of_step) {
    std::vector<std::pair<size_t, const Operation*>> skipped;
    bool has_reason = false;
    for (const size_t f : of_step) {
      const OperationFile& file = files_[f];
      has_reason = has_reason || !std::isfinite(file.grad_norm.value_or(0));
      for (const Operation& operation : file.operations) {
        if (!operation.is_update()) continue;
        if (operation.texts.contains("expected")) {
          skipped.emplace_back(f, &operation);
        }
        has_reason = has_reason || !IsFinite(*operation.Find("gradient"));
      }
    }
    if (has_reason) return;
    for (const auto& [file, operation] : skipped) {
      Add(file, operation->module,
          "the step was to be skipped, but every recorded gradient is finite",
          true);
    }
  }

  /// Experts are no replicas, though they may begin with equal numbers.
  /// Parameters that begin with a single number are none either.
  static bool MayBeReplica(const OperationFile& file, const Operation& update) {
    if (update.module.find("expert") != std::string::npos) return false;
    for (const Operation& operation : file.operations) {
      if (operation.type == "grouped_linear" &&
          update.module.starts_with(operation.module)) {
        return false;
      }
    }
    const std::vector<float>& values = update.Find("parameter_before")->values;
    return std::ranges::any_of(values,
                               [&](float value) { return value != values[0]; });
  }

  void AddReplicas(const std::vector<size_t>& of_step) {
    std::map<std::string, std::pair<size_t, const Operation*>> first;
    for (const size_t f : of_step) {
      std::set<std::string> met;
      for (const Operation& operation : files_[f].operations) {
        if (!operation.is_update() || !met.insert(operation.module).second) {
          continue;
        }
        const auto [place, is_new] =
            first.try_emplace(operation.module, f, &operation);
        if (is_new) continue;
        const auto differs = [&,
                              other = place->second.second](const char* name) {
          const Floats& here = *operation.Find(name);
          const Floats& there = *other->Find(name);
          return here.extent != there.extent ||
                 std::memcmp(here.values.data(), there.values.data(),
                             here.values.size() * sizeof(float)) != 0;
        };
        if (differs("parameter_before") || !differs("gradient") ||
            !MayBeReplica(files_[f], operation)) {
          continue;
        }
        Add(f, operation.module,
            fmt::format(
                "ranks {} and {} have equal parameters, but other "
                "gradients: replicas part here{}",
                files_[place->second.first].rank, files_[f].rank,
                GradientDifference(*operation.Find("gradient"),
                                   *place->second.second->Find("gradient"))),
            true);
      }
    }
  }

  const std::vector<OperationFile>& files_;
  std::vector<Updates> updates_;  ///< of each file
  /// The linear modules of each file, and whether their weights got gradients.
  std::vector<std::map<std::string, bool>> layers_;
  std::map<int64_t, std::map<int64_t, size_t>> by_rank_;
  std::map<int64_t, std::vector<size_t>> by_step_;
  std::vector<OpenPoint> points_;
};

}  // namespace

std::vector<OpenPoint> OpenPointsOf(const std::vector<OperationFile>& files) {
  std::vector<OpenPoint> points = OpenPoints(files).Find();
  std::ranges::move(RankPointsOf(files), std::back_inserter(points));
  return points;
}

}  // namespace isoloss::operations
