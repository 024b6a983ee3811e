// Whole runs: the same bits whatever executes them, and what ends them early.
#include "isoloss/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/train/runner.h"
#include "support/temporary_folder.h"

namespace isoloss::train::trainer_test {
namespace {

using ::testing::HasSubstr;

/// Awkward sizes: sequences and experts' rows are no whole MX blocks.
constexpr std::string_view kText = R"(name = "trial"
[model]
vocab_size = 23
dim = 40
qk_nope_head_dim = 10
moe_hidden_dim = 36
num_experts = 5
[data]
source = "synthetic"
sequence_length = 21
noise_levels = 4
tokens = 4000
[train]
steps = 3
sequences_per_batch = 3
seeds = [1, 2]
warmup_steps = 2
[log]
eval_every = 2
eval_sequences = 4
[arms.bf16]
recipe = "bf16"
[arms.mxfp8]
recipe = "mxfp8_rceil"
)";

Experiment Trial(std::vector<std::string> overrides = {}) {
  return ParseExperiment(kText, "experiment.toml",
                         {.variables = {}, .overrides = std::move(overrides)});
}

corpus::Corpus CorpusOf(const Experiment& experiment) {
  return LoadCorpus(experiment.corpus_source, experiment.data.held_out_share);
}

runlog::RunLog RunOf(const Experiment& experiment, size_t arm, uint64_t seed,
                     int threads, const RunHooks& hooks = {}) {
  Executor executor(threads);
  return TrainRun(experiment, experiment.arms[arm], seed, CorpusOf(experiment),
                  executor, hooks);
}

/// Everything numeric that a run leaves, as bits and digests.
std::vector<std::string> TraceOf(const runlog::RunLog& log) {
  std::vector<std::string> trace = {log.provenance.initial_weights_digest,
                                    log.provenance.final_weights_digest};
  const auto append = [&](const std::vector<double>& values) {
    for (const double value : values)
      trace.push_back(fmt::format("{:a}", value));
  };
  append(log.steps.loss_nats);
  append(log.steps.grad_norm);
  append(log.steps.expert_load_max_over_mean);
  append(log.eval.per_sequence_loss_nats);
  return trace;
}

class TrainRunTest : public ::testing::TestWithParam<size_t> {
 protected:
  ~TrainRunTest() override { kernels::ForceTarget(""); }
};

TEST_P(TrainRunTest, BitsDependNeitherOnThreadsNorOnTheInstructionSet) {
  const Experiment experiment = Trial();
  const auto expected = TraceOf(RunOf(experiment, GetParam(), 1, 1));

  for (const std::string& target : kernels::SupportedTargets()) {
    kernels::ForceTarget(target);
    EXPECT_EQ(TraceOf(RunOf(experiment, GetParam(), 1, 2)), expected) << target;
  }
}

TEST_P(TrainRunTest, ExecutesTheQuantisedProductsThatItsRecipeAsksFor) {
  const runlog::RunLog log = RunOf(Trial(), GetParam(), 1, 1);

  EXPECT_EQ(log.provenance.quantized_gemms_per_step > 0, GetParam() == 1);
  EXPECT_THAT(log.steps.quantized_gemms,
              ::testing::Each(log.provenance.quantized_gemms_per_step));
}

INSTANTIATE_TEST_SUITE_P(Arms, TrainRunTest, ::testing::Values(0, 1));

TEST(TrainRun, EvaluatesAtBothEndsAndAtIntervals) {
  const runlog::RunLog log = RunOf(Trial(), 0, 1, 1);

  EXPECT_TRUE(log.provenance.complete);
  EXPECT_THAT(log.steps.step, ::testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(log.eval.step, ::testing::ElementsAre(0, 2, 3));
  EXPECT_EQ(log.eval.per_sequence_loss_nats.size(), 3u * 4u);
}

TEST(TrainRun, TakesSequencesOfOneToken) {
  const runlog::RunLog log = RunOf(Trial({"data.sequence_length=1"}), 1, 1, 2);

  EXPECT_TRUE(log.provenance.complete);
  EXPECT_TRUE(std::isfinite(log.steps.loss_nats.back()));
}

TEST(TrainRun, EndsAfterTheStepInWhichItIsStopped) {
  std::atomic<bool> stop{false};
  RunHooks hooks;
  hooks.on_step = [&](const runlog::StepRow& row) { stop = row.step == 2; };
  hooks.stop = &stop;

  const runlog::RunLog log = RunOf(Trial(), 0, 1, 1, hooks);

  EXPECT_FALSE(log.provenance.complete);
  EXPECT_THAT(log.steps.step, ::testing::ElementsAre(1, 2));
  EXPECT_EQ(log.events.back().kind, "interrupt");
}

TEST(ExecuteRuns, SideBySideGivesTheBitsOfRunsAlone) {
  const Experiment experiment = Trial({"parallel.workers=3"});
  const test_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
  const auto runs = PlanRuns(experiment);
  std::mutex mutex;
  std::map<size_t, std::vector<std::string>> traces;
  RunnerHooks hooks;
  hooks.on_finish = [&](size_t run, const runlog::RunLog& log) {
    const std::lock_guard lock(mutex);
    traces[run] = TraceOf(log);
  };

  const auto paths = ExecuteRuns(experiment, runs, CorpusOf(experiment), folder,
                                 Leftovers::kRefuse, hooks)
                         .logs;

  ASSERT_EQ(traces.size(), 4u);
  for (size_t run = 0; run < runs.size(); ++run) {
    const size_t arm = runs[run].arm - experiment.arms.data();
    EXPECT_EQ(traces[run], TraceOf(RunOf(experiment, arm, runs[run].seed, 1)))
        << runs[run].Name();
    EXPECT_EQ(paths[run], folder / (runs[run].Name() + ".h5"));
    EXPECT_TRUE(std::filesystem::exists(paths[run]));
  }
  EXPECT_NE(traces[0], traces[1]) << "arms";
  EXPECT_NE(traces[0], traces[2]) << "seeds";
}

TEST(ExecuteRuns, RefusesARecipeThatDoesNotFitBeforeTheFirstRun) {
  Experiment experiment = Trial();
  experiment.arms.back().exclude = {{"nowhere"}};  // behind its file's back
  const test_support::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path() / "runs";

  EXPECT_THAT(
      [&] {
        ExecuteRuns(experiment, PlanRuns(experiment), CorpusOf(experiment),
                    folder, Leftovers::kDiscard);
      },
      ::testing::ThrowsMessage<Error>(
          HasSubstr("exclude pattern `nowhere` matches none")));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(PlanRuns, PairsComeSeedBySeedAndUnknownArmsAreNamed) {
  const Experiment experiment = Trial();
  std::vector<std::string> names;
  for (const auto& run : PlanRuns(experiment)) names.push_back(run.Name());

  EXPECT_THAT(names, ::testing::ElementsAre("bf16-seed1", "mxfp8-seed1",
                                            "bf16-seed2", "mxfp8-seed2"));
  EXPECT_THAT([&] { PlanRuns(experiment, "fp8"); },
              ::testing::ThrowsMessage<Error>(
                  HasSubstr("Arms of this experiment: bf16, mxfp8.")));
}

}  // namespace
}  // namespace isoloss::train::trainer_test
