// Evidence that never was measured: an approved arm and its re-run, probes of
// it and null ensembles, all of one configuration.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "isoloss/base/build_info.h"
#include "isoloss/base/rng.h"
#include "isoloss/compare/pair.h"
#include "isoloss/gate/evidence.h"
#include "isoloss/gate/judge.h"
#include "isoloss/runlog/probe_log_schema.h"
#include "support/synthetic_runs.h"

namespace isoloss::gate {

using test_support::SampleParameters;

/// Makes gradient norms of steps what those of the parameters add up to.
inline void AddUpNorms(const runlog::ParameterColumns& parameters,
                       runlog::StepColumns& steps) {
  const auto count = static_cast<size_t>(parameters.count);
  for (size_t i = 0; i < steps.step.size(); ++i) {
    double squares = 0;
    for (size_t j = i * count; j < (i + 1) * count; ++j) {
      squares += parameters.grad_norm[j] * parameters.grad_norm[j];
    }
    steps.grad_norm[i] = std::sqrt(squares);
  }
}

/// Multiplies loss and both columns of every parameter of step t by
/// 1 + size(t), each with a sign of its own drawn from `seed`; the gradient
/// norm follows.
template <typename Size>
void Disturb(runlog::StepColumns& steps, runlog::ParameterColumns& parameters,
             uint64_t seed, const Size& size) {
  const CounterRng rng(seed, 7);
  uint64_t index = 0;
  // Bell-shaped, variance 1: the sum of 12 uniform values less 6.
  const auto draw = [&] {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng.Uniform(index++);
    return sum;
  };
  for (size_t i = 0; i < steps.step.size(); ++i) {
    const double scale = size(steps.step[i]);
    steps.loss_nats[i] *= 1 + scale * draw();
    const auto count = static_cast<size_t>(parameters.count);
    for (size_t place = i * count; place < (i + 1) * count; ++place) {
      parameters.grad_norm[place] *= 1 + scale * draw();
      parameters.update_ratio[place] *= 1 + scale * draw();
    }
  }
  AddUpNorms(parameters, steps);
}

/// Multiplies all gradients of a step, counted from 0.
inline void ScaleGradients(runlog::RunLog& log, size_t row, double factor) {
  const auto count = static_cast<size_t>(log.parameters.count);
  for (size_t j = row * count; j < (row + 1) * count; ++j) {
    log.parameters.grad_norm[j] *= factor;
  }
  AddUpNorms(log.parameters, log.steps);
}

/// Drift that starts at some ulps, doubles every second step and levels off.
inline double BenignDrift(int64_t step) {
  constexpr int64_t kSaturation = 20;
  return 1e-6 *
         std::pow(2.0, static_cast<double>(std::min(step, kSaturation)) / 2);
}

/// A run of the approved arm, or of the baseline that it is compared with.
inline compare::Run ArmRun(bool candidate, int64_t seed, double percent) {
  compare::Run run = test_support::SyntheticRun(candidate, seed, percent);
  runlog::RunLog& log = run.log;
  log.schema_version = runlog::kSchemaVersion;
  log.provenance.numerics_digest = candidate ? "n1" : "n0";
  log.provenance.experiment_text = test_support::SyntheticText(/*full=*/false);
  log.provenance.transport = "none";
  test_support::FillAttributes(log.provenance);
  log.steps.expert_load_max_over_mean.assign(log.steps.step.size(),
                                             std::nan(""));
  log.steps.nonfinite_gradients.assign(log.steps.step.size(), 0);
  test_support::FillBatches(log);
  log.parameters = SampleParameters(log.steps);
  return run;
}

/// Approved runs of arm mxfp8 and new ones that drift as a benign change does.
struct TwoVersions {
  std::vector<compare::Run> approved;
  std::vector<compare::Run> now;

