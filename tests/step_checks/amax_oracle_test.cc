// What delayed scaling looks back to, over the steps of a run.
#include "isoloss/step_checks/amax_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/model/graph.h"
#include "isoloss/step_checks/probe.h"
#include "step_checks/planted_error.h"
#include "step_checks/recorded_run.h"
#include "step_checks/trial.h"

namespace isoloss::step_checks::amax_oracle_test {
namespace {

using precision::GemmRole;

formats::Quantization PerTensor(const char* element, int history) {
  return {.element = &formats::FormatByName(element),
          .scale_rule = formats::ScaleRule::kTe,
          .non_finite = formats::NonFinitePolicy::kTe,
          .scale_format = formats::ScaleFormat::kFp32,
          .scaling = history > 0 ? formats::Scaling::kDelayed
                                 : formats::Scaling::kCurrent,
          .cell = {0, 0},
          .history = history};
}

precision::Recipe Named(const char* name) {
  precision::Recipe recipe;
  recipe.name = name;
  recipe.include = {"attention", "routed_experts"};
  return recipe;
}

/// Operands of one tensor look back to different numbers of steps, and some to
/// none though they draw random bits.
precision::Recipe Mixed() {
  precision::Recipe recipe = Named("own_mixed");
  recipe.fprop = {PerTensor("e4m3", 2), PerTensor("e4m3", 3)};
  recipe.dgrad = {PerTensor("e5m2", 1), PerTensor("e4m3", 0)};
  recipe.wgrad = {PerTensor("e5m2", 0), PerTensor("e4m3", 0)};
  recipe.wgrad.right->rounding = formats::RoundingMode::kStochastic;
  recipe.wgrad.right->random_bits = 8;
  return recipe;
}

/// Every gradient looks back to the step before.
precision::Recipe LastStep() {
  precision::Recipe recipe = Named("own_last_step");
  recipe.fprop = {PerTensor("e4m3", 1), PerTensor("e4m3", 1)};
  recipe.dgrad = {PerTensor("e5m2", 1), PerTensor("e4m3", 1)};
  recipe.wgrad = {PerTensor("e5m2", 1), PerTensor("e4m3", 1)};
  return recipe;
}

/// Rates are high, so that magnitudes change from step to step.
train::Experiment TrialOf(const precision::Recipe& recipe) {
  train::Experiment experiment = SmallTrial(/*sequence_length=*/21);
  experiment.train.steps = 5;
  experiment.train.warmup_steps = 0;
  experiment.train.lr = 0.02;
  experiment.arms.resize(1);
  experiment.arms[0].name = recipe.name;
  experiment.arms[0].Use(recipe);
  return experiment;
}

/// Elements that are not explained, by step.
std::map<int64_t, int64_t> Probe(const precision::Recipe& recipe,
                                 model::GemmEngine engine = {}) {
  const train::Experiment experiment = TrialOf(recipe);
  const corpus::Corpus corpus = CorpusOf(experiment);
  Executor executor(1);
  ProbeOptions options = {.steps = 5, .cases = {"plain"}};
  options.hooks.gemm_engine = std::move(engine);

  const runlog::ProbeLog log = ProbeArm(experiment, experiment.arms[0],
                                        /*seed=*/1, corpus, executor, options);

  EXPECT_TRUE(log.provenance.complete);
  std::map<int64_t, int64_t> others;
  for (size_t i = 0; i < log.oracle.step.size(); ++i) {
    others[log.oracle.step[i]] += log.oracle.other[i];
  }
  return others;
}

/// What gradients' products look back to is what they should have looked back
/// to in the step before.
model::GemmEngine OneStepLate() {
  using Place = std::tuple<std::string, GemmRole, bool, size_t>;
  const auto before = std::make_shared<std::map<Place, std::optional<float>>>();
  const auto kept = std::make_shared<std::deque<kernels::OperandState>>();
  return [before, kept](std::span<const model::GemmTask> tasks,
                        Executor& executor) {
    std::vector<kernels::GemmProblem> problems;
    for (const model::GemmTask& task : tasks) {
      kernels::GemmProblem& problem = problems.emplace_back(task.problem);
      // Evaluations have forward products, too.
      if (task.role == GemmRole::kFprop) continue;
      for (kernels::Operand* side : {&problem.a, &problem.b}) {
        if (side->state == nullptr) continue;
        kernels::OperandState& late = kept->emplace_back(*side->state);
        std::swap(late.common.history,
                  (*before)[{std::string(task.site), task.role,
                             side == &problem.a, task.group}]);
        side->state = &late;
      }
    }
    kernels::GemmBatch(problems, executor);
  };
}

const std::map<int64_t, int64_t> kNone = {
    {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}};

TEST(AmaxOracle, ExplainsDelayedScalingOverManySteps) {
  EXPECT_EQ(Probe(precision::RecipeByName("te_fp8_delayed")), kNone);
  EXPECT_EQ(Probe(LastStep()), kNone);
}

TEST(AmaxOracle, ExplainsHistoriesOfDifferentLengths) {
  EXPECT_EQ(Probe(Mixed()), kNone);
}

TEST(AmaxOracle, FindsAHistoryThatIsOneStepLate) {
  const auto others = Probe(LastStep(), OneStepLate());

  // Nothing comes before the first step, for either.
  EXPECT_EQ(others.at(1), 0);
  for (int64_t step = 2; step <= 5; ++step) {
    EXPECT_GT(others.at(step), 10) << step;
  }
}

TEST(AmaxOracle, FindsBitsOfTheStepBefore) {
  precision::Recipe recipe = Named("own_stochastic");
  recipe.wgrad = {PerTensor("e5m2", 0), PerTensor("e4m3", 0)};
  recipe.wgrad.left->rounding = formats::RoundingMode::kStochastic;
  recipe.wgrad.left->random_bits = 8;
  const auto first =
      std::make_shared<std::map<std::string, kernels::OperandState>>();
  const auto others = Probe(
      recipe, Wrong(GemmRole::kWgrad, [first](const model::GemmTask& task,
                                              kernels::GemmProblem& problem) {
        const std::string place =
            std::string(task.site) + std::to_string(task.group);
        problem.a.state =
            &first->try_emplace(place, *problem.a.state).first->second;
      }));

  EXPECT_EQ(others.at(1), 0);
  for (int64_t step = 2; step <= 5; ++step) {
    EXPECT_GT(others.at(step), 10) << step;
  }
}

/// A run and the oracle that follows it.
class FollowedRun {
 public:
  explicit FollowedRun(const train::Experiment& experiment)
      : initial_(experiment.model), run_(experiment, 0, CopyInitial()) {}

