// Logs of runs that never happened, with losses whose differences are known.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::testing {

inline constexpr int64_t kSyntheticSteps = 50;

/// A healthy run. Its losses are (1 + percent / 100) times those of the
/// baseline's run of the same seed; a baseline's percent is 0.
inline compare::Run SyntheticRun(bool candidate, int64_t seed, double percent) {
  compare::Run run;
  run.file = fmt::format("{}_seed{}.h5", candidate ? "mxfp8" : "bf16", seed);
  auto& p = run.log.provenance;
  p.tool_version = "isoloss 0.1.0";
  p.commit = "0123abc";
  p.experiment_name = "mxfp8_vs_bf16";
  p.experiment_digest = "e1";
  p.config_digest = "c1";
  p.arm = candidate ? "mxfp8" : "bf16";
  p.baseline_arm = "bf16";
  p.recipe = candidate ? "mxfp8_rceil" : "bf16";
  p.resolved_recipe =
      candidate ? "layers.0.wq  fprop e4m3 x e4m3" : "layers.0.wq  fprop bf16";
  p.corpus_description = "C++ source, 1 MiB";
  p.corpus_digest = "d1";
  p.initial_weights_digest = fmt::format("w{}", seed);
  p.final_weights_digest = fmt::format("f{}{}", seed, candidate ? "m" : "b");
  p.seed = seed;
  p.steps_planned = kSyntheticSteps;
  p.tokens_per_step = 1024;
  p.parameters = 123456;
  p.quantized_gemms_per_step = candidate ? 78 : 0;
  p.gemms_per_step = 96;
  p.unigram_entropy_nats = 3.2;
  p.entropy_floor_nats = std::nan("");
  p.complete = true;

  const double factor = 1 + percent / 100;
  for (int64_t step = 1; step <= kSyntheticSteps; ++step) {
    const double decay = 30 / (30 + 7 * static_cast<double>(step));
    const double loss = 2 + 3.5 * decay + 0.01 * static_cast<double>(seed);
    auto& s = run.log.steps;
    s.step.push_back(step);
    s.tokens_seen.push_back(1024 * step);
    s.loss_nats.push_back(loss * factor);
    s.grad_norm.push_back((0.5 + decay) * factor);
    s.lr.push_back(1e-3);
    s.step_seconds.push_back(0.125);
    s.tokens_per_second.push_back(8192);
    s.expert_load_max_over_mean.push_back(1.5);
    s.dead_experts.push_back(0);
    s.quantized_gemms.push_back(p.quantized_gemms_per_step);
  }
  run.log.eval.sequences = 2;
  for (const int64_t step : {int64_t{0}, kSyntheticSteps}) {
    const double loss = (step == 0 ? 5.5 : 2.5) * factor;
    run.log.eval.step.push_back(step);
    run.log.eval.loss_nats.push_back(loss);
    run.log.eval.per_sequence_loss_nats.insert(
        run.log.eval.per_sequence_loss_nats.end(), {loss, loss});
  }
  return run;
}

/// Arms bf16 and mxfp8 with seeds 1, 2, ... and these paired differences.
inline std::vector<compare::Run> SyntheticExperiment(
    const std::vector<double>& percent) {
  std::vector<compare::Run> runs;
  for (const bool candidate : {false, true}) {
    for (size_t i = 0; i < percent.size(); ++i) {
      runs.push_back(SyntheticRun(candidate, static_cast<int64_t>(i) + 1,
                                  candidate ? percent[i] : 0));
    }
  }
  return runs;
}

}  // namespace isoloss::testing
