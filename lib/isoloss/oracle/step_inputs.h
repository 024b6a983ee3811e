// What the checks of one step are given besides the tensors themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/config.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/moe_check.h"
#include "isoloss/oracle/report_sink.h"
#include "isoloss/oracle/step_record.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::oracle {

/// Largest magnitudes of the steps that delayed scaling looks back to, by the
/// operand's "<site>/<product>/<side>" and its group.
using OperandHistories = std::map<std::pair<std::string, size_t>, float>;

/// One step of one arm.
struct StepInputs {
  const StepRecord& record;
  const model::ModelConfig& config;
  /// Resolved here, not taken from what the step announced.
  const precision::ResolvedRecipe& recipe;
  Grid activations = Grid::kBf16;
  const corpus::Batch& batch;
  const expert_parallel::MeshConfig& mesh;
  /// Of the MoE layers, from the announced routing.
  const std::vector<ExpertRows>& expert_rows;
  /// Mean loss as logged.
  double loss = 0.0;
  /// What random bits are drawn from.
  uint64_t seed = 0;
  uint64_t step = 0;
  /// An operand that is not among them looks back to nothing.
  const OperandHistories& histories;

  size_t tokens() const { return batch.tokens.size(); }
  MatrixView<const float> Values(const std::string& name) const {
    return record.At(name).values.view();
  }
};

/// A part of a step's checks; parts may run at the same time.
using CheckPart = std::function<void(const StepInputs&, ReportSink&)>;

/// A tensor that a step must announce, and its extent.
struct ExpectedTensor {
  std::string name;
  size_t rows;
  size_t cols;
};

/// All tensors of a step, from the model's structure and the routing.
std::vector<ExpectedTensor> ExpectedTensors(const StepInputs& inputs);

}  // namespace isoloss::oracle
