#include "isoloss/oracle/probe.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/oracle/moe_check.h"
#include "isoloss/oracle/precision_probe.h"
#include "isoloss/oracle/probe_cases.h"
#include "isoloss/oracle/step_oracle.h"

namespace isoloss::oracle {
namespace {

constexpr std::string_view kPlainCase = "plain";

/// One step of a probed run, kept until the run has ended.
struct RecordedStep {
  StepRecord record;
  runlog::StepRow row;
  Matrix<float> expert_bias;  // after the update, [MoE layers, E]
};

/// Listens to a run, and stops it after `steps` steps.
class RunRecorder {
 public:
  RunRecorder(const train::Experiment& experiment, int64_t steps,
              const ProbeCase& probe_case, const train::RunHooks& caller)
      : steps_(steps),
        caller_(caller),
        initial_(experiment.model),
        expert_bias_(experiment.model.n_moe_layers(),
                     experiment.model.num_experts) {
    hooks_ = caller;
    hooks_.stop = &stop_;
    hooks_.edit_initial_weights = [&](model::ParameterSet& weights) {
      if (probe_case.edit != nullptr) {
        probe_case.edit(experiment.model, weights);
      }
      if (caller_.edit_initial_weights) caller_.edit_initial_weights(weights);
      KeepWeights(weights);
    };
    hooks_.on_tensor = [&](int64_t step, const model::Tensor& tensor) {
      if (caller_.on_tensor) caller_.on_tensor(step, tensor);
      Step(step).record.OnTensor(tensor);
    };
    hooks_.on_routing = [&](int64_t step, std::string_view module,
                            MatrixView<const int32_t> ids) {
      if (caller_.on_routing) caller_.on_routing(step, module, ids);
      Step(step).record.OnRouting(module, ids, 0);
    };
    hooks_.after_update = [&](int64_t step, model::ParameterSet& weights,
                              MatrixView<float> bias) {
      if (caller_.after_update) caller_.after_update(step, weights, bias);
      for (size_t layer = 0; layer < bias.rows(); ++layer) {
        std::copy_n(bias.Row(layer), bias.cols(), expert_bias_.Row(layer));
      }
    };
    hooks_.on_step = [&](const runlog::StepRow& row) {
      if (caller_.on_step) caller_.on_step(row);
      RecordedStep& step = Step(row.step);
      step.row = row;
      step.expert_bias.CopyFrom(expert_bias_);
      stop_.store(row.step >= steps_ ||
                  (caller_.stop != nullptr && caller_.stop->load()));
    };
  }

  const train::RunHooks& hooks() const { return hooks_; }
  const model::ParameterSet& initial() const { return initial_; }
  std::map<int64_t, RecordedStep>& steps() { return recorded_; }

 private:
  RecordedStep& Step(int64_t step) { return recorded_[step]; }

  void KeepWeights(const model::ParameterSet& weights) {
    for (size_t i = 0; i < weights.parameters().size(); ++i) {
      initial_.parameters()[i].values.CopyFrom(weights.parameters()[i].values);
    }
  }

  const int64_t steps_;
  const train::RunHooks& caller_;
  train::RunHooks hooks_;
  model::ParameterSet initial_;
  Matrix<float> expert_bias_;
  std::map<int64_t, RecordedStep> recorded_;
  std::atomic<bool> stop_{false};
};

/// Fills a log with the rows of one step after the other.
class LogBuilder {
 public:
  void BeginCase(const std::string& name) { log_.cases.push_back(name); }

  /// By the run of the first case; steps are those of the unshaped one.
  void Describe(const ProbeCase& probe_case, const runlog::RunLog& run) {
    if (log_.cases.size() == 1) log_.provenance = run.provenance;
    if (probe_case.name != kPlainCase) return;
    log_.plain_steps = {run.steps.step, run.steps.loss_nats,
                        run.steps.grad_norm};
  }

  void Add(int64_t step, const ReportSink& sink) {
    for (const auto& [tensor, comparison] : sink.comparisons()) {
      runlog::OracleRow row = comparison.Row();
      row.probe_case = Case();
      row.step = step;
      row.tensor = Place(tensor);
      log_.oracle.Append(row);
    }
    for (runlog::OracleRoutingRow row : sink.routing()) {
      row.probe_case = Case();
      row.step = step;
      log_.routing.Append(row);
    }
  }

  void Add(const PrecisionFindings& findings) {
    for (const std::string& tensor : findings.tensors) Place(tensor);
    log_.precision = findings.precision;
    for (int64_t& tensor : log_.precision.tensor) {
      tensor = Place(findings.tensors[static_cast<size_t>(tensor)]);
    }
    log_.routing_flips = findings.routing_flips;
  }

