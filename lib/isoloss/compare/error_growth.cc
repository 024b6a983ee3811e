#include "isoloss/compare/error_growth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "isoloss/compare/common_steps.h"
#include "isoloss/compare/dump_difference.h"
#include "isoloss/compare/tensor_divergence.h"

namespace isoloss::compare {
namespace {

using runlog::DumpedTensor;
using runlog::TensorDump;

struct Measured {
  const DumpedTensor* tensor;
  double error;
};

/// "layers.0." of "layers.0.attention"; "" of a module that none encloses.
std::string_view Enclosing(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? "" : module.substr(0, dot + 1);
}

/// NaN is larger than all: what is not a number must not be hidden.
bool Larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  return a > b;
}

class Growth {
 public:
  Growth(const TensorDump& a, const TensorDump& b) {
    std::vector<std::string> names_a;
    std::vector<std::string> names_b;
    for (const auto& tensor : a.tensors) names_a.push_back(tensor.name);
    for (const auto& tensor : b.tensors) names_b.push_back(tensor.name);
    for (const SharedName& shared : MatchNames(names_a, names_b).shared) {
      const DumpedTensor& of_a = a.tensors[shared.a];
      const DumpedTensor& of_b = b.tensors[shared.b];
      if (of_a.rows != of_b.rows || of_a.cols != of_b.cols) continue;
      places_[of_a.name] = tensors_.size();
      tensors_.push_back({&of_a, RelativeL2(of_a.values, of_b.values)});
    }
  }

  ErrorGrowth Measure() const {
    ErrorGrowth growth;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].tensor->kind == "weight") continue;
      OperationError operation = Operation(i);
      if (!growth.first_source && !operation.inputs.empty() &&
          operation.input_error == 0 && operation.error != 0) {
        growth.first_source = operation;
      }
      growth.operations.push_back(std::move(operation));
    }
    std::stable_sort(growth.operations.begin(), growth.operations.end(),
                     [](const OperationError& x, const OperationError& y) {
                       return Larger(x.added, y.added);
                     });
    return growth;
  }

 private:
  OperationError Operation(size_t place) const {
    const Measured& result = tensors_[place];
    OperationError operation;
    operation.result = result.tensor->name;
    operation.order = result.tensor->order;
    operation.error = result.error;
    for (const size_t input : Inputs(place)) {
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

  std::vector<size_t> Inputs(size_t place) const {
    const std::string& kind = tensors_[place].tensor->kind;
    const auto activation = OfModule(place, "activation");
    const auto gradient = OfModule(place, "gradient");
    const auto weight = OfModule(place, "weight");
    std::vector<size_t> inputs;
    const auto add = [&inputs](const std::optional<size_t>& input) {
      if (input) inputs.push_back(*input);
    };
    if (kind == "output" && activation) {
      add(activation);
      add(weight);
    } else if (kind == "dgrad" && gradient) {
      add(gradient);
      add(weight);
    } else if (kind == "wgrad" && gradient && activation) {
      add(gradient);
      add(activation);
    } else {
      inputs = Before(place);
      if (kind == "output") add(weight);
    }
    return inputs;
  }

  std::optional<size_t> OfModule(size_t place, std::string_view kind) const {
    const auto found =
        places_.find(tensors_[place].tensor->module + "_" + std::string(kind));
    if (found == places_.end()) return std::nullopt;
    return found->second;
  }

  std::vector<size_t> Before(size_t place) const {
    const auto phase = PhaseOfTensor(tensors_[place].tensor->name);
    const std::string_view scope = Enclosing(tensors_[place].tensor->module);
    std::vector<size_t> found;
    std::optional<size_t> nearest;
    for (size_t i = 0; i < place; ++i) {
      const DumpedTensor& other = *tensors_[i].tensor;
      if (other.kind == "weight") continue;
      nearest = i;
      if (PhaseOfTensor(other.name) != phase) continue;
      const bool inside =
          !scope.empty() && std::string_view(other.module).starts_with(scope);
      if (inside || !found.empty()) found.push_back(i);
    }
    if (found.empty() && nearest) found.push_back(*nearest);
    return found;
  }

  std::vector<Measured> tensors_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace

ErrorGrowth MeasureErrorGrowth(const TensorDump& a, const TensorDump& b) {
  return Growth(a, b).Measure();
}

}  // namespace isoloss::compare
