#include "isoloss/step_checks/probe.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/oracle/exact_dot.h"
#include "isoloss/runlog/recipe_phases.h"
#include "isoloss/step_checks/evaluation_check.h"
#include "isoloss/step_checks/moe_check.h"
#include "isoloss/step_checks/precision_probe.h"
#include "isoloss/step_checks/probe_cases.h"
#include "isoloss/step_checks/probe_log_builder.h"
#include "isoloss/step_checks/sampling.h"
#include "isoloss/step_checks/step_oracle.h"
#include "isoloss/train/arm_recipes.h"
#include "isoloss/train/batch_shares.h"
#include "isoloss/train/continuation.h"
#include "isoloss/train/step_columns.h"

namespace isoloss::step_checks {
namespace {

/// Prepares the experiment of a case. Statistics would listen to tensors, too,
/// and no bit depends on them or on evaluations.
train::Experiment Prepare(train::Experiment experiment,
                          const ProbeCase& probe_case) {
  experiment.log.statistics_first = 0;
  experiment.log.statistics_every = 0;
  experiment.log.digests_first = 0;
  experiment.log.digests_every = 0;
  experiment.log.dump_tensors.clear();
  // Sequences may be longer in a case, so one must suffice. Case plain does not
  // change, since its digests show what it is.
  if (probe_case.name != kPlainCase) experiment.log.eval_sequences = 1;
  if (probe_case.shape != nullptr) probe_case.shape(experiment);
  return experiment;
}

train::RunHooks HooksOf(const ProbeOptions& options,
                        const train::Experiment& experiment,
                        const train::Arm& arm, uint64_t seed) {
  if (!options.make_hooks) return options.hooks;
  train::RunHooks hooks = options.make_hooks(experiment, arm, seed);
  if (hooks.stop == nullptr) hooks.stop = options.hooks.stop;
  return hooks;
}

/// Listens to a run, lets `check` look at each step as it ends, and stops the
/// run after `steps` steps.
class StepListener {
 public:
  using Check =
      std::function<void(const StepRecord& record, const runlog::RunLog& rows)>;

  StepListener(int64_t steps, const train::RunHooks& caller, Check check)
      : hooks_(caller) {
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
    hooks_.on_rows = [this, &caller,
                      check = std::move(check)](const runlog::RunLog& rows) {
      if (caller.on_rows) caller.on_rows(rows);
      if (rows.steps.step.empty()) return;  // this is an evaluation
      check(record_, rows);
      record_.Clear();
    };
    hooks_.on_step = [this, steps, &caller](const runlog::StepRow& row) {
      if (caller.on_step) caller.on_step(row);
      stop_.store(row.step >= steps ||
                  (caller.stop != nullptr && caller.stop->load()));
    };
  }

  /// The caller may add hooks.
  train::RunHooks& hooks() { return hooks_; }

