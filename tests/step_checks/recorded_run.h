// Steps of a tiny run, recorded one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/corpus/source.h"
#include "isoloss/step_checks/step_record.h"
#include "isoloss/step_checks/update_check.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/logged_learner.h"
#include "isoloss/train/mesh_setup.h"
#include "isoloss/train/step_columns.h"

namespace isoloss::test_support {

/// Awkward sizes: sequences and experts' rows are no whole MX blocks.
inline train::Experiment TinyExperiment(
    std::vector<std::string> overrides = {}) {
  constexpr std::string_view kText = R"(name = "tiny"
[model]
vocab_size = 23
dim = 40
qk_nope_head_dim = 10
moe_hidden_dim = 36
num_experts = 6
[data]
source = "synthetic"
sequence_length = 21
noise_levels = 4
tokens = 4000
[train]
steps = 6
sequences_per_batch = 4
seeds = [1]
warmup_steps = 2
[log]
eval_every = 6
eval_sequences = 4
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
[arms.fp32]
recipe = "fp32"
)";
  return train::ParseExperiment(
      kText, "experiment.toml",
      {.variables = {}, .overrides = std::move(overrides)});
}

inline corpus::Corpus CorpusOf(const train::Experiment& experiment) {
  return corpus::LoadCorpus(experiment.corpus_source,
                            experiment.data.held_out_share);
}

/// Runs an arm of an experiment and remembers the last step.
class RecordedRun {
 public:
  RecordedRun(const train::Experiment& run_of, size_t arm,
              train::RunHooks hooks = {}, uint64_t seed = 1)
      : experiment(run_of),
        corpus_(CorpusOf(run_of)),
        hooks_(Listening(std::move(hooks))),
        mesh_(train::MakeMesh(experiment, experiment.arms[arm], "", executor)),
        learner_(experiment, experiment.arms[arm], seed, corpus_, executor,
                 hooks_, {}, *mesh_) {}

  void Step(int64_t step) {
    record.Clear();
    runlog::RunLog rows;
    learner_.Step(step, rows);
    row = train::LastRow(rows.steps);
    counts_ = rows.moe.tokens_per_expert;
  }
  train::LoggedLearner& learner() { return learner_; }
  step_checks::StepOutcome Outcome() {
    const size_t layers = experiment.model.n_moe_layers();
    return {.row = row,
            .expert_bias = learner_.State().expert_bias,
            .tokens_per_expert = {counts_.data(), layers,
                                  experiment.model.num_experts}};
  }

  const train::Experiment experiment;
  Executor executor{1};
  step_checks::StepRecord record;
  runlog::StepRow row;

 private:
  train::RunHooks Listening(train::RunHooks hooks) {
    hooks.on_tensor = [this](int64_t /*step*/, const model::Tensor& tensor) {
      record.OnTensor(tensor);
    };
    hooks.on_routing = [this](int64_t /*step*/, std::string_view module,
                              MatrixView<const int32_t> ids) {
      record.OnRouting(module, ids, 0);
    };
    return hooks;
  }

  const corpus::Corpus corpus_;
  const train::RunHooks hooks_;
  std::unique_ptr<expert_parallel::Mesh> mesh_;
  train::LoggedLearner learner_;
  std::vector<int64_t> counts_;
};

}  // namespace isoloss::test_support
