// A small experiment to probe, and its first step.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/corpus/batches.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/model/parameters.h"
#include "isoloss/step_checks/step_oracle.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/trainer.h"

namespace isoloss::step_checks {

/// Sizes that 32 divides and sizes that it doesn't.
inline constexpr std::string_view kTrial = R"(name = "trial"
[model]
vocab_size = 23
dim = 64
n_layers = 2
n_heads = 2
qk_nope_head_dim = 12
dense_hidden_dim = 72
moe_hidden_dim = 36
num_experts = 6
[data]
source = "synthetic"
sequence_length = 40
noise_levels = 4
tokens = 4000
[train]
steps = 3
sequences_per_batch = 2
seeds = [1]
warmup_steps = 2
[log]
eval_every = 100
eval_sequences = 2
[arms.fp32]
recipe = "fp32"
[arms.bf16]
recipe = "bf16"
[arms.mxfp8_rceil]
recipe = "mxfp8_rceil"
[arms.mxfp8_floor]
recipe = "mxfp8_floor"
[arms.mxfp8_rceil_wgrad_with_hp]
recipe = "mxfp8_rceil_wgrad_with_hp"
[arms.mxfp8_e5m2_grads]
recipe = "mxfp8_e5m2_grads"
)";

inline train::Experiment Trial(std::vector<std::string> overrides = {}) {
  return train::ParseExperiment(
      kTrial, "trial.toml",
      {.variables = {}, .overrides = std::move(overrides)});
}

/// Small, for tests that check a step many times.
inline train::Experiment SmallTrial(size_t sequence_length = 9,
                                    const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {
      "model.dim=32",
      "model.n_heads=1",
      "model.kv_lora_rank=16",
      "model.dense_hidden_dim=32",
      "model.moe_hidden_dim=32",
      "model.num_experts=4",
      "model.qk_nope_head_dim=8",
      "model.v_head_dim=8",
      "data.sequence_length=" + std::to_string(sequence_length)};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return Trial(std::move(overrides));
}

inline corpus::Corpus CorpusOf(const train::Experiment& experiment) {
  return corpus::LoadCorpus(experiment.corpus_source,
                            experiment.data.held_out_share);
}

inline const train::Arm& ArmOf(const train::Experiment& experiment,
                               std::string_view name) {
  for (const train::Arm& arm : experiment.arms) {
    if (arm.name == name) return arm;
  }
  ThrowError(ErrorKind::kConfig, "there is no arm {}", name);
}

/// The first step of an arm, recorded, and the oracle's verdict on it.
class FirstStep {
 public:
  /// `engine` computes the products; empty: the model's own. `edit` changes the
  /// weights that the step begins with.
  FirstStep(const train::Experiment& experiment, const std::string& arm,
            model::GemmEngine engine = {},
            std::function<void(model::ParameterSet&)> edit = {})
      : engine_(std::move(engine)),
        edit_(std::move(edit)),
        experiment_(experiment),
        arm_(ArmOf(experiment_, arm)),
        expected_(arm_),
        executor_(1),
        initial_(experiment.model) {
    const corpus::Corpus corpus = CorpusOf(experiment_);
    corpus::Batches(corpus, experiment_.data.sequence_length,
                    experiment_.log.eval_sequences)
        .Training(1, 1, experiment_.train.sequences_per_batch, batch_);
    experiment_.train.steps = 1;
    experiment_.train.warmup_steps = 0;
    experiment_.log.statistics_first = 0;
    experiment_.log.digests_first = 0;
    const auto hooks = Hooks();
    log_ = train::TrainRun(experiment_, arm_, 1, corpus, executor_, hooks);
  }

  StepRecord& record() { return record_; }
  const StepOutcome& outcome() const { return outcome_; }

  /// The oracle takes the step for one of this recipe.
  void Expect(const precision::Recipe& recipe) { expected_.Use(recipe); }
  /// … of this seed.
  void ExpectSeed(uint64_t seed) { expected_seed_ = seed; }
  /// The oracle looks at a sample.
  void Sample() { sampled_ = true; }

  void Check(ReportSink& sink) { Check(executor_, sink); }
  void Check(Executor& executor, ReportSink& sink) {
    outcome_.expert_bias = bias_.view();
    outcome_.tokens_per_expert = {log_.moe.tokens_per_expert.data(),
                                  experiment_.model.n_moe_layers(),
                                  experiment_.model.num_experts};
    StepOracle(experiment_, expected_, expected_seed_, initial_, sampled_)
        .Check(record_, batch_, outcome_, executor, sink);
  }
  /// Elements that no order of sums explains.
  int64_t Others() {
    ReportSink sink;
    Check(sink);
    int64_t others = 0;
    for (const auto& [tensor, comparison] : sink.comparisons()) {
      others += comparison.other();
    }
    for (const auto& row : sink.routing()) others += row.other;
    return others;
  }

 private:
  train::RunHooks Hooks() {
    train::RunHooks hooks;
    hooks.gemm_engine = engine_;
    hooks.edit_initial_weights = [&](model::ParameterSet& weights) {
      if (edit_) edit_(weights);
      for (size_t i = 0; i < weights.parameters().size(); ++i) {
        initial_.parameters()[i].values.CopyFrom(
            weights.parameters()[i].values);
      }
    };
    hooks.on_tensor = [&](int64_t, const model::Tensor& tensor) {
      record_.OnTensor(tensor);
    };
    hooks.on_routing = [&](int64_t, std::string_view module,
                           MatrixView<const int32_t> ids) {
      record_.OnRouting(module, ids, 0);
    };
    hooks.after_update = [&](int64_t, model::ParameterSet&,
                             MatrixView<float> bias) {
      bias_.Resize(bias.rows(), bias.cols());
      for (size_t i = 0; i < bias.rows(); ++i) {
        std::copy_n(bias.Row(i), bias.cols(), bias_.Row(i));
      }
    };
    hooks.on_step = [&](const runlog::StepRow& row) { outcome_.row = row; };
    return hooks;
  }

  model::GemmEngine engine_;
  std::function<void(model::ParameterSet&)> edit_;
  train::Experiment experiment_;
  const train::Arm& arm_;
  train::Arm expected_;
  uint64_t expected_seed_ = 1;
  bool sampled_ = false;
  Executor executor_;
  model::ParameterSet initial_;
  corpus::Batch batch_;
  StepRecord record_;
  Matrix<float> bias_;
  runlog::RunLog log_;
  StepOutcome outcome_;
};

}  // namespace isoloss::step_checks
