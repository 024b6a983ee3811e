#include "isoloss/step_checks/update_check.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/estimate_math.h"

namespace isoloss::step_checks {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

/// A double formula may be computed in any order with this relative error.
constexpr double kDoubleError = 0x1p-48;

double AsFloat(double value) {
  return static_cast<double>(static_cast<float>(value));
}

/// Compares a logged double with the exact one. Both become FP32, so
/// differences below its precision do not count.
void AddFigure(const std::string& name, double logged, double exact,
               double relative_error, ReportSink& sink) {
  Comparison comparison(Grid::kFp32);
  const double size = std::fabs(exact);
  comparison.Add(
      0, 0, static_cast<float>(logged),
      Estimate{.exact = exact,
               .bound = size * (relative_error + oracle::kUnitRoundoff),
               .noise = size * relative_error});
  sink.Add(name, comparison);
}

}  // namespace

double OracleLearningRate(const train::TrainConfig& train, int64_t step) {
  const int64_t total = train.steps;
  const int64_t warmup = std::min(train.warmup_steps, total);
  int64_t decay = total - warmup;
  if (train.decay_ratio) {
    // Ties go to even, which is the default rounding mode.
    const double wanted =
        std::nearbyint(static_cast<double>(total) * *train.decay_ratio);
    decay = std::min(static_cast<int64_t>(wanted), decay);
  }
  const int64_t stable = total + 1 - warmup - decay;
  const int64_t n = step - 1;
  double factor = 1.0;
  if (n < warmup) {
    factor = static_cast<double>(n + 1) / static_cast<double>(warmup);
  } else if (n >= warmup + stable) {
    const double progress = static_cast<double>(n + 1 - warmup - stable) /
                            static_cast<double>(decay);
    double shape = 0.0;
    switch (train.decay_type) {
      case optim::DecayShape::kLinear:
        shape = 1.0 - progress;
        break;
      case optim::DecayShape::kSqrt:
        shape = 1.0 - std::sqrt(progress);
        break;
      case optim::DecayShape::kCosine:
        shape = (1.0 + portable::Cos(std::numbers::pi * progress)) / 2.0;
        break;
    }
    factor = train.min_lr_factor + (1.0 - train.min_lr_factor) * shape;
  }
  return train.lr * factor;
}

UpdateOracle::UpdateOracle(const model::ModelConfig& config,
                           const train::TrainConfig& train,
                           const model::ParameterSet& initial,
                           const Sampling& sampling)
    : train_(train),
      dense_layers_(config.n_dense_layers),
      expert_bias_(config.n_moe_layers(), config.num_experts) {
  for (const model::Parameter& parameter : initial.parameters()) {
    const Matrix<float>& values = parameter.values;
    Tensor& tensor = tensors_.emplace_back(
        parameter.module, sampling.Of(parameter.module + "_parameter",
                                      values.rows(), values.cols()));
    tensor.parameter.reserve(tensor.sample.seen());
    tensor.sample.ForEach([&](size_t row, size_t column) {
      tensor.parameter.push_back(values(row, column));
    });
  }
}

size_t UpdateOracle::BytesPerElement(int64_t steps) {
  const auto updates = static_cast<size_t>(steps);
  return sizeof(float) + (updates <= kRemembered ? updates * sizeof(float)
                                                 : 2 * sizeof(Number));
}

UpdateOracle::Scalars UpdateOracle::ScalarsOf(
    const runlog::StepRow& row) const {
  // beta^t is the product of its factors, since pow gives another last bit.
  double beta1_power = 1.0;
  double beta2_power = 1.0;
  for (int64_t t = 0; t < row.step; ++t) {
    beta1_power *= train_.beta1;
    beta2_power *= train_.beta2;
  }
  return {.decay = AsFloat(1.0 - row.lr * train_.weight_decay),
          .beta1 = AsFloat(train_.beta1),
          .one_minus_beta1 = AsFloat(1.0 - train_.beta1),
          .beta2 = AsFloat(train_.beta2),
          .one_minus_beta2 = AsFloat(1.0 - train_.beta2),
          .step_size = AsFloat(row.lr / (1.0 - beta1_power)),
          .bias2_sqrt = AsFloat(std::sqrt(1.0 - beta2_power)),
          .eps = AsFloat(train_.eps),
          .clip = AsFloat(
              std::min(1.0, train_.clip_norm / (row.grad_norm + 1e-6)))};
}