  void Step(int64_t step, ReportSink& sink) {
    run_.Step(step);
    corpus::Batch batch;
    const corpus::Corpus corpus = CorpusOf(run_.experiment);
    corpus::Batches(corpus, run_.experiment.data.sequence_length,
                    run_.experiment.log.eval_sequences)
        .Training(1, step, run_.experiment.train.sequences_per_batch, batch);
    if (!oracle_) {
      oracle_.emplace(run_.experiment, run_.experiment.arms[0], 1, initial_);
    }
    oracle_->Check(run_.record, batch, run_.Outcome(), run_.executor, sink);
  }
  isoloss::test_support::RecordedRun& run() { return run_; }
  const OperandHistories& histories() const { return oracle_->histories(); }

 private:
  train::RunHooks CopyInitial() {
    train::RunHooks hooks;
    hooks.edit_initial_weights = [this](model::ParameterSet& weights) {
      for (size_t i = 0; i < weights.parameters().size(); ++i) {
        initial_.parameters()[i].values.CopyFrom(
            weights.parameters()[i].values);
      }
    };
    return hooks;
  }

  model::ParameterSet initial_;
  isoloss::test_support::RecordedRun run_;
  std::optional<StepOracle> oracle_;
};

// A checkpoint has x, W and dy of each site, of each group
// (docs/architecture.md).
TEST(AmaxOracle, HasTheNumbersOfTheRunsCheckpoint) {
  const train::Experiment experiment =
      TrialOf(precision::RecipeByName("te_fp8_delayed"));
  FollowedRun followed(experiment);
  ReportSink sink;
  constexpr int64_t kSteps = 3;
  for (int64_t step = 1; step <= kSteps; ++step) followed.Step(step, sink);
  const MatrixView<const float> kept =
      followed.run().learner().State().amax_history;
  const OperandHistories& histories = followed.histories();

  const model::Graph graph = model::GraphOf(experiment.model);
  size_t column = 0;
  for (const model::GemmSite& site : graph.sites) {
    const size_t groups = graph.parameters[site.parameter].groups();
    for (const auto& places : {std::pair("/fprop/left", "/wgrad/right"),
                               std::pair("/fprop/right", "/dgrad/right"),
                               std::pair("/dgrad/left", "/wgrad/left")}) {
      // A recipe leaves some sites alone.
      if (!histories.contains({site.name + places.first, 0})) continue;
      for (size_t g = 0; g < groups; ++g, ++column) {
        float largest = 0.0f;
        for (size_t row = 0; row < kSteps; ++row) {
          largest = std::max(largest, kept(row, column));
        }
        EXPECT_EQ(histories.at({site.name + places.first, g}), largest);
        EXPECT_EQ(histories.at({site.name + places.second, g}), largest);
      }
    }
  }
  EXPECT_EQ(column, kept.cols());
}

TEST(AmaxOracle, IsRefusedInTheMiddleOfARun) {
  FollowedRun followed(TrialOf(LastStep()));
  followed.run().Step(1);
  ReportSink sink;

  try {
    followed.Step(2, sink);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_NE(std::string(error.what()).find("from its first step"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace isoloss::step_checks::amax_oracle_test
