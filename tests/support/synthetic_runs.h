// Logs of runs that never happened, with losses whose differences are known.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/compare/pair.h"
#include "isoloss/runlog/tuning.h"
#include "sample_graph.h"

namespace isoloss::test_support {

inline constexpr int64_t kSyntheticSteps = 50;

/// Appends a sweep of learning rates that fits the text and the corpus of
/// SyntheticRun, and whose best rate is that of its runs.
inline std::string WithSweep(const std::string& text) {
  return fmt::format(
      "{}[tuning]\nrates = [0.0005, 0.001, 0.002]\n"
      "held_out = [2.6, 2.5, 2.7]\nseeds = [1001, 1002]\n"
      "configuration = \"{}\"\n",
      text, runlog::TuningDigest(text, "d1", "bf16"));
}

/// What an experiment's resolved text says of these runs: 50 steps at 1e-3, an
/// evaluation of two sequences at the last one, and statistics and digests of
/// tensors at the first and the last one, if `full`, which has an MoE layer of
/// 2 experts, one slot a token, and a replayed routing. Else no layer has any.
inline std::string SyntheticText(bool full) {
  return WithSweep(fmt::format(
      "[model]\nn_layers = 2\nn_dense_layers = {}\nnum_experts = 2\n"
      "top_k = 1\n[train]\nsteps = {}\nlr = 0.001\nwarmup_steps = 0\n"
      "decay_ratio = 0.0\ndecay_type = \"linear\"\nmin_lr_factor = 0.0\n"
      "[log]\neval_every = {}\neval_sequences = 2\nrouting = {}\n"
      "statistics_first = {}\nstatistics_every = {}\n"
      "digests_first = {}\ndigests_every = {}\n[routing]\nmode = \"{}\"\n"
      "[arms.bf16]\nrecipe = \"bf16\"\n"
      "[arms.mxfp8]\nrecipe = \"mxfp8_rceil\"\n",
      full ? 1 : 2, kSyntheticSteps, kSyntheticSteps, full, full ? 1 : 0,
      full ? kSyntheticSteps : 0, full ? 1 : 0, full ? kSyntheticSteps : 0,
      full ? "replay" : "learned"));
}

/// Two parameters whose gradients are together those of each step; the second
/// one's are small.
inline runlog::ParameterColumns SampleParameters(
    const runlog::StepColumns& steps) {
  runlog::ParameterColumns parameters;
  parameters.step = steps.step;
  parameters.count = 2;
  parameters.names = {"wq", "router"};
  for (const double norm : steps.grad_norm) {
    for (const double share : {std::sqrt(1 - 1e-6), 1e-3}) {
      parameters.grad_norm.push_back(share * norm);
      parameters.update_ratio.push_back(share * norm / 100);
    }
  }
  return parameters;
}

/// The resolved text of a recipe that gives `format` to every product at the
/// one site of SampleGraph that is not a router's.
inline std::string SampleRecipeText(const std::string& format) {
  return fmt::format(
      "layers.0.wq  fprop {0} x {0}  dgrad {0} x {0}  wgrad {0} x {0}  (all)\n",
      format);
}

/// Batches that each step of each seed draws for itself.
inline void FillBatches(runlog::RunLog& log) {
  log.steps.batch_digest.clear();
  for (const int64_t step : log.steps.step) {
    log.steps.batch_digest.push_back(1000 * log.provenance.seed + step);
  }
}

/// What a log of the newest layout tells besides: every text, and attributes
/// that follow from experiment_text and the graph, whose two parameters have
/// 1000 values each.
inline void FillAttributes(runlog::Provenance& p) {
  p.compiler = "GCC 12";
  p.cpu_target = "scalar";
  p.exchange = "alltoall";
  p.routing = "learned";
  if (p.numerics_digest.empty()) p.numerics_digest = "n" + p.arm;
  p.experiment_digest = DigestToHex(DigestOf(p.experiment_text));
  p.parameters = 2000;
}

/// A healthy run of a program that records little, as schema version 1 has it.
/// Its losses are (1 + percent / 100) times those of the
/// baseline's run of the same seed; a baseline's percent is 0.
inline compare::Run SyntheticRun(bool candidate, int64_t seed, double percent) {
  compare::Run run;
  run.file = fmt::format("{}_seed{}.h5", candidate ? "mxfp8" : "bf16", seed);
  run.log.schema_version = 1;
  auto& p = run.log.provenance;
  p.tool_version = "isoloss 0.9.0";
  p.commit = "0123abc";
  p.experiment_name = "mxfp8_vs_bf16";
  p.experiment_digest = "e1";
  p.experiment_text = WithSweep("[train]\nlr = 0.001\n");
  p.config_digest = "c1";
  p.arm = candidate ? "mxfp8" : "bf16";
  p.baseline_arm = "bf16";
  p.recipe = candidate ? "mxfp8_rceil" : "bf16";
  p.resolved_recipe = SampleRecipeText(candidate ? "e4m3" : "bf16");
  p.graph = SampleGraph(candidate ? "e4m3" : "");
  p.corpus_description = "C++ source, 1 MiB";
  p.corpus_digest = "d1";
  p.initial_weights_digest = fmt::format("w{}", seed);
  p.final_weights_digest = fmt::format("f{}{}", seed, candidate ? "m" : "b");
  p.seed = seed;
  p.steps_planned = kSyntheticSteps;
  p.tokens_per_step = 1024;
  p.parameters = 123456;
  p.workers = 2;
  p.quantized_gemms_per_step = candidate ? 78 : 0;
  p.gemms_per_step = 96;
  p.unigram_entropy_nats = 3.2;
  p.bigram_entropy_nats = 2.6;
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

}  // namespace isoloss::test_support