void UpdateOracle::Check(const StepRecord& record, const StepOutcome& outcome,
                         Grid activations, Executor& executor,
                         ReportSink& sink) {
  const runlog::StepRow& row = outcome.row;
  if (row.step != steps_ + 1) {
    ThrowError(ErrorKind::kFormat,
               "oracle: step {} was given, but {} comes next: moments follow a "
               "run from its first step. Check every step.",
               row.step, steps_ + 1);
  }
  steps_ = row.step;
  CheckNorm(record, outcome, sink);
  AddFigure("lr", row.lr, OracleLearningRate(train_, row.step), kDoubleError,
            sink);
  const bool updated =
      std::isfinite(row.loss_nats) && std::isfinite(row.grad_norm);
  CheckBias(outcome, updated, sink);
  const Scalars scalars = ScalarsOf(row);
  executor.ParallelFor(tensors_.size(), [&](size_t i) {
    CheckWeight(record, tensors_[i], activations, sink);
    CheckTensor(record, updated ? &scalars : nullptr, tensors_[i], sink);
  });
  if (updated) Remember(scalars);
}

void UpdateOracle::Remember(const Scalars& scalars) {
  if (StoresMoments()) {
    keeps_moments_ = true;
    remembered_.clear();
  } else {
    remembered_.push_back(scalars);
  }
}

void UpdateOracle::CheckNorm(const StepRecord& record,
                             const StepOutcome& outcome,
                             ReportSink& sink) const {
  double squares = 0.0;
  size_t elements = 0;
  for (const Tensor& tensor : tensors_) {
    const Matrix<float>& gradient = record.At(tensor.module + "_wgrad").values;
    double of_tensor = 0.0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const auto g = static_cast<double>(gradient.data()[i]);
      of_tensor += g * g;
    }
    squares += of_tensor;
    elements += gradient.size();
  }
  // Both sums of squares are in FP64, each in some order.
  const double error = 2.0 * static_cast<double>(elements) * 0x1p-53;
  AddFigure("grad_norm", outcome.row.grad_norm, std::sqrt(squares), error,
            sink);
}

/// A bias becomes bias + (rate * sign(mean load - load) - mean of these
/// changes). The announced biases become the next step's.
void UpdateOracle::CheckBias(const StepOutcome& outcome, bool updated,
                             ReportSink& sink) {
  const auto rate = AsFloat(train_.load_balance_coeff);
  const size_t experts = expert_bias_.cols();
  for (size_t layer = 0; layer < expert_bias_.rows(); ++layer) {
    const int64_t* counts = outcome.tokens_per_expert.Row(layer);
    int64_t total = 0;
    for (size_t e = 0; e < experts; ++e) total += counts[e];
    std::vector<int> signs(experts);
    int sum = 0;
    for (size_t e = 0; e < experts; ++e) {
      const int64_t scaled = counts[e] * static_cast<int64_t>(experts);
      signs[e] = scaled < total ? 1 : scaled > total ? -1 : 0;
      sum += signs[e];
    }
    const Estimate mean = oracle::Rounded32(
        oracle::Exactly(rate * sum / static_cast<double>(experts)), 2);
    Comparison comparison(Grid::kFp32);
    for (size_t e = 0; e < experts; ++e) {
      const float value = outcome.expert_bias(layer, e);
      float& before = expert_bias_(layer, e);
      if (updated) {
        const Estimate change = oracle::Rounded32(
            Difference(oracle::Exactly(rate * signs[e]), mean));
        comparison.Add(0, e, value,
                       oracle::Exactly(static_cast<double>(before)) + change);
      } else {
        comparison.AddExact(0, e, value, before);
      }
      before = value;
    }
    sink.Add("layers." + std::to_string(layer + dense_layers_) +
                 ".moe.router_expert_bias",
             comparison);
  }
}

void UpdateOracle::CheckWeight(const StepRecord& record, const Tensor& tensor,
                               Grid activations, ReportSink& sink) const {
  const Matrix<float>& values = record.At(tensor.module + "_weight").values;
  Comparison comparison(activations);
  size_t i = 0;
  tensor.sample.ForEach([&](size_t r, size_t c) {
    comparison.AddExact(
        r, c, values(r, c),
        RoundTo(activations, static_cast<double>(tensor.parameter[i++])));
  });
  comparison.AddUnseen(tensor.sample);
  sink.Add(tensor.module + "_weight", comparison);
}

UpdateOracle::Number UpdateOracle::Number::Scaled(double factor) const {
  return {exact * factor, bound * std::fabs(factor),
          variance * factor * factor};
}

UpdateOracle::Number UpdateOracle::Number::Plus(const Number& b) const {
  return {exact + b.exact, bound + b.bound, variance + b.variance};
}

UpdateOracle::Number UpdateOracle::Number::Rounded(double roundings) const {
  const double size = std::fabs(exact) + bound;
  if (size <= oracle::kTiny / 2) return {};  // certainly underflows
  return {exact,
          bound + roundings * (1 + 0x1p-20) * oracle::kUnitRoundoff * size +
              oracle::kTiny,
          variance + oracle::kRoundingVariance * exact * exact};
}