  runlog::ProbeLog& log() { return log_; }

 private:
  int64_t Case() const { return static_cast<int64_t>(log_.cases.size()) - 1; }
  int64_t Place(const std::string& tensor) {
    const auto [place, is_new] =
        places_.try_emplace(tensor, static_cast<int64_t>(places_.size()));
    if (is_new) log_.tensors.push_back(tensor);
    return place->second;
  }

  runlog::ProbeLog log_;
  std::map<std::string, int64_t> places_;
};

/// Statistics would listen too, and no bit depends on them.
train::Experiment Prepare(train::Experiment experiment,
                          const ProbeCase& probe_case) {
  experiment.log.statistics_first = 0;
  experiment.log.statistics_every = 0;
  experiment.log.digests_first = 0;
  experiment.log.digests_every = 0;
  experiment.log.dump_tensors.clear();
  if (probe_case.shape != nullptr) probe_case.shape(experiment);
  return experiment;
}

/// Counts of each step, [MoE layers, E].
MatrixView<const int64_t> CountsOf(const runlog::RunLog& log, size_t step_place,
                                   const model::ModelConfig& config) {
  const size_t layers = config.n_moe_layers();
  const size_t of_step = layers * config.num_experts;
  if (log.moe.tokens_per_expert.size() < (step_place + 1) * of_step) {
    ThrowError(ErrorKind::kFormat,
               "probe: the run logged {} counts of tokens, but {} steps of {} "
               "layers and {} experts need {}. Record them (train/"
               "step_columns.h).",
               log.moe.tokens_per_expert.size(), step_place + 1, layers,
               config.num_experts, (step_place + 1) * of_step);
  }
  return {log.moe.tokens_per_expert.data() + step_place * of_step, layers,
          config.num_experts};
}

train::RunHooks HooksOf(const ProbeOptions& options,
                        const train::Experiment& experiment,
                        const train::Arm& arm, uint64_t seed) {
  if (!options.make_hooks) return options.hooks;
  train::RunHooks hooks = options.make_hooks(experiment, arm, seed);
  if (hooks.stop == nullptr) hooks.stop = options.hooks.stop;
  return hooks;
}

/// Listens to a run, checks what its exchange did as each step ends, and stops
/// it after `steps` steps.
class ExchangeListener {
 public:
  ExchangeListener(const train::Experiment& experiment, const train::Arm& arm,
                   int64_t steps, const train::RunHooks& caller,
                   LogBuilder& builder)
      : config_(experiment.model),
        mesh_(MeshOf(experiment, arm)),
        activations_(ActivationGrid(train::RecipeOf(arm))),
        builder_(builder) {
    hooks_ = caller;
    hooks_.stop = &stop_;
    hooks_.on_tensor = [&](int64_t step, const model::Tensor& tensor) {
      if (caller.on_tensor) caller.on_tensor(step, tensor);
      record_.OnTensor(tensor);
    };
    hooks_.on_routing = [&](int64_t step, std::string_view module,
                            MatrixView<const int32_t> ids) {
      if (caller.on_routing) caller.on_routing(step, module, ids);
      record_.OnRouting(module, ids, 0);
    };
    hooks_.on_step = [this, steps, &caller](const runlog::StepRow& row) {
      if (caller.on_step) caller.on_step(row);
      CheckStep(row.step);
      stop_.store(row.step >= steps ||
                  (caller.stop != nullptr && caller.stop->load()));
    };
  }

  const train::RunHooks& hooks() const { return hooks_; }

 private:
  void CheckStep(int64_t step) {
    ReportSink sink;
    for (size_t layer = config_.n_dense_layers; layer < config_.n_layers;
         ++layer) {
      CheckMoe(record_, config_, layer, mesh_, activations_, sink);
    }
    builder_.Add(step, sink);
    record_ = StepRecord();
  }

