#include "isoloss/compare/error_growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string_view>
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
/// An operation of a full dump reads up to six tensors.
constexpr size_t kInputs = 16;

/// Both dumps have this tensor.
struct Pair {
  const DumpedTensor* a;
  const DumpedTensor* b;

  bool SameShape() const { return a->rows == b->rows && a->cols == b->cols; }
};

std::vector<Pair> PairsOf(const TensorDump& a, const TensorDump& b) {
  std::vector<Pair> pairs;
  for (const SharedName& shared :
       MatchNames(a.TensorNames(), b.TensorNames()).shared) {
    pairs.push_back({&a.tensors[shared.a], &b.tensors[shared.b]});
  }
  return pairs;
}

/// NaN counts as larger than any number, so that it is not hidden.
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

/// Returns "" if both graphs have the same tensors from the same inputs.
std::string GraphDifference(const runlog::ModelGraph& a,
                            const runlog::ModelGraph& b) {
  const runlog::GraphColumns& of_a = a.tensors;
  const runlog::GraphColumns& of_b = b.tensors;
  if (of_a.name == of_b.name && of_a.moe == of_b.moe &&
      of_a.rows_of == of_b.rows_of && a.inputs == b.inputs) {
    return "";
  }
  return fmt::format(
      "/graph of A has {} tensors with {} inputs, and that of B {} with {}, "
      "which are not the same",
      of_a.name.size(), a.inputs.tensor.size(), of_b.name.size(),
      b.inputs.tensor.size());
}

/// Finds the tensors whose rows belong to different tokens in A and B.
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

/// An origin holds the tensors of the dumps from which a tensor is computed.
struct Origin {
  bool known = false;  ///< false: some input leads to no tensor of the dumps
  double error = 0;    ///< the largest of the tensors' errors
  std::vector<size_t> tensors;  ///< the first ones, each once
};

class Growth {
 public:
  Growth(const TensorDump& a, const TensorDump& b)
      : pairs_(PairsOf(a, b)),
        graph_(a.graph),
        routing_(pairs_, graph_),
        measured_(a.graph.tensors.name.size()),
        origins_(measured_.size()) {
    for (const Pair& pair : pairs_) {
      if (!pair.SameShape() || pair.a->kind == kExpertIds ||
          routing_.LeavesOut(*pair.a)) {
        continue;
      }
      const auto place = graph_.Find(pair.a->name);
      if (place) measured_[*place] = tensors_.size();
      tensors_.push_back({pair.a, RelativeL2(pair.a->values, pair.b->values)});
    }
    // The graph has each tensor before the operations that read it.
    for (size_t place = 0; place < origins_.size(); ++place) {
      if (!measured_[place]) origins_[place] = OriginOf(place);
    }
  }

  ErrorGrowth Measure() const {
    ErrorGrowth growth;
    growth.left_out = routing_.left_out;
    bool any_before = false;
    for (const Measured& measured : tensors_) {
      const DumpedTensor& tensor = *measured.tensor;
      const bool optimizers = IsOptimizers(tensor);
      auto operation =
          tensor.kind == "weight" ? std::nullopt : Operation(measured);
      if (operation) {
        if (!growth.first_source && operation->input_error == 0 &&
            operation->error != 0 && !(optimizers && any_before)) {
          growth.first_source = operation;
        }
        (optimizers ? growth.optimizer : growth.operations)
            .push_back(std::move(*operation));
      }
      any_before = any_before || measured.error != 0;
    }
    std::ranges::stable_sort(growth.operations, ByAdded);
    std::ranges::stable_sort(growth.optimizer, ByAdded);
    return growth;
  }

 private:
  /// Empty if the dumps do not have what the operation reads.
  std::optional<OperationError> Operation(const Measured& result) const {
    const auto place = graph_.Find(result.tensor->name);
    const Origin origin = place ? OriginOf(*place) : Origin();
    if (!origin.known) return std::nullopt;
    OperationError operation;
    operation.result = result.tensor->name;
    operation.order = result.tensor->order;
    operation.error = result.error;
    operation.input_error = origin.error;
    for (const size_t input : origin.tensors) {
      operation.inputs.push_back(tensors_[input].tensor->name);
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

  /// Returns the tensors that the operation reads. If a tensor can't be
  /// compared, the tensors from which it is computed take its place. Missing
  /// weights are passed over, but weights alone make no origin, because the
  /// activation that they meet is missing.
  Origin OriginOf(size_t place) const {
    Origin origin;
    for (const int64_t read : graph_.InputsOf(place)) {
      const auto input = static_cast<size_t>(read);
      if (measured_[input]) {
        const size_t tensor = *measured_[input];
        Add({true, tensors_[tensor].error, {tensor}}, origin);
      } else if (graph_.tensors().kind[input] != "weight") {
        if (!origins_[input].known) return {};
        Add(origins_[input], origin);
      }
    }
    return origin;
  }

  static void Add(const Origin& of, Origin& origin) {
    origin.known = true;
    if (Larger(of.error, origin.error)) origin.error = of.error;
    for (const size_t tensor : of.tensors) {
      if (origin.tensors.size() < kInputs &&
          std::ranges::count(origin.tensors, tensor) == 0) {
        origin.tensors.push_back(tensor);
      }
    }
  }

  std::vector<Pair> pairs_;
  GraphIndex graph_;
  RoutingCheck routing_;
  std::vector<Measured> tensors_;
  // These are indexed by place in the graph.
  std::vector<std::optional<size_t>> measured_;  ///< place in tensors_
  std::vector<Origin> origins_;  ///< of tensors that are not measured
};

}  // namespace

ErrorGrowth MeasureErrorGrowth(const TensorDump& a, const TensorDump& b) {
  ErrorGrowth unmeasured;
  unmeasured.unmeasured = GraphDifference(a.graph, b.graph);
  return unmeasured.unmeasured.empty() ? Growth(a, b).Measure() : unmeasured;
}

}  // namespace isoloss::compare
