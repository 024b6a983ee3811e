// One training step: forward, backward, clipping, expert bias, AdamW.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/expert_parallel/options.h"
#include "isoloss/model/parameters.h"
#include "isoloss/model/transformer.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/train/presets.h"

namespace isoloss::bench {

/// What is trained how.
struct StepSetup {
  std::string preset = "dsv3-small";
  std::string recipe = "bf16";
  size_t sequences = 8;
  int threads = 1;
  size_t ranks = 1;  ///< virtual ranks, on transport `loop`
  /// In place of the preset's; 0: the preset's.
  size_t layers = 0;
  size_t experts = 0;
  expert_parallel::ExchangeOptions exchange = {};
};

/// A model in training on random bytes. Every step does the same work but for
/// the routing, which is learned.
class TrainingStep {
 public:
  /// Errors   ConfigError that lists the recipes if `recipe` is none; as
  ///          expert_parallel::Mesh.
  explicit TrainingStep(const StepSetup& setup);
  TrainingStep(const std::string& recipe, size_t sequences, int threads)
      : TrainingStep(StepSetup{
            .recipe = recipe, .sequences = sequences, .threads = threads}) {}
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// Returns the loss before the update.
  double Run();

  /// Operations of a step: 6 for each active matrix parameter and token, and
  /// the causal half of attention's scores and values, forward and twice
  /// backward. 37.6 G + 3.2 G for 8 sequences.
  double flops() const;
  size_t parameters() const { return parameters_.value_count(); }

 private:
  const train::Preset preset_;
  Executor executor_;
  expert_parallel::Mesh mesh_;
  model::ParameterSet parameters_;
  model::ParameterSet gradients_;
  model::Transformer transformer_;
  optim::AdamW adamw_;
  Matrix<float> expert_bias_;
  std::vector<int32_t> ids_, labels_, positions_;
  std::vector<size_t> sequence_ends_;
};

}  // namespace isoloss::bench
