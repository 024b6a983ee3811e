#include "isoloss/step_checks/log_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/portable_math.h"
#include "isoloss/model/graph.h"
#include "isoloss/step_checks/figure_comparison.h"
#include "isoloss/step_checks/router_check.h"

namespace isoloss::step_checks {
namespace {

std::string LoggedDataset(const char* dataset) {
  return std::string(runlog::kLogPrefix) + dataset;
}

/// Returns how many tokens chose each expert of a MoE layer.
std::vector<int64_t> LoadOf(const StepInputs& inputs, size_t moe_layer) {
  const ExpertRows& rows = inputs.expert_rows[moe_layer];
  std::vector<int64_t> load(inputs.config.num_experts);
  for (size_t e = 0; e < load.size(); ++e) {
    for (size_t row = rows.begins[e]; row < rows.begins[e + 1]; ++row) {
      load[e] += rows.token_of_row[row] >= 0 ? 1 : 0;
    }
  }
  return load;
}

std::string RouterOf(const StepInputs& inputs, size_t moe_layer) {
  return "layers." + std::to_string(moe_layer + inputs.config.n_dense_layers) +
         ".moe.router";
}

void CheckSteps(const StepInputs& inputs, const runlog::StepColumns& steps,
                ReportSink& sink) {
  const auto tokens = static_cast<int64_t>(inputs.tokens());
  FigureComparison(LoggedDataset("/steps/tokens_seen"), sink)
      .AddCount(steps.tokens_seen.back(), steps.step.back() * tokens);
  if (!steps.batch_digest.empty()) {
    std::vector<int32_t> ids = inputs.batch.tokens;
    ids.insert(ids.end(), inputs.batch.labels.begin(),
               inputs.batch.labels.end());
    FigureComparison(LoggedDataset("/steps/batch_digest"), sink)
        .AddDigest(steps.batch_digest.back(),
                   DigestOf(ids.data(), ids.size() * sizeof(int32_t)));
  }
  double worst = std::nan("");
  int64_t dead = 0;
  for (size_t layer = 0; layer < inputs.expert_rows.size(); ++layer) {
    const std::vector<int64_t> load = LoadOf(inputs, layer);
    int64_t all = 0;
    for (const int64_t count : load) {
      all += count;
      dead += count == 0 ? 1 : 0;
    }
    const double mean =
        static_cast<double>(all) / static_cast<double>(load.size());
    worst = std::fmax(
        worst, static_cast<double>(*std::ranges::max_element(load)) / mean);
  }
  FigureComparison(LoggedDataset("/steps/dead_experts"), sink)
      .AddCount(steps.dead_experts.back(), dead);
  FigureComparison(LoggedDataset("/steps/expert_load_max_over_mean"), sink)
      .AddReal(steps.expert_load_max_over_mean.back(), worst);
  int64_t nonfinite = 0;
  for (const RecordedTensor* tensor : inputs.record.tensors()) {
    if (tensor->kind != model::TensorKind::kWgrad) continue;
    nonfinite += std::count_if(
        tensor->values.data(), tensor->values.data() + tensor->values.size(),
        [](float value) { return !std::isfinite(value); });
  }
  FigureComparison(LoggedDataset("/steps/nonfinite_gradients"), sink)
      .AddCount(steps.nonfinite_gradients.back(), nonfinite);
}

/// Returns the mean over tokens of the entropy of a token's scores, divided by
/// their sum.
double EntropyOf(MatrixView<const float> scores) {
  double mean = 0.0;
  for (size_t t = 0; t < scores.rows(); ++t) {
    double sum = 0.0;
    for (size_t e = 0; e < scores.cols(); ++e) {
      sum += static_cast<double>(scores(t, e));
    }
    for (size_t e = 0; e < scores.cols(); ++e) {
      const double share = static_cast<double>(scores(t, e)) / sum;
      // NaN stays NaN.
      if (!(share <= 0.0)) mean -= share * portable::Log(share);
    }
  }
  return mean / static_cast<double>(scores.rows());
}

void CheckMoeColumns(const StepInputs& inputs, const runlog::MoeColumns& moe,
                     ReportSink& sink) {
  if (moe.step.empty()) return;
  FigureComparison counts(LoggedDataset("/moe/tokens_per_expert"), sink);
  FigureComparison dropped(LoggedDataset("/moe/dropped_tokens"), sink);
  FigureComparison padding(LoggedDataset("/moe/padding_rows"), sink);
  FigureComparison chosen(LoggedDataset("/moe/expert_ids"), sink);
  FigureComparison entropy(LoggedDataset("/moe/router_entropy"), sink);
  FigureComparison digest(LoggedDataset("/moe/routing_digest"), sink);
  size_t next_count = 0;
  size_t next_id = 0;
  for (size_t layer = 0; layer < inputs.expert_rows.size(); ++layer) {
    const std::string router = RouterOf(inputs, layer);
    const MatrixView<const int32_t> ids = inputs.record.ExpertIds(router);
    for (const int64_t count : LoadOf(inputs, layer)) {
      counts.AddCount(moe.tokens_per_expert[next_count++], count);
    }
    dropped.AddCount(moe.dropped_tokens[layer], 0);
    padding.AddCount(
        moe.padding_rows[layer],
        std::ranges::count(inputs.expert_rows[layer].token_of_row, -1));
    // Only a finite entropy is compared. Scores without one give NaN in
    // different ways.
    const double expected = EntropyOf(inputs.Values(router + ".scores_output"));
    if (std::isfinite(expected)) {
      entropy.AddReal(moe.router_entropy[layer], expected, 1.0);
    }
    digest.AddDigest(moe.routing_digest[layer], RoutingDigestOf(ids));
    if (moe.expert_ids.empty()) continue;
    for (size_t i = 0; i < ids.rows() * ids.cols(); ++i) {
      chosen.AddCount(moe.expert_ids[next_id++], ids.data()[i]);
    }
  }
}

double NormOf(MatrixView<const float> values) {
  double squares = 0.0;
  for (size_t i = 0; i < values.rows(); ++i) {
    for (size_t j = 0; j < values.cols(); ++j) {
      const auto value = static_cast<double>(values(i, j));
      squares += value * value;
    }
  }
  return std::sqrt(squares);
}

/// Returns the norm of the weights before an update. It takes the weights after
/// it and the update, which is their difference in FP32.
double NormBefore(MatrixView<const float> after,
                  MatrixView<const float> update) {
  double squares = 0.0;
  for (size_t i = 0; i < after.rows(); ++i) {
    for (size_t j = 0; j < after.cols(); ++j) {
      const double value =
          static_cast<double>(after(i, j)) - static_cast<double>(update(i, j));
      squares += value * value;
    }
  }
  return std::sqrt(squares);
}

void CheckParameters(const StepInputs& inputs,
                     const runlog::ParameterColumns& parameters,
                     ReportSink& sink) {
  FigureComparison norms(LoggedDataset("/parameters/grad_norm"), sink);
  FigureComparison ratios(LoggedDataset("/parameters/update_ratio"), sink);
  std::map<std::string, std::string> modules;
  for (const auto& parameter : model::ParametersOf(inputs.config)) {
    modules.emplace(parameter.name, parameter.module);
  }
  for (size_t i = 0; i < parameters.names.size(); ++i) {
    const std::string& module = modules.at(parameters.names[i]);
    norms.AddReal(parameters.grad_norm[i],
                  NormOf(inputs.Values(module + "_wgrad")));
    const auto update = inputs.Values(module + "_update");
    const double before =
        NormBefore(inputs.Values(module + "_parameter"), update);
    const double expected = NormOf(update) / before;
    // The weights before the update are computed as a difference. Each lost
    // half an ulp of the larger of weight and update: 2^-24 of the weights, or
    // of a far larger update.
    const double lost = std::fmax(1e-6, 0x1p-23 * expected);
    const double logged = parameters.update_ratio[i];
    const bool near = std::fabs(logged - expected) <= lost * expected;
    ratios.AddReal(near ? expected : logged, expected);
  }
}

}  // namespace

void AddLogParts(const StepInputs& inputs, const runlog::RunLog& rows,
                 std::vector<CheckPart>& parts) {
  parts.emplace_back([&rows](const StepInputs& step, ReportSink& sink) {
    CheckSteps(step, rows.steps, sink);
    CheckMoeColumns(step, rows.moe, sink);
    CheckParameters(step, rows.parameters, sink);
    CheckLoggedExchange(step, rows.exchange, sink);
  });
  AddLoggedTensorParts(inputs, rows.tensors, parts);
}

}  // namespace isoloss::step_checks