 private:
  StepRecord record_;
  train::RunHooks hooks_;
  std::atomic<bool> stop_{false};
};

/// Returns the counts that one step logged, [MoE layers, E].
MatrixView<const int64_t> CountsOf(const runlog::MoeColumns& moe,
                                   const model::ModelConfig& config) {
  const size_t layers = config.n_moe_layers();
  if (moe.tokens_per_expert.size() != layers * config.num_experts) {
    ThrowError(ErrorKind::kFormat,
               "probe: the step logged {} counts of tokens, but {} layers of "
               "{} experts need {}. Record them (train/step_columns.h).",
               moe.tokens_per_expert.size(), layers, config.num_experts,
               layers * config.num_experts);
  }
  return {moe.tokens_per_expert.data(), layers, config.num_experts};
}

/// Returns the logged expert biases after the update, [MoE layers, E].
Matrix<float> BiasesOf(const runlog::MoeColumns& moe,
                       const model::ModelConfig& config) {
  Matrix<float> biases(config.n_moe_layers(), config.num_experts);
  ISOLOSS_ASSERT(moe.expert_bias.size() == biases.size());
  std::ranges::transform(moe.expert_bias, biases.data(),
                         [](double bias) { return static_cast<float>(bias); });
  return biases;
}

bool ReachedItsEnd(const runlog::RunLog& log, int64_t steps) {
  const bool aborted = train::WasAborted(log);
  return !aborted && !log.steps.step.empty() && log.steps.step.back() >= steps;
}

runlog::RunLog Train(const ProbeOptions& options,
                     const train::Experiment& experiment, const train::Arm& arm,
                     uint64_t seed, const corpus::Corpus& corpus,
                     Executor& executor, const train::RunHooks& hooks) {
  return options.train
             ? options.train(experiment, arm, seed, corpus, executor, hooks)
             : train::TrainRun(experiment, arm, seed, corpus, executor, hooks);
}

/// Returns the arm with the phases that it has in all cases but `plain`.
train::Arm WithEarlyPhases(const train::Arm& arm,
                           const train::Experiment& experiment) {
  const int64_t steps = experiment.train.steps;
  std::vector<int64_t> first_steps;
  for (const train::ArmPhase& phase : train::PhasesOf(arm, steps)) {
    first_steps.push_back(phase.first_step);
  }
  first_steps = runlog::ProbedFirstSteps(std::move(first_steps), steps);
  train::Arm early = arm;
  for (size_t i = 0; i < early.then.size(); ++i) {
    early.then[i].from = static_cast<double>(first_steps[i + 1] - 1) /
                         static_cast<double>(steps);
  }
  return early;
}

/// Holds the arguments of ProbeArm.
struct Subject {
  const train::Experiment& original;
  const train::Arm& arm;
  uint64_t seed;
  const corpus::Corpus& corpus;
  Executor& executor;
  const ProbeOptions& options;
};

bool IsSampled(const Subject& subject, const train::Experiment& experiment) {
  return !subject.options.full && IsLarge(experiment);
}

/// Each function returns whether the run finished its last step with finite
/// numbers.
using CaseFunction = bool (*)(const Subject& subject,
                              const ProbeCase& probe_case,
                              ProbeLogBuilder& builder);

/// Looks only at what an exchange moves.
bool ProbeExchange(const Subject& subject, const ProbeCase& probe_case,
                   ProbeLogBuilder& builder) {
  const ProbeOptions& options = subject.options;
  if (subject.original.model.n_moe_layers() == 0) return true;
  const train::Experiment experiment = Prepare(subject.original, probe_case);
  const model::ModelConfig& config = experiment.model;
  const expert_parallel::MeshConfig mesh = MeshOf(experiment, subject.arm);
  const train::Arm arm = WithEarlyPhases(subject.arm, experiment);
  const std::vector<train::ArmPhase> phases =
      train::PhasesOf(arm, experiment.train.steps);
  const int64_t steps =
      std::min(options.exchange_steps, experiment.train.steps);
  if (options.on_step) options.on_step(probe_case.name, steps);
  builder.BeginCase(probe_case.name);
  const train::RunHooks caller =
      HooksOf(options, experiment, subject.arm, subject.seed);
  StepListener listener(
      steps, caller, [&](const StepRecord& record, const runlog::RunLog& rows) {
        ReportSink sink;
        const size_t phase = runlog::PhaseAt(phases, rows.steps.step.back());
        const oracle::Grid activations =
            oracle::ActivationGrid(train::ArmRecipe(phases[phase].arm));
        const int64_t step = rows.steps.step.back();
        const Sampling sampling =
            IsSampled(subject, experiment)
                ? Sampling(subject.seed, static_cast<uint64_t>(step))
                : Sampling();
        for (size_t layer = config.n_dense_layers; layer < config.n_layers;
             ++layer) {
          CheckMoe(record, config, layer, mesh, activations, sink, sampling);
        }
        builder.Add(step, sink);
      });
  const runlog::RunLog log =
      Train(options, experiment, arm, subject.seed, subject.corpus,
            subject.executor, listener.hooks());
  builder.EndCase(log);
  return ReachedItsEnd(log, steps);
}

/// Looks at every tensor of every step.
bool ProbeSteps(const Subject& subject, const ProbeCase& probe_case,
                ProbeLogBuilder& builder) {
  const ProbeOptions& options = subject.options;
  train::Experiment experiment = Prepare(subject.original, probe_case);
  const bool plain = probe_case.name == kPlainCase;
  // The log of tensors is compared in the first steps only.
  const int64_t logged = plain ? options.steps : 0;
  experiment.log.statistics_first = logged;
  experiment.log.statistics_tensors = {"*"};
  experiment.log.digests_first = logged;
  experiment.log.routing = plain;
  const train::Arm arm =
      plain ? subject.arm : WithEarlyPhases(subject.arm, experiment);
  const int64_t wanted = std::max(
      options.steps, plain ? options.plain_steps : StepsOfPhases(subject.arm));
  const int64_t steps = std::min(wanted, experiment.train.steps);
  std::optional<Executor> own_team;
  // A device computes all cases itself.
  if (probe_case.threads > 0 && subject.executor.memory().is_host()) {
    own_team.emplace(probe_case.threads);
  }
  Executor& executor = own_team ? *own_team : subject.executor;
  const train::RunHooks caller =
      HooksOf(options, experiment, subject.arm, subject.seed);
  const corpus::Batches batches(subject.corpus, experiment.data.sequence_length,
                                experiment.log.eval_sequences);
  corpus::Batch batch;
  std::optional<StepOracle> oracle;
  builder.BeginCase(probe_case.name);
  StepListener listener(
      steps, caller, [&](const StepRecord& record, const runlog::RunLog& rows) {
        const runlog::StepRow row = train::LastRow(rows.steps);
        if (options.on_step) options.on_step(probe_case.name, row.step);
        batches.Training(subject.seed, row.step,
                         experiment.train.sequences_per_batch, batch);
        const Matrix<float> biases = BiasesOf(rows.moe, experiment.model);
        ReportSink sink;
        oracle->Check(
            record, batch,
            {.row = row,
             .expert_bias = biases.view(),
             .tokens_per_expert = CountsOf(rows.moe, experiment.model),
             .log = row.step <= logged ? &rows : nullptr},
            executor, sink);
        builder.Add(row.step, sink);
      });
  listener.hooks().edit_initial_weights = [&](model::ParameterSet& weights) {
    if (probe_case.edit != nullptr) probe_case.edit(experiment.model, weights);
    if (caller.edit_initial_weights) caller.edit_initial_weights(weights);
    oracle.emplace(experiment, arm, subject.seed, weights,
                   IsSampled(subject, experiment));
  };
  const runlog::RunLog log = Train(options, experiment, arm, subject.seed,
                                   subject.corpus, executor, listener.hooks());
  builder.EndCase(log);
  return ReachedItsEnd(log, steps);
}

/// One update precedes this step. After two, expert biases may be back at zero.
constexpr int64_t kEvaluatedStep = 2;

/// Looks only at the held-out loss before the last step, which has the last
/// recipe of an arm with several.
bool ProbeEvaluation(const Subject& subject, const ProbeCase& probe_case,
                     ProbeLogBuilder& builder) {
  const ProbeOptions& options = subject.options;
  const train::Experiment experiment =
      EvaluatingBatches(Prepare(subject.original, probe_case));
  const train::Arm& original = subject.arm;
  const int64_t of_phases = StepsOfPhases(original);
  const bool has_phases = of_phases > 0 && of_phases <= experiment.train.steps;
  const train::Arm arm = has_phases ? WithEarlyPhases(original, experiment)
                                    : train::ArmInPhase(original, 0);
  const int64_t steps =
      has_phases
          ? of_phases
          : std::min({kEvaluatedStep, options.steps, experiment.train.steps});
  const corpus::Corpus corpus =
      HoldingOutBatch(subject.corpus, experiment, subject.seed, steps);
  if (options.on_step) options.on_step(probe_case.name, steps);
  builder.BeginCase(probe_case.name);
  const train::RunHooks caller =
      HooksOf(options, experiment, subject.arm, subject.seed);
  Matrix<float> losses;
  StepListener listener(steps, caller,
                        [&](const StepRecord& record, const runlog::RunLog&) {
                          losses.CopyFrom(record.At("loss_output").values);
                        });
  const runlog::RunLog log = Train(options, experiment, arm, subject.seed,
                                   corpus, subject.executor, listener.hooks());
  ReportSink sink;
  CheckEvaluation(log, steps, {losses.data(), losses.size()}, sink);
  builder.Add(steps, sink);
  builder.EndCase(log);
  return ReachedItsEnd(log, steps);
}

CaseFunction FunctionOf(const ProbeCase& probe_case) {
  switch (probe_case.scope) {
    case ProbeScope::kSteps:
      return &ProbeSteps;
    case ProbeScope::kExchange:
      return &ProbeExchange;
    case ProbeScope::kEvaluation:
      return &ProbeEvaluation;
  }
  ISOLOSS_ASSERT(false);
  return nullptr;
}

}  // namespace

int64_t StepsOfPhases(const train::Arm& arm) {
  return arm.then.empty() ? 0
                          : runlog::kProbedStepsOfPhase *
                                (static_cast<int64_t>(arm.then.size()) + 1);
}

runlog::ProbeLog ProbeArm(const train::Experiment& experiment,
                          const train::Arm& arm, uint64_t seed,
                          const corpus::Corpus& corpus, Executor& executor,
                          const ProbeOptions& options) {
  train::Experiment whole = experiment;
  train::TakeWholeBatches(whole);
  if (options.steps < 1) {
    ThrowError(ErrorKind::kConfig,
               "probe: {} steps were asked for, but it needs at least 1.",
               options.steps);
  }
  // Arguments that the last case would refuse are refused before the first one.
  if (options.reference != nullptr) {
    CheckReference(experiment, *options.reference, options.reference_steps);
  }
  std::vector<const ProbeCase*> cases;
  for (const std::string& name : options.cases) {
    cases.push_back(&ProbeCaseByName(name));
    if (std::ranges::count(options.cases, name) > 1) {
      ThrowError(ErrorKind::kConfig,
                 "probe: case {} is given more than once, but a log holds each "
                 "case once. Give it once.",
                 name);
    }
  }
  if (cases.empty()) {
    for (const ProbeCase& probe_case : ProbeCases()) {
      cases.push_back(&probe_case);
    }
  }
  const Subject subject = {whole, arm, seed, corpus, executor, options};
  ProbeLogBuilder builder;
  bool complete = true;
  for (const ProbeCase* probe_case : cases) {
    try {
      complete &= FunctionOf(*probe_case)(subject, *probe_case, builder);
    } catch (const Error& error) {
      // The case gave the experiment a shape that its author did not choose.
      if (error.kind() != ErrorKind::kConfig) throw;
      ThrowError(ErrorKind::kConfig, "probe case {}: {}", probe_case->name,
                 error.what());
    }
  }
  if (options.reference != nullptr) {
    if (options.on_step) options.on_step("reference", 0);
    builder.Add(ProbePrecision(whole, arm, *options.reference, seed, corpus,
                               options.reference_steps, executor,
                               HooksOf(options, whole, arm, seed)));
    builder.log().reference_recipe = options.reference->recipe;
  }
  builder.log().provenance.complete = complete;
  return std::move(builder.log());
}

}  // namespace isoloss::step_checks
