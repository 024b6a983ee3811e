// Defines what the checks of one step get besides the tensors themselves.
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
#include "isoloss/precision/recipe.h"
#include "isoloss/step_checks/moe_check.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/step_checks/sampling.h"
#include "isoloss/step_checks/step_record.h"

namespace isoloss::step_checks {

/// Keeps the largest magnitude that delayed scaling looks back to, by the
/// operand's "<site>/<product>/<side>" and its group.
using OperandHistories = std::map<std::pair<std::string, size_t>, float>;

/// Describes one step of one arm.
struct StepInputs {
  const StepRecord& record;
  const model::ModelConfig& config;
  /// The oracle resolves it and does not take it from what the step announced.
  const precision::ResolvedRecipe& recipe;
  oracle::Grid activations = oracle::Grid::kBf16;
  const corpus::Batch& batch;
  const expert_parallel::MeshConfig& mesh;
  /// They belong to the MoE layers and follow from the announced routing.
  const std::vector<ExpertRows>& expert_rows;
  /// This is the mean loss in the log.
  double loss = 0.0;
  /// They select the random bits.
  uint64_t seed = 0;
  uint64_t step = 0;
  /// An operand that is missing here has no history.
  const OperandHistories& histories;
  Sampling sampling = {};

  size_t tokens() const { return batch.tokens.size(); }
  MatrixView<const float> Values(const std::string& name) const {
    return record.At(name).values.view();
  }
  /// Returns the elements of an announced tensor that are looked at.
  oracle::Sample SampleOf(const std::string& name) const {
    const RecordedTensor& tensor = record.At(name);
    return sampling.Of(name, tensor.values.rows(), tensor.values.cols(),
                       tensor.begins);
  }
};

/// Does a part of a step's checks; parts may run at the same time.
using CheckPart = std::function<void(const StepInputs&, ReportSink&)>;

/// A step must announce this tensor with this extent.
struct ExpectedTensor {
  std::string name;
  size_t rows;
  size_t cols;
};

/// Returns all tensors of a step, which follow from the model's structure and
/// the routing.
std::vector<ExpectedTensor> ExpectedTensors(const StepInputs& inputs);

}  // namespace isoloss::step_checks
