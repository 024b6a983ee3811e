// Short runs of the smallest preset, with and without something planted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/trainer.h"
#include "qualification/mutant.h"

namespace isoloss::qualification::testing {

/// Experts' rows are no whole MX blocks; digests of all tensors at every step.
inline constexpr std::string_view kNano = R"(name = "nano"
[model]
preset = "dsv3-nano"
vocab_size = 64
[data]
source = "synthetic"
order = 1
noise_levels = 8
tokens = 20_000
seed = 1
sequence_length = 64
[train]
steps = 4
sequences_per_batch = 4
warmup_steps = 2
seeds = [1]
[log]
eval_every = 1000
eval_sequences = 4
digests_every = 1
statistics_every = 1000
statistics_tensors = ["lm_head"]
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)";

inline train::Experiment Nano(std::vector<std::string> overrides = {}) {
  return train::ParseExperiment(
      kNano, "nano.toml", {.variables = {}, .overrides = std::move(overrides)});
}

/// A run of the quantised arm, or of the other one.
inline runlog::RunLog RunOf(const train::Experiment& experiment,
                            const train::RunHooks& hooks, size_t arm = 1,
                            int threads = 1,
                            const std::optional<train::RunFiles>& files = {}) {
  static const corpus::Corpus corpus =
      LoadCorpus(experiment.corpus_source, experiment.data.held_out_share);
  Executor executor(threads);
  return TrainRun(experiment, experiment.arms[arm], 1, corpus, executor, hooks,
                  files);
}

/// What step `step` left: digests of all its tensors, loss, gradient norm;
/// nothing if the run ended before.
inline std::vector<std::string> TraceOf(const runlog::RunLog& log,
                                        int64_t step) {
  std::vector<std::string> trace;
  for (size_t i = 0; i < log.steps.step.size(); ++i) {
    if (log.steps.step[i] != step) continue;
    trace.push_back(fmt::format("{:a}", log.steps.loss_nats[i]));
    trace.push_back(fmt::format("{:a}", log.steps.grad_norm[i]));
  }
  const auto biases = static_cast<size_t>(log.moe.layers * log.moe.experts);
  for (size_t i = 0; i < log.moe.step.size(); ++i) {
    if (log.moe.step[i] != step) continue;
    for (size_t n = 0; n < biases; ++n) {
      trace.push_back(fmt::format("{:a}", log.moe.expert_bias[i * biases + n]));
    }
  }
  const auto count = static_cast<size_t>(log.tensors.count);
  for (size_t i = 0; i < log.tensors.step.size(); ++i) {
    if (log.tensors.step[i] != step) continue;
    for (size_t n = 0; n < count; ++n) {
      trace.push_back(fmt::format("{} {:x}", log.tensors.names[n],
                                  log.tensors.digest[i * count + n]));
    }
  }
  return trace;
}

}  // namespace isoloss::qualification::testing