  explicit TwoVersions(int64_t seeds, bool equal = false) {
    for (int64_t seed = 1; seed <= seeds; ++seed) {
      approved.push_back(ArmRun(true, seed, 0));
      compare::Run run = approved.back();
      run.file = fmt::format("new_seed{}.h5", seed);
      if (!equal) {
        run.log.provenance.final_weights_digest = fmt::format("g{}", seed);
        Disturb(run.log.steps, run.log.parameters,
                1000 + static_cast<uint64_t>(seed), &BenignDrift);
        // The late drift is that of L5's tests, not of these.
        for (size_t i = 20; i < run.log.steps.loss_nats.size(); ++i) {
          run.log.steps.loss_nats[i] =
              approved.back().log.steps.loss_nats[i] * (1 + 1e-4);
        }
      }
      now.push_back(std::move(run));
    }
  }

  compare::Pairing Pair() const {
    return compare::PairBySeed("mxfp8", compare::RunsOfArm(approved, "mxfp8"),
                               "mxfp8", compare::RunsOfArm(now, "mxfp8"));
  }
};

/// Good runs of the approved arm under benign changes.
inline NullEnsemble BenignEnsemble(size_t members) {
  NullEnsemble null;
  null.file = "benign.h5";
  null.ensemble.kind = runlog::EnsembleKind::kBenign;
  const compare::Run run = ArmRun(true, 1, 0);
  null.ensemble.provenance = run.log.provenance;
  null.ensemble.reference_provenance = run.log.provenance;
  for (size_t i = 0; i < members; ++i) {
    runlog::EnsembleMember member;
    member.perturbation = fmt::format("order_{}", i);
    member.seed = 1;
    member.steps = member.reference_steps = run.log.steps;
    member.parameters = member.reference_parameters = run.log.parameters;
    Disturb(member.steps, member.parameters, i, &BenignDrift);
    null.ensemble.members.push_back(std::move(member));
  }
  return null;
}

inline runlog::OracleRow SampleRow(int64_t probe_case, int64_t step,
                                   int64_t tensor) {
  return {.probe_case = probe_case,
          .step = step,
          .tensor = tensor,
          .elements = 1000,
          .equal = 1000,
          .noise_ratio = std::nan(""),
          .worst_ratio = 0.5,
          .worst_row = 7,
          .worst_column = 8,
          .worst_value = 1.5,
          .worst_expected = 1.25,
          .row_noise_ratio = std::nan(""),
          .noisiest_row = -1,
          .signed_error = std::nan(""),
          .tensor_noise_ratio = std::nan("")};
}

/// Rows of SampleProbe of a step, and the first one of case hot_row.
inline constexpr size_t kRowsOfStep = 26;
inline constexpr size_t kHotRow = 2 * kRowsOfStep;

/// A whole probe of a run, in which every element is as it should be. At step 3
/// the first 4 tensors in cases plain and hot_row have flips; in all others,
/// with steps 3 and 4, all elements are equal.
inline Probe SampleProbe(const compare::Run& run) {
  constexpr int64_t kRounded = 4;
  // Their rows come from experts or go to them.
  const std::set<int64_t> exchanged = {11, 18, 23, 24, 25};
  Probe probe;
  probe.file = fmt::format("probe_seed{}.h5", run.log.provenance.seed);
  runlog::ProbeLog& log = probe.log;
  log.provenance = run.log.provenance;
  log.provenance.parameters = 2000;
  log.cases = {"plain",    "hot_row", "zero_block", "scale_edge", "router_ties",
               "exchange", "tails",   "branches",   "evaluation"};
  log.tensors = {"layers.0.wq_output",
                 "layers.0.wq_dgrad",
                 "layers.0.wq_wgrad",
                 "layers.0.moe.router.gate_output",
                 "layers.0.wq_weight",
                 "layers.0.wq_parameter",
                 "layers.0.wq_update",
                 "layers.0.moe.router.scores_output",
                 "layers.0.moe.router.topk_weights_output",
                 "layers.0.moe.router_expert_bias",
                 "layers.0.moe.router_tokens_per_expert",
                 "layers.0.moe.routed_experts_output",
                 "loss_output",
                 "loss_mean",
                 "grad_norm",
                 "lr",
                 "layers.0.moe.router.gate_weight",
                 "layers.0.moe.router.gate_activation",
                 "layers.0.moe.router.gate_gradient",
                 "layers.0.moe.router.gate_dgrad",
                 "layers.0.moe.router.gate_wgrad",
                 "layers.0.moe.router.gate_update",
                 "layers.0.moe.router.gate_parameter",
                 "layers.0.wq_activation",
                 "layers.0.wq_gradient",
                 "layers.0.moe.router.topk_weights_gradient",
                 "held_out_loss"};
  const auto& steps = run.log.steps;
  for (size_t i = 0; i < steps.step.size(); ++i) {
    log.plain_steps.step.push_back(steps.step[i]);
    log.plain_steps.loss_nats.push_back(steps.loss_nats[i]);
    log.plain_steps.grad_norm.push_back(steps.grad_norm[i]);
    log.plain_steps.bytes_to_self.push_back(0);
    log.plain_steps.bytes_within_nodes.push_back(0);
    log.plain_steps.bytes_between_nodes.push_back(0);
  }
  for (int64_t probe_case = 0; probe_case < 8; ++probe_case) {
    const bool exchange =
        log.cases[static_cast<size_t>(probe_case)] == "exchange";
    for (const int64_t step : {3, 4}) {
      for (int64_t tensor = 0; tensor < int64_t{kRowsOfStep}; ++tensor) {
        if (exchange && !exchanged.contains(tensor)) continue;
        runlog::OracleRow row = SampleRow(probe_case, step, tensor);
        if (probe_case < 2 && step == 3 && tensor < kRounded) {
          const bool fp32 = tensor == 2;
          row.flips = fp32 ? 990 : 1;
          row.equal = 1000 - row.flips;
          row.expected_flips = fp32 ? 990.0 : 1.0;
          row.noise_ratio = fp32 ? 1.1 : std::nan("");
          row.row_noise_ratio = fp32 ? 0.6 : std::nan("");
          row.noisiest_row = fp32 ? 5 : -1;
          row.noisy_elements = fp32 ? 980 : 0;
          row.signed_error = fp32 ? 0.01 : std::nan("");
          row.tensor_noise_ratio = fp32 ? 1.0 : std::nan("");
        }
        log.oracle.Append(row);
      }
      if (exchange) continue;
      log.routing.Append({.probe_case = probe_case,
                          .step = step,
                          .layer = 0,
                          // Each has a score for both experts.
                          .tokens = 500,
                          .flips = 0,
                          .other = 0,
                          .digest = 77});
    }
  }
  log.oracle.Append(SampleRow(8, 4, kRowsOfStep));
  return probe;
}

/// As if the probe had seen fewer steps of case plain.
inline void KeepPlainSteps(size_t steps, Probe& probe) {
  using Steps = runlog::PlainStepColumns;
  for (const runlog::Column& column : runlog::ColumnsOf<Steps>()) {
    runlog::MutableView(probe.log.plain_steps)
        .WithValues(column, [steps](auto& values) { values.resize(steps); });
  }
}

/// What a candidate of this seed shows against BF16 in a teacher-forced step.
inline void AppendPrecision(uint64_t seed, runlog::PrecisionColumns& precision,
                            runlog::RoutingFlipColumns& flips) {
  const CounterRng rng(seed, 8);
  uint64_t index = 0;
  const auto draw = [&] { return rng.Uniform(index++) - 0.5; };
  for (int64_t tensor = 0; tensor < 4; ++tensor) {
    const bool quantized = tensor < 3;
    precision.Append(
        {.step = 3,
         .tensor = tensor,
         .relative_error = 0.03 * (1 + 0.1 * draw()),
         .gain = 1e-3 * draw(),
         .worst_group_error = 0.06 * (1 + 0.2 * draw()),
         .saturated = quantized ? 0.5 + 0.1 * draw() : std::nan(""),
         .underflows = quantized ? 2 + 0.2 * draw() : std::nan("")});
  }
  flips.step.push_back(3);
  flips.layer.push_back(0);
  flips.flip_share.push_back(0.05 + 0.01 * draw());
}

/// SampleProbe with a comparison against BF16.
inline Probe PrecisionProbe(const compare::Run& run) {
  Probe probe = SampleProbe(run);
  probe.log.reference_recipe = "bf16";
  AppendPrecision(static_cast<uint64_t>(run.log.provenance.seed),
                  probe.log.precision, probe.log.routing_flips);
  return probe;
}

/// Pairs of baseline and approved candidate, seeds 101, 102, ...; differences
/// of 0.05 % with a spread between seeds and between steps of some 0.01 %.
inline NullEnsemble SeedsEnsemble(size_t members) {
  NullEnsemble null;
  null.file = "seeds.h5";
  runlog::Ensemble& ensemble = null.ensemble;
  ensemble.kind = runlog::EnsembleKind::kSeeds;
  ensemble.provenance = ArmRun(true, 101, 0).log.provenance;
  ensemble.reference_provenance = ArmRun(false, 101, 0).log.provenance;
  ensemble.tensors = SampleProbe(ArmRun(true, 101, 0)).log.tensors;
  for (size_t i = 0; i < members; ++i) {
    const CounterRng rng(i, 9);
    const int64_t seed = 101 + static_cast<int64_t>(i);
    compare::Run candidate =
        ArmRun(true, seed, 0.05 + 0.02 * (rng.Uniform(0) - 0.5));
    const compare::Run baseline = ArmRun(false, seed, 0);
    Disturb(candidate.log.steps, candidate.log.parameters,
            static_cast<uint64_t>(seed), [](int64_t) { return 1e-4; });
    runlog::EnsembleMember member;
    member.perturbation = runlog::kPredicted;
    member.seed = seed;
    member.steps = candidate.log.steps;
    member.reference_steps = baseline.log.steps;
    member.parameters = candidate.log.parameters;
    member.reference_parameters = baseline.log.parameters;
    AppendPrecision(static_cast<uint64_t>(seed), member.precision,
                    member.routing_flips);
    ensemble.members.push_back(std::move(member));
  }
  return null;
}

/// Baseline and candidate whose difference is one of SeedsEnsemble's.
struct TwoArms {
  std::vector<compare::Run> runs;

