// One forward and backward pass of a small model, recorded, and ways to spoil
// the record.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "isoloss/corpus/batches.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/step_record.h"
#include "model/small_model.h"

namespace isoloss::test_support {

inline expert_parallel::MeshConfig OneRank(const model::ModelConfig& config) {
  return {.topology = {.experts = config.num_experts}, .options = {}};
}

struct RecordedStep {
  RecordedStep(const model::ModelConfig& model_config,
               const expert_parallel::MeshConfig& mesh_config,
               const std::string& recipe,
               const std::vector<size_t>& lengths = {70, 1, 33, 24},
               const std::function<void(SmallBatch&)>& edit_batch = {})
      : config(model_config),
        mesh(mesh_config),
        grid(oracle::ActivationGrid(precision::RecipeByName(recipe))) {
    SmallBatch tokens(config, lengths);
    if (edit_batch) edit_batch(tokens);
    batch = {.tokens = tokens.tokens,
             .labels = tokens.labels,
             .positions = tokens.positions,
             .document_ends = tokens.document_ends,
             .sequence_ends = tokens.sequence_ends};
    SmallModel model(config, mesh, recipe);
    model.Step(tokens, &record);
    const auto counts = model.transformer.tokens_per_expert();
    tokens_per_expert.assign(counts.Row(0), counts.Row(0) + counts.cols());
  }

  model::ModelConfig config;
  expert_parallel::MeshConfig mesh;
  oracle::Grid grid;
  corpus::Batch batch;
  step_checks::StepRecord record;
  std::vector<int64_t> tokens_per_expert;  ///< of the first MoE layer
};

inline int64_t Others(const step_checks::ReportSink& sink) {
  int64_t others = 0;
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    others += comparison.Row().other;
  }
  for (const auto& row : sink.routing()) others += row.other;
  return others;
}

/// Expects that `check` finds nothing that rounding does not explain.
inline void ExpectNoOthers(
    const std::function<void(step_checks::ReportSink&)>& check,
    const std::string& what) {
  step_checks::ReportSink sink;
  check(sink);
  EXPECT_FALSE(sink.comparisons().empty());
  double flips = 0;
  double expected_flips = 0;
  for (const auto& [tensor, comparison] : sink.comparisons()) {
    const runlog::OracleRow row = comparison.Row();
    EXPECT_GT(row.elements, 0) << what << ": " << tensor;
    EXPECT_EQ(row.other, 0)
        << what << ": " << tensor << " [" << row.worst_row << ", "
        << row.worst_column << "] is " << row.worst_value << ", not "
        << row.worst_expected << "; ratio " << row.worst_ratio;
    // What is expected covers orders that are worse than the fast program's,
    // whose sums of few BF16 products are often exact: an upper limit for each
    // tensor, and right within a factor for all of them.
    EXPECT_LE(static_cast<double>(row.flips), 2 * row.expected_flips + 5)
        << what << ": " << tensor;
    flips += static_cast<double>(row.flips);
    expected_flips += row.expected_flips;
    if (!std::isnan(row.noise_ratio) && row.elements > 100) {
      EXPECT_LT(row.noise_ratio, 2) << what << ": " << tensor;
      EXPECT_GT(row.noise_ratio, 0.1) << what << ": " << tensor;
    }
  }
  EXPECT_GE(flips, expected_flips / 8 - 5) << what;
  for (const auto& row : sink.routing()) EXPECT_EQ(row.other, 0) << what;
}

/// Expects that `check` finds a change of one element of `tensor`, by a
/// sixteenth of its largest magnitude; then takes it back.
inline void ExpectFound(
    step_checks::StepRecord& record, const std::string& tensor, size_t row,
    size_t column, const std::function<void(step_checks::ReportSink&)>& check) {
  Matrix<float>& values = record.MutableAt(tensor).values;
  float largest = 0.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::fabs(values.data()[i]));
  }
  ASSERT_GT(largest, 0.0f) << tensor;
  const float before = values(row, column);
  values(row, column) += largest / 16;
  step_checks::ReportSink sink;

  check(sink);

  EXPECT_GT(Others(sink), 0) << tensor << " [" << row << ", " << column << "]";
  values(row, column) = before;
}

}  // namespace isoloss::test_support
