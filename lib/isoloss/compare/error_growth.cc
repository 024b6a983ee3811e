#include "isoloss/compare/error_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "isoloss/compare/common_steps.h"
#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/producers.h"
#include "isoloss/compare/tensor_divergence.h"

namespace isoloss::compare {
namespace {

using runlog::DumpedTensor;
using runlog::TensorDump;

constexpr std::string_view kRouted = ".routed_experts.";
constexpr std::string_view kExpertIds = "expert_ids";

/// A tensor of both dumps.
struct Pair {
  const DumpedTensor* a;
  const DumpedTensor* b;

  bool SameShape() const { return a->rows == b->rows && a->cols == b->cols; }
};

std::vector<std::string> NamesOf(const TensorDump& dump) {
  std::vector<std::string> names;
  for (const DumpedTensor& tensor : dump.tensors) names.push_back(tensor.name);
  return names;
}

std::vector<Pair> PairsOf(const TensorDump& a, const TensorDump& b) {
  std::vector<Pair> pairs;
  for (const SharedName& shared : MatchNames(NamesOf(a), NamesOf(b)).shared) {
    pairs.push_back({&a.tensors[shared.a], &b.tensors[shared.b]});
  }
  return pairs;
}

/// NaN is larger than all: what is not a number must not be hidden.
bool Larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

bool ByAdded(const OperationError& x, const OperationError& y) {
  return Larger(x.added, y.added);
}

bool IsOptimizers(const DumpedTensor& tensor) {
  return tensor.kind == "parameter" || tensor.kind == "update";
}

/// Can it be what an operation that is not known reads?
bool IsRead(const DumpedTensor& tensor) {
  return tensor.kind != "weight" && tensor.kind != "wgrad" &&
         tensor.kind != kExpertIds && !IsOptimizers(tensor);
}

/// Which tensors have rows of other tokens in A and B.
class RoutingCheck {
 public:
  explicit RoutingCheck(const std::vector<Pair>& pairs) {
    for (const Pair& pair : pairs) {
      if (pair.a->kind == kExpertIds) CompareIds(pair);
    }
    for (const Pair& pair : pairs) CompareSegments(pair);
  }

  bool LeavesOut(const DumpedTensor& tensor) const {
    const std::string& module = tensor.module;
    const size_t routed = module.find(kRouted);
    if (routed != std::string::npos) {
      return tensor.kind != "weight" && !IsOptimizers(tensor) &&
             flipped_.contains(module.substr(0, routed));
    }
    const size_t weights = module.rfind(".router.topk_weights");
    return weights != std::string::npos &&
           reordered_.contains(module.substr(0, weights));
  }

  std::vector<LeftOut> left_out;

 private:
  void CompareIds(const Pair& pair) {
    const std::string moe = pair.a->module.substr(0, pair.a->module.rfind('.'));
    known_.insert(moe);
    if (!pair.SameShape()) {
      Flipped(moe, "expert_ids have other extents");
      return;
    }
    const auto slots = static_cast<size_t>(pair.a->cols);
    int64_t flipped = 0;
    int64_t reordered = 0;
    for (size_t at = 0; at < pair.a->values.size(); at += slots) {
      std::vector<float> x(&pair.a->values[at], &pair.a->values[at] + slots);
      std::vector<float> y(&pair.b->values[at], &pair.b->values[at] + slots);
      reordered += x == y ? 0 : 1;
      std::ranges::sort(x);
      std::ranges::sort(y);
      flipped += x == y ? 0 : 1;
    }
    if (flipped > 0) {
      Flipped(moe, fmt::format("expert_ids of {} of {} tokens differ", flipped,
                               pair.a->rows));
    } else if (reordered > 0) {
      reordered_.insert(moe);
      left_out.push_back(
          {moe,
           fmt::format("only topk_weights, because the slots of {} of {} "
                       "tokens are in another order",
                       reordered, pair.a->rows),
           false});
    }
  }

  void CompareSegments(const Pair& pair) {
    const size_t routed = pair.a->module.find(kRouted);
    if (routed == std::string::npos || !IsRead(*pair.a)) return;
    const std::string moe = pair.a->module.substr(0, routed);
    if (known_.contains(moe) || flipped_.contains(moe)) return;
    if (pair.SameShape() && pair.a->segment_ends == pair.b->segment_ends)
      return;
    Flipped(moe, fmt::format("rows or segments of {} differ", pair.a->name));
  }

  void Flipped(const std::string& moe, std::string reason) {
    flipped_.insert(moe);
    reordered_.insert(moe);
    left_out.push_back({moe, std::move(reason), true});
  }

  std::set<std::string> known_;      ///< dumps with expert_ids
  std::set<std::string> flipped_;    ///< tokens went to other experts
  std::set<std::string> reordered_;  ///< slots hold other experts
};

struct Measured {
  const DumpedTensor* tensor;
  double error;
};

class Growth {
 public:
  Growth(const TensorDump& a, const TensorDump& b)
      : pairs_(PairsOf(a, b)), routing_(pairs_), producers_(NamesOf(a)) {
    for (const Pair& pair : pairs_) {
      if (!pair.SameShape() || pair.a->kind == kExpertIds ||
          routing_.LeavesOut(*pair.a)) {
        continue;
      }
      places_[pair.a->name] = tensors_.size();
      tensors_.push_back({pair.a, RelativeL2(pair.a->values, pair.b->values)});
    }
  }