  explicit TwoArms(int64_t seeds) {
    for (const bool candidate : {false, true}) {
      for (int64_t seed = 1; seed <= seeds; ++seed) {
        runs.push_back(ArmRun(candidate, seed, candidate ? 0.05 : 0));
        if (!candidate) continue;
        auto& log = runs.back().log;
        Disturb(log.steps, log.parameters, 500 + static_cast<uint64_t>(seed),
                [](int64_t) { return 1e-4; });
      }
    }
  }

  const compare::Run& Candidate(size_t i) const {
    return runs[runs.size() / 2 + i];
  }
  compare::Run& Candidate(size_t i) { return runs[runs.size() / 2 + i]; }

  compare::Pairing Pair() const {
    return compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"),
                               "mxfp8", compare::RunsOfArm(runs, "mxfp8"));
  }
};

/// A limit by few good runs, as these tests have.
inline Policy FewMembers(Policy policy = {}) {
  policy.min_members = 12;
  return policy;
}

inline Policy Regression() {
  Policy policy;
  policy.question = compare::Question::kRegression;
  return FewMembers(policy);
}

/// Of one level in Judgement::levels.
inline std::optional<Outcome> LevelOf(const Judgement& judgement,
                                      std::string_view name) {
  for (const LevelOutcome& level : judgement.levels) {
    if (level.name == name) return level.outcome;
  }
  return std::nullopt;
}

}  // namespace isoloss::gate
