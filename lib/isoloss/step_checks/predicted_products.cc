#include "isoloss/step_checks/predicted_products.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/oracle/scalar_product.h"
#include "isoloss/step_checks/known_recipes.h"

namespace isoloss::step_checks {
namespace {

using kernels::GemmProblem;
using kernels::Operand;
using model::GemmTask;
using precision::GemmPrecision;

formats::TensorState SharedState(const kernels::OperandState* state) {
  return state == nullptr ? formats::TensorState{} : state->common;
}

/// `values` are the operand's values after rounding.
oracle::ScalarOperand OperandFor(const Operand& operand,
                                 MatrixView<const float> values,
                                 const formats::Quantization* quantization,
                                 const formats::Quantization* before) {
  oracle::ScalarOperand result = {
      .values = values,
      .down = operand.contraction == kernels::Contraction::kRows,
      .quantization = quantization,
      .state = SharedState(operand.state),
      .first_tensor =
          operand.state == nullptr ? 0 : operand.state->first_tensor,
      .before = before,
      .state_before = SharedState(operand.state_before)};
  if (!result.down) result.tensor_ends = operand.tensor_ends;
  return result;
}

float RoundedAs(kernels::Rounding rounding, double value) {
  return RoundTo(rounding == kernels::Rounding::kBf16 ? oracle::Grid::kBf16
                                                      : oracle::Grid::kFp32,
                 value);
}

Matrix<float> RoundedValues(const Operand& operand) {
  Matrix<float> result(operand.values.rows(), operand.values.cols());
  for (size_t i = 0; i < result.rows(); ++i) {
    for (size_t k = 0; k < result.cols(); ++k) {
      result(i, k) = RoundedAs(operand.rounding,
                               static_cast<double>(operand.values(i, k)));
    }
  }
  return result;
}

class Predictor {
 public:
  Predictor(const precision::Recipe& recipe, const model::ModelConfig& config)
      : recipe_(AsKnown(recipe), model::GemmSites(config)) {
    for (size_t i = 0; i < recipe_.sites().size(); ++i) {
      places_.emplace(recipe_.sites()[i].site, i);
    }
  }

  void Compute(std::span<const GemmTask> tasks, Executor& executor) const {
    std::vector<GemmProblem> plain;
    std::vector<const GemmTask*> predicted;
    for (const GemmTask& task : tasks) {
      if (IsPlain(task)) {
        plain.push_back(task.problem);
      } else {
        predicted.push_back(&task);
      }
    }
    executor.ParallelFor(predicted.size(),
                         [&](size_t i) { Predict(*predicted[i]); });
    kernels::GemmBatch(plain, executor);
  }

 private:
  const GemmPrecision& For(const GemmTask& task,
                           precision::GemmRole role) const {
    const auto place = places_.find(task.site);
    ISOLOSS_ASSERT(place != places_.end());
    return recipe_.For(place->second, role);
  }

  /// Returns whether neither the oracle's recipe nor the kernels' task
  /// quantises or changes the accumulation.
  bool IsPlain(const GemmTask& task) const {
    const GemmProblem& problem = task.problem;
    return For(task, task.role) == GemmPrecision{} &&
           problem.a.quantization == nullptr &&
           problem.right_quantization() == nullptr &&
           problem.accumulation == kernels::Accumulation{};
  }

  void Predict(const GemmTask& task) const {
    const GemmPrecision& wanted = For(task, task.role);
    const GemmProblem& problem = task.problem;
    const Matrix<float> b = RoundedValues(problem.b);
    const oracle::ScalarProduct product(
        OperandFor(
            problem.a, problem.a.values, wanted.left_operand(),
            Before(task, wanted.left_again, precision::GemmRole::kDgrad)),
        OperandFor(
            problem.b, b.view(), wanted.right_operand(),
            Before(task, wanted.right_again, precision::GemmRole::kFprop)),
        wanted, problem.segment_ends);
    const auto store = [&](size_t i, size_t j, const oracle::Estimate& sum) {
      float value = RoundedAs(problem.rounding, sum.exact);
      if (!problem.addend.empty()) {
        value = RoundedAs(problem.rounding,
                          static_cast<double>(problem.addend(i, j) + value));
      }
      problem.c(i, j) = value;
    };
    if (problem.rounding == kernels::Rounding::kBf16) {
      product.ForEachRounded(store);
    } else {
      product.ForEach(store);
    }
  }

  /// Returns the quantisation that the `first` product applied before to an
  /// operand of wgrad.
  const formats::Quantization* Before(const GemmTask& task, bool again,
                                      precision::GemmRole first) const {
    return again ? For(task, first).left_operand() : nullptr;
  }

  const precision::ResolvedRecipe recipe_;
  std::map<std::string, size_t, std::less<>> places_;
};

}  // namespace

model::GemmEngine PredictedProducts(const precision::Recipe& recipe,
                                    const model::ModelConfig& config) {
  if (recipe.attention.quantizes() || recipe.norm_gains.has_value()) {
    ThrowError(ErrorKind::kConfig,
               "recipe {}: it quantises attention or gains of norms, but the "
               "error of linear layers alone can be predicted. Judge it "
               "without an ensemble.",
               recipe.name);
  }
  const auto predictor = std::make_shared<const Predictor>(recipe, config);
  return [predictor](std::span<const GemmTask> tasks, Executor& executor) {
    predictor->Compute(tasks, executor);
  };
}

}  // namespace isoloss::step_checks