/// Updates the moments of one element.
void UpdateOracle::Advance(const Scalars& s, float gradient, Number& first,
                           Number& second) {
  const Number h =
      Number{static_cast<double>(gradient) * s.clip, 0.0, 0.0}.Rounded();
  first = first.Scaled(s.beta1)
              .Plus(h.Scaled(s.one_minus_beta1).Rounded())
              .Rounded(2);
  // h is a factor twice, so its error counts twice.
  const double twice = 2 * std::fabs(h.exact) + h.bound;
  const Number square = {h.exact * h.exact, h.bound * twice,
                         4 * h.exact * h.exact * h.variance};
  second = second.Scaled(s.beta2)
               .Plus(square.Scaled(s.one_minus_beta2).Rounded(2))
               .Rounded(2);
}

/// Returns the new parameter before its rounding.
Estimate UpdateOracle::Updated(const Scalars& s, float parameter,
                               const Number& first, const Number& second) {
  const double root = std::sqrt(second.exact);
  const double near_zero = std::sqrt(second.bound);
  // |sqrt(x + e) - sqrt(x)| exceeds neither sqrt(e) nor e / sqrt(x).
  const Number deviation = {
      root, root > 0.0 ? std::min(near_zero, second.bound / root) : near_zero,
      root > 0.0 ? second.variance / (4 * second.exact) : 0.0};
  const Number denominator = deviation.Rounded()
                                 .Scaled(1.0 / s.bias2_sqrt)
                                 .Rounded()
                                 .Plus({s.eps})
                                 .Rounded();
  const Number step = first.Scaled(s.step_size).Rounded();
  const double quotient = step.exact / denominator.exact;
  const double room = denominator.exact - denominator.bound;
  const double size = denominator.exact * denominator.exact;
  const Number change =
      Number{
          quotient,
          room > 0.0
              ? (step.bound + std::fabs(quotient) * denominator.bound) / room
              : HUGE_VAL,
          (step.variance + quotient * quotient * denominator.variance) / size}
          .Rounded();
  const Number kept =
      Number{static_cast<double>(parameter) * s.decay, 0.0, 0.0}.Rounded();
  const Number result = kept.Plus(change.Scaled(-1.0));
  return {.exact = result.exact,
          .bound = result.bound,
          .noise = std::sqrt(result.variance)};
}

/// Returns the moments of element `i` before the step's update.
std::pair<UpdateOracle::Number, UpdateOracle::Number> UpdateOracle::MomentsOf(
    const Tensor& tensor, size_t i) const {
  if (keeps_moments_) return {tensor.first[i], tensor.second[i]};
  std::pair<Number, Number> moments;
  for (size_t update = 0; update < remembered_.size(); ++update) {
    Advance(remembered_[update], tensor.gradients[update][i], moments.first,
            moments.second);
  }
  return moments;
}

/// If `scalars` is null, there is no update.
void UpdateOracle::CheckTensor(const StepRecord& record, const Scalars* scalars,
                               Tensor& tensor, ReportSink& sink) const {
  const Matrix<float>& gradient = record.At(tensor.module + "_wgrad").values;
  const Matrix<float>& after = record.At(tensor.module + "_parameter").values;
  const Matrix<float>& change = record.At(tensor.module + "_update").values;
  Comparison parameters(Grid::kFp32);
  Comparison changes(Grid::kFp32);
  const bool stores = scalars != nullptr && StoresMoments();
  std::vector<float> gradients;
  if (stores) {
    tensor.first.resize(tensor.parameter.size());
    tensor.second.resize(tensor.parameter.size());
  } else if (scalars != nullptr) {
    gradients.reserve(tensor.parameter.size());
  }
  size_t i = 0;
  tensor.sample.ForEach([&](size_t r, size_t c) {
    float& before = tensor.parameter[i];
    if (scalars != nullptr) {
      auto [first, second] = MomentsOf(tensor, i);
      Advance(*scalars, gradient(r, c), first, second);
      parameters.Add(r, c, after(r, c),
                     Updated(*scalars, before, first, second));
      if (stores) {
        tensor.first[i] = first;
        tensor.second[i] = second;
      } else {
        gradients.push_back(gradient(r, c));
      }
    } else {
      parameters.AddExact(r, c, after(r, c), before);
    }
    changes.AddExact(r, c, change(r, c), after(r, c) - before);
    before = after(r, c);
    ++i;
  });
  if (stores) tensor.gradients.clear();
  if (!gradients.empty()) tensor.gradients.push_back(std::move(gradients));
  parameters.AddUnseen(tensor.sample);
  changes.AddUnseen(tensor.sample);
  sink.Add(tensor.module + "_parameter", parameters);
  sink.Add(tensor.module + "_update", changes);
}

}  // namespace isoloss::step_checks