  ErrorGrowth Measure() const {
    ErrorGrowth growth;
    growth.left_out = routing_.left_out;
    bool any_before = false;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const DumpedTensor& tensor = *tensors_[i].tensor;
      const bool optimizers = IsOptimizers(tensor);
      auto operation = tensor.kind == "weight" ? std::nullopt : Operation(i);
      if (operation) {
        if (!growth.first_source && !operation->inputs.empty() &&
            operation->input_error == 0 && operation->error != 0 &&
            !(optimizers && any_before)) {
          growth.first_source = operation;
        }
        (optimizers ? growth.optimizer : growth.operations)
            .push_back(std::move(*operation));
      }
      any_before = any_before || tensors_[i].error != 0;
    }
    std::ranges::stable_sort(growth.operations, ByAdded);
    std::ranges::stable_sort(growth.optimizer, ByAdded);
    return growth;
  }

 private:
  /// Empty if what it reads is not in the dumps.
  std::optional<OperationError> Operation(size_t place) const {
    const Measured& result = tensors_[place];
    const auto inputs = Inputs(place);
    if (!inputs) return std::nullopt;
    OperationError operation;
    operation.result = result.tensor->name;
    operation.order = result.tensor->order;
    operation.error = result.error;
    for (const size_t input : *inputs) {
      operation.inputs.push_back(tensors_[input].tensor->name);
      if (Larger(tensors_[input].error, operation.input_error)) {
        operation.input_error = tensors_[input].error;
      }
    }
    const double in = operation.input_error;
    if (result.error != 0 || in != 0) {
      operation.growth =
          in == 0 ? std::numeric_limits<double>::infinity() : result.error / in;
    }
    const double excess = result.error * result.error - in * in;
    operation.added = excess < 0 ? 0 : std::sqrt(excess);
    return operation;
  }

  std::optional<std::vector<size_t>> Inputs(size_t place) const {
    const DumpedTensor& tensor = *tensors_[place].tensor;
    const auto names = producers_.Of(tensor.module, tensor.kind);
    if (!names) return Nearest(place);
    std::vector<size_t> inputs;
    std::map<std::string, bool> seen = {{tensor.name, true}};
    for (const std::string& name : *names) {
      if (!Trace(name, seen, inputs)) return std::nullopt;
    }
    if (inputs.empty()) return std::nullopt;
    return inputs;
  }

  /// Appends tensor `name`, or if it can't be compared what it is computed
  /// from. False if it leads to no tensor; weights that are missing are no
  /// loss.
  bool Trace(const std::string& name, std::map<std::string, bool>& seen,
             std::vector<size_t>& inputs) const {
    const auto [known, first] = seen.emplace(name, true);
    if (!first) return known->second;
    const auto found = places_.find(name);
    if (found != places_.end()) {
      inputs.push_back(found->second);
      return true;
    }
    if (name.ends_with("_weight")) return true;
    const size_t kind = name.rfind('_');
    const auto names = producers_.Of(name.substr(0, kind),
                                     std::string_view(name).substr(kind + 1));
    // Weights alone lead nowhere: what they meet is what is missing.
    bool leads = names.has_value() &&
                 !std::ranges::all_of(*names, [](const std::string& input) {
                   return input.ends_with("_weight");
                 });
    if (leads) {
      for (const std::string& input : *names) {
        leads = Trace(input, seen, inputs) && leads;
      }
    }
    known->second = leads;
    return leads;
  }

  /// For an operation that is not known.
  std::vector<size_t> Nearest(size_t place) const {
    const DumpedTensor& tensor = *tensors_[place].tensor;
    const auto phase = PhaseOfTensor(tensor.name);
    std::optional<size_t> of_phase;
    std::optional<size_t> of_any;
    for (size_t i = 0; i < place; ++i) {
      const DumpedTensor& other = *tensors_[i].tensor;
      if (!IsRead(other)) continue;
      of_any = i;
      if (PhaseOfTensor(other.name) == phase) of_phase = i;
    }
    std::vector<size_t> inputs;
    if (of_phase || of_any) inputs.push_back(of_phase ? *of_phase : *of_any);
    const auto weight = places_.find(tensor.module + "_weight");
    if (tensor.kind == "output" && weight != places_.end()) {
      inputs.push_back(weight->second);
    }
    return inputs;
  }

  std::vector<Pair> pairs_;
  RoutingCheck routing_;
  Producers producers_;
  std::vector<Measured> tensors_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

ErrorGrowth MeasureErrorGrowth(const TensorDump& a, const TensorDump& b) {
  return Growth(a, b).Measure();
}

}  // namespace isoloss::compare
