#include "isoloss/compare/error_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "isoloss/compare/dump_difference.h"
#include "isoloss/runlog/shared_columns.h"

namespace isoloss::compare {
namespace {

using runlog::DumpedTensor;
using runlog::GraphIndex;
using runlog::MatchNames;
using runlog::SharedName;
using runlog::TensorDump;

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

/// Which tensors have rows of other tokens in A and B.
class RoutingCheck {
 public:
  RoutingCheck(const std::vector<Pair>& pairs, const GraphIndex& graph)
      : graph_(graph) {
    for (const Pair& pair : pairs) {
      if (pair.a->kind == kExpertIds) CompareIds(pair);
    }
    for (const Pair& pair : pairs) CompareSegments(pair);
  }

  bool LeavesOut(const DumpedTensor& tensor) const {
    const std::string moe = MoeOf(tensor);
    if (moe.empty()) return false;
    return RowsOf(tensor) == "tokens" ? reordered_.contains(moe)
                                      : flipped_.contains(moe);
  }

  std::vector<LeftOut> left_out;

 private:
  std::string MoeOf(const DumpedTensor& tensor) const {
    const auto place = graph_.Find(tensor.name);
    return place ? graph_.tensors().moe[*place] : "";
  }
  std::string RowsOf(const DumpedTensor& tensor) const {
    const auto place = graph_.Find(tensor.name);
    return place ? graph_.tensors().rows_of[*place] : "";
  }

  void CompareIds(const Pair& pair) {
    const std::string moe = MoeOf(*pair.a);
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
    if (RowsOf(*pair.a) != "expert_tokens") return;
    const std::string moe = MoeOf(*pair.a);
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

  const GraphIndex& graph_;
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
      : pairs_(PairsOf(a, b)), graph_(a.graph), routing_(pairs_, graph_) {
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

  /// The tensors that the operation reads; for one that can't be compared,
  /// those that it is computed from. None if one of them leads to no tensor;
  /// weights that are missing are no loss.
  std::optional<std::vector<size_t>> Inputs(size_t place) const {
    const auto result = graph_.Find(tensors_[place].tensor->name);
    if (!result) return std::nullopt;
    std::vector<size_t> inputs;
    std::set<int64_t> seen = {static_cast<int64_t>(*result)};
    std::vector<int64_t> open = {static_cast<int64_t>(*result)};
    while (!open.empty()) {
      const auto read = graph_.InputsOf(static_cast<size_t>(open.back()));
      open.pop_back();
      // Weights alone lead nowhere: what they meet is what is missing.
      const bool leads = std::ranges::any_of(read, [&](int64_t input) {
        return !IsWeight(input) || places_.contains(NameOf(input));
      });
      if (!leads) return std::nullopt;
      for (size_t i = read.size(); i-- > 0;) {
        if (!seen.insert(read[i]).second) continue;
        open.push_back(read[i]);
      }
      while (!open.empty() && IsEnd(open.back())) {
        const auto found = places_.find(NameOf(open.back()));
        if (found != places_.end()) inputs.push_back(found->second);
        open.pop_back();
      }
    }
    if (inputs.empty()) return std::nullopt;
    return inputs;
  }

  const std::string& NameOf(int64_t tensor) const {
    return graph_.tensors().name[static_cast<size_t>(tensor)];
  }
  bool IsWeight(int64_t tensor) const {
    return graph_.tensors().kind[static_cast<size_t>(tensor)] == "weight";
  }
  /// Whether nothing behind it is looked for.
  bool IsEnd(int64_t tensor) const {
    return IsWeight(tensor) || places_.contains(NameOf(tensor));
  }

  std::vector<Pair> pairs_;
  GraphIndex graph_;
  RoutingCheck routing_;
  std::vector<Measured> tensors_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

ErrorGrowth MeasureErrorGrowth(const TensorDump& a, const TensorDump& b) {
  return Growth(a, b).Measure();
}

}  // namespace isoloss::compare
