// A NaN ends the arm: its log says where it came from, and the newest
// checkpoint stays one from before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/checkpoint/checkpoint.h"
#include "isoloss/runlog/reader.h"
#include "kept_runs.h"
#include "support/temporary_folder.h"

namespace isoloss::train::nan_run_test {
namespace {

namespace fs = std::filesystem;
using isoloss::test_support::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Manner kOneProcess = {.ranks = 4};
const Manner kTwoProcesses = {
    .ranks = 4, .transport = "memory", .processes = 2};

auto PutNan(int64_t step, const std::string& parameter) {
  return [=](int64_t now, model::ParameterSet& values) {
    if (now == step) values.ByName(parameter).values.data()[0] = kNan;
  };
}

/// The step of the newest checkpoint, which must be whole; 0 if there is none.
int64_t NewestCheckpoint(const fs::path& folder) {
  const checkpoint::Found found =
      checkpoint::FindNewest(PathsIn(folder).Checkpoints());
  EXPECT_THAT(found.notes, IsEmpty());
  return found.checkpoint ? found.checkpoint->step() : 0;
}

/// The run ended at `step` with a mark, in memory and on disk.
void ExpectAborted(const runlog::RunLog& log, const fs::path& folder,
                   int64_t step, const std::string& first) {
  for (const runlog::RunLog& found :
       {log, runlog::ReadRunLog(PathsIn(folder).Log())}) {
    EXPECT_FALSE(found.provenance.complete);
    EXPECT_THAT(found.steps.step, SizeIs(step));
    EXPECT_EQ(found.steps.step.back(), step);
    EXPECT_TRUE(std::isnan(found.steps.grad_norm.back()));
    EXPECT_EQ(found.events.back().kind, "abort");
    EXPECT_THAT(found.events.back().text,
                StartsWith(fmt::format("step {}: loss ", step)));
    EXPECT_THAT(found.events.back().text, HasSubstr("First: " + first + ": "));
    EXPECT_THAT(EventsOf(found, "finish"), IsEmpty());
  }
  EXPECT_FALSE(fs::exists(PathsIn(folder).Journal()));
}

/// Where a NaN gets into a gradient, and the tensor that is named.
struct Entrance {
  std::string label;
  std::string parameter;
  std::string first;
  int64_t step = 5;
  Manner manner = kOneProcess;
  bool before_the_sum = false;
};
void PrintTo(const Entrance& entrance, std::ostream* out) {
  *out << entrance.label;
}

class NanGradientTest : public ::testing::TestWithParam<Entrance> {};

TEST_P(NanGradientTest, EndsTheRunAndChangesNoWeight) {
  const Entrance& entrance = GetParam();
  const TemporaryFolder folder;
  std::mutex mutex;
  std::vector<int64_t> seen;
  std::vector<int64_t> updated;
  std::string weights_before = "";
  RunHooks hooks;
  auto& hook =
      entrance.before_the_sum ? hooks.after_backward : hooks.before_update;
  hook = PutNan(entrance.step, entrance.parameter);
  hooks.on_step = [&](const runlog::StepRow& row) {
    const std::lock_guard lock(mutex);
    seen.push_back(row.step);
  };
  hooks.after_update = [&](int64_t step, model::ParameterSet& weights,
                           MatrixView<float>) {
    const std::lock_guard lock(mutex);
    updated.push_back(step);
    weights_before = DigestToHex(weights.Digest());
  };

  const runlog::RunLog log = Execute(
      {.folder = folder.path(), .manner = entrance.manner, .hooks = hooks});

  ExpectAborted(log, folder.path(), entrance.step, entrance.first);
  EXPECT_FALSE(std::isnan(log.steps.loss_nats.back()));
  EXPECT_GT(log.steps.nonfinite_gradients.back(), 0);
  EXPECT_EQ(NewestCheckpoint(folder.path()), (entrance.step - 1) / 3 * 3);
  EXPECT_EQ(seen.back(), entrance.step);
  if (entrance.step > 1) {
    EXPECT_EQ(updated.back(), entrance.step - 1);
    if (entrance.manner.processes == 1) {
      EXPECT_EQ(log.provenance.final_weights_digest, weights_before);
    }
  } else {
    EXPECT_THAT(updated, IsEmpty());
    EXPECT_EQ(log.provenance.final_weights_digest,
              log.provenance.initial_weights_digest);
  }

  // It has ended: nothing goes on from it.
  ExpectSame(
      Execute(
          {.folder = folder.path(), .manner = entrance.manner, .resume = true}),
      log, folder.path());
}

constexpr const char* kExpert =
    "layers.1.moe.routed_experts.inner_experts.w2_EDF";
constexpr const char* kExpertWgrad = "layers.1.moe.routed_experts.w2_wgrad";

INSTANTIATE_TEST_SUITE_P(
    Entrances, NanGradientTest,
    ::testing::Values(
        Entrance{"norm", "norm.weight", "norm_wgrad"},
        Entrance{"first_step", "lm_head.weight", "lm_head_wgrad", 1},
        Entrance{"at_a_checkpoint", "norm.weight", "norm_wgrad", 6},
        Entrance{"last_step", "norm.weight", "norm_wgrad", kSteps},
        Entrance{"expert", kExpert, kExpertWgrad},
        Entrance{"before_the_sum", kExpert, kExpertWgrad, 4, kOneProcess, true},
        Entrance{"two_processes", "norm.weight", "norm_wgrad", 5,
                 kTwoProcesses},
        Entrance{"expert_of_two_processes", kExpert, kExpertWgrad, 5,
                 kTwoProcesses}),
    [](const auto& entrance) { return entrance.param.label; });

/// An update that leaves a NaN behind: the step itself was good.
runlog::RunLog RunWithNanWeight(
    int64_t step, const fs::path& folder, const Manner& manner,
    const std::string& parameter = "layers.0.attention.wo.weight") {
  RunHooks hooks;
  hooks.after_update = [=](int64_t now, model::ParameterSet& weights,
                           MatrixView<float>) {
    PutNan(step, parameter)(now, weights);
  };
  return Execute({.folder = folder, .manner = manner, .hooks = hooks});
}

class NanWeightTest : public ::testing::TestWithParam<Manner> {};

TEST_P(NanWeightTest, NeverReachesACheckpoint) {
  const TemporaryFolder folder;

  const runlog::RunLog log = RunWithNanWeight(6, folder.path(), GetParam());

  ExpectAborted(log, folder.path(), 7, "layers.0.attention.wo_weight");
  EXPECT_TRUE(std::isnan(log.steps.loss_nats.back()));
  EXPECT_EQ(NewestCheckpoint(folder.path()), 3);
  EXPECT_FALSE(
      fs::exists(PathsIn(folder.path()).Checkpoints() / "step-000006"));
  EXPECT_THAT(EventsOf(log, "damage"),
              ElementsAre("no checkpoint at step 6: "
                          "weights.layers.0.attention.wo.weight is not "
                          "finite"));
}

TEST_P(NanWeightTest, OfAnExpertNeverReachesACheckpoint) {
  const TemporaryFolder folder;

  const runlog::RunLog log =
      RunWithNanWeight(6, folder.path(), GetParam(), kExpert);

  ExpectAborted(log, folder.path(), 7, "layers.1.moe.routed_experts.w2_weight");
  EXPECT_EQ(NewestCheckpoint(folder.path()), 3);
}

TEST_P(NanWeightTest, LeavesNoCheckpointIfItIsTheFirst) {
  const TemporaryFolder folder;

  const runlog::RunLog log = RunWithNanWeight(3, folder.path(), GetParam());

  ExpectAborted(log, folder.path(), 4, "layers.0.attention.wo_weight");
  EXPECT_EQ(NewestCheckpoint(folder.path()), 0);
}

INSTANTIATE_TEST_SUITE_P(Manners, NanWeightTest,
                         ::testing::Values(kOneProcess, kTwoProcesses),
                         [](const auto& manner) {
                           return fmt::format("n{}", manner.param.processes);
                         });

/// A stop asks for a checkpoint, too. What goes on later does so from before
/// the NaN, whose cause may be gone.
TEST(NanWeight, IsNotWhatAStoppedRunGoesOnFrom) {
  const TemporaryFolder folder;
  // Its digests would show the NaN in the step itself, and the recorded step
  // could not be computed again.
  const std::vector<std::string> unheard = {"log.digests_first=0",
                                            "log.statistics_first=0",
                                            "log.statistics_every=0"};
  Execution execution = {.folder = folder.path(),
                         .manner = kOneProcess,
                         .stop_after = 4,
                         .overrides = unheard};
  Execute(execution);
  execution.resume = true;
  execution.stop_after = 5;
  execution.hooks.after_update = [](int64_t now, model::ParameterSet& weights,
                                    MatrixView<float>) {
    PutNan(5, "norm.weight")(now, weights);
  };
  Execute(execution);

  EXPECT_EQ(NewestCheckpoint(folder.path()), 4);
  execution.hooks = {};
  execution.stop_after = kSteps;
  const runlog::RunLog log = Execute(execution);

  EXPECT_TRUE(log.provenance.complete);
  EXPECT_TRUE(std::isfinite(log.steps.loss_nats.back()));
  EXPECT_THAT(EventsOf(log, "resume").back(),
              HasSubstr("from step 4; 5 steps"));
}

}  // namespace
}  // namespace isoloss::train::nan_run_test
