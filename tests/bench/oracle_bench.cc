// What a probe costs: a step that the oracle checks beside the same step of a
// run that nobody looks at, on one thread.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/corpus/corpus.h"
#include "isoloss/step_checks/probe.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/run_description.h"
#include "isoloss/train/trainer.h"
#include "measure.h"
#include "program.h"

namespace isoloss::bench {
namespace {

constexpr int64_t kSteps = 3;

/// Without evaluations and statistics after the first step.
train::Experiment ExperimentOf(const std::string& preset,
                               const std::string& recipe) {
  const std::string text = fmt::format(
      R"(name = "probed"
[model]
preset = "{}"
[data]
source = "synthetic"
[train]
steps = {}
warmup_steps = 1
seeds = [1]
[log]
eval_every = {}
eval_sequences = 1
statistics_first = 0
digests_first = 0
[arms.probed]
recipe = "{}"
)",
      preset, kSteps, kSteps, recipe);
  return train::ParseExperiment(text, "oracle_bench.toml", {});
}

/// Processor time between two ends of steps.
class StepTimer {
 public:
  train::RunHooks Hooks() {
    train::RunHooks hooks;
    hooks.on_step = [this](const runlog::StepRow&) {
      ends_.push_back(ThreadSeconds());
    };
    return hooks;
  }
  /// Of the last step but one: after the last one a run evaluates.
  double Seconds() const { return ends_[kSteps - 2] - ends_[kSteps - 3]; }

 private:
  std::vector<double> ends_;
};

void ProbedStep(benchmark::State& state, const std::string& preset,
                const std::string& recipe) {
  const train::Experiment experiment = ExperimentOf(preset, recipe);
  const train::Arm& arm = experiment.arms.front();
  const corpus::Corpus corpus = train::LoadCorpusOf(experiment);
  Executor executor(1);
  std::vector<double> ratios;
  std::vector<double> seconds;
  for ([[maybe_unused]] auto _ : state) {
    StepTimer training;
    train::TrainRun(experiment, arm, 1, corpus, executor, training.Hooks());
    StepTimer probing;
    step_checks::ProbeOptions options;
    options.steps = 1;
    options.plain_steps = kSteps;
    options.cases = {"plain"};
    options.hooks = probing.Hooks();
    step_checks::ProbeArm(experiment, arm, 1, corpus, executor, options);
    seconds.push_back(probing.Seconds());
    ratios.push_back(seconds.back() / training.Seconds());
    state.SetIterationTime(seconds.back());
  }
  state.counters["of_training"] = Median(ratios);
  state.counters["ms"] = 1e3 * Median(seconds);
}

void RegisterAll(int rounds) {
  for (const std::string preset : {"dsv3-nano", "dsv3-small"}) {
    for (const std::string recipe : {"bf16", "mxfp8_rceil"}) {
      benchmark::RegisterBenchmark(
          fmt::format("probe/{}/{}", preset, recipe).c_str(),
          [=](benchmark::State& state) { ProbedStep(state, preset, recipe); })
          ->UseManualTime()
          ->Iterations((rounds + 4) / 5)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