  const model::ModelConfig& config_;
  const expert_parallel::MeshConfig mesh_;
  const Grid activations_;
  LogBuilder& builder_;
  StepRecord record_;
  train::RunHooks hooks_;
  std::atomic<bool> stop_{false};
};

bool ReachedItsEnd(const runlog::RunLog& log, int64_t steps) {
  const bool aborted = !log.events.empty() && log.events.back().kind == "abort";
  return !aborted && !log.steps.step.empty() && log.steps.step.back() >= steps;
}

runlog::RunLog Train(const ProbeOptions& options,
                     const train::Experiment& experiment, const train::Arm& arm,
                     uint64_t seed, const corpus::Corpus& corpus,
                     ThreadTeam& team, const train::RunHooks& hooks) {
  return options.train
             ? options.train(experiment, arm, seed, corpus, team, hooks)
             : train::TrainRun(experiment, arm, seed, corpus, team, hooks);
}

/// Returns whether the run finished its last step with finite numbers.
bool ProbeExchange(const train::Experiment& original, const train::Arm& arm,
                   uint64_t seed, const corpus::Corpus& corpus,
                   ThreadTeam& team, const ProbeOptions& options,
                   const ProbeCase& probe_case, LogBuilder& builder) {
  if (original.model.n_moe_layers() == 0) return true;
  const train::Experiment experiment = Prepare(original, probe_case);
  const int64_t steps =
      std::min(options.exchange_steps, experiment.train.steps);
  if (options.on_step) options.on_step(probe_case.name, steps);
  builder.BeginCase(probe_case.name);
  const train::RunHooks caller = HooksOf(options, experiment, arm, seed);
  ExchangeListener listener(experiment, arm, steps, caller, builder);
  const runlog::RunLog log =
      Train(options, experiment, arm, seed, corpus, team, listener.hooks());
  builder.Describe(probe_case, log);
  return ReachedItsEnd(log, steps);
}

/// Returns whether the run finished its last step with finite numbers.
bool ProbeOneCase(const train::Experiment& original, const train::Arm& arm,
                  uint64_t seed, const corpus::Corpus& corpus, ThreadTeam& team,
                  const ProbeOptions& options, const ProbeCase& probe_case,
                  LogBuilder& builder) {
  const train::Experiment experiment = Prepare(original, probe_case);
  const int64_t wanted = probe_case.name == kPlainCase
                             ? std::max(options.steps, options.plain_steps)
                             : options.steps;
  const int64_t steps = std::min(wanted, experiment.train.steps);
  const train::RunHooks caller = HooksOf(options, experiment, arm, seed);
  RunRecorder recorder(experiment, steps, probe_case, caller);
  const runlog::RunLog log =
      Train(options, experiment, arm, seed, corpus, team, recorder.hooks());
  builder.BeginCase(probe_case.name);
  builder.Describe(probe_case, log);

  StepOracle oracle(experiment, arm, recorder.initial());
  const corpus::Batches batches(corpus, experiment.data.sequence_length,
                                experiment.log.eval_sequences);
  corpus::Batch batch;
  for (size_t i = 0; i < log.steps.step.size(); ++i) {
    const int64_t step = log.steps.step[i];
    const RecordedStep& recorded = recorder.steps()[step];
    if (options.on_step) options.on_step(probe_case.name, step);
    batches.Training(seed, step, experiment.train.sequences_per_batch, batch);
    ReportSink sink;
    oracle.Check(recorded.record, batch,
                 {.row = recorded.row,
                  .expert_bias = recorded.expert_bias.view(),
                  .tokens_per_expert = CountsOf(log, i, experiment.model)},
                 team, sink);
    builder.Add(step, sink);
    recorder.steps().erase(step);
  }
  return ReachedItsEnd(log, steps);
}

}  // namespace

runlog::ProbeLog ProbeArm(const train::Experiment& experiment,
                          const train::Arm& arm, uint64_t seed,
                          const corpus::Corpus& corpus, ThreadTeam& team,
                          const ProbeOptions& options) {
  if (options.steps < 1) {
    ThrowError(ErrorKind::kConfig,
               "probe: {} steps were asked for, but it needs at least 1.",
               options.steps);
  }
  std::vector<const ProbeCase*> cases;
  for (const std::string& name : options.cases) {
    cases.push_back(&ProbeCaseByName(name));
  }
  if (cases.empty()) {
    for (const ProbeCase& probe_case : ProbeCases()) {
      cases.push_back(&probe_case);
    }
  }
  LogBuilder builder;
  bool complete = true;
  for (const ProbeCase* probe_case : cases) {
    const auto probe =
        probe_case->exchange_only ? &ProbeExchange : &ProbeOneCase;
    complete &= probe(experiment, arm, seed, corpus, team, options, *probe_case,
                      builder);
  }
  if (options.reference != nullptr) {
    if (options.on_step) options.on_step("reference", 0);
    builder.Add(ProbePrecision(experiment, arm, *options.reference, seed,
                               corpus, options.reference_steps, team,
                               HooksOf(options, experiment, arm, seed)));
    builder.log().reference_recipe = options.reference->recipe;
  }
  builder.log().provenance.complete = complete;
  return std::move(builder.log());
}

}  // namespace isoloss::oracle
