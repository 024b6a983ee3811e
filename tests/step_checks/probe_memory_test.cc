#include "isoloss/step_checks/probe_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "isoloss/base/error.h"
#include "isoloss/train/cost.h"
#include "step_checks/recorded_run.h"

namespace isoloss::step_checks::probe_memory_test {
namespace {

using isoloss::test_support::RecordedRun;
using isoloss::test_support::TinyExperiment;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const train::Experiment& experiment, int side_by_side) {
  try {
    CheckProbeMemory(experiment, experiment.arms.front(), {}, side_by_side);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ProbeMemory, CountsEveryValueOfARecord) {
  // No list of experts' rows is padded in BF16.
  for (const char* change :
       {"train.sequences_per_batch=4", "model.num_shared_experts=0",
        "model.tied_embeddings=true"}) {
    RecordedRun run(TinyExperiment({change}), /*arm=*/0);
    run.Step(1);
    size_t values = 0;
    for (const RecordedTensor* tensor : run.record.tensors()) {
      values += tensor->values.size();
    }
    for (size_t layer = run.experiment.model.n_dense_layers;
         layer < run.experiment.model.n_layers; ++layer) {
      const auto ids = run.record.ExpertIds("layers." + std::to_string(layer) +
                                            ".moe.router");
      values += ids.rows() * ids.cols();
    }

    EXPECT_EQ(EstimatedRecordBytes(run.experiment),
              static_cast<double>(values * sizeof(float)))
        << change;
  }
}

TEST(ProbeMemory, CountsMomentsUnlessTheyAreSampled) {
  train::Experiment experiment = TinyExperiment();
  const train::Arm& arm = experiment.arms.front();
  const double parameters = train::EstimatedParameters(experiment.model);
  const auto bytes = [&](int64_t steps) {
    return EstimatedProbeBytes(experiment, arm, {.steps = steps});
  };

  EXPECT_EQ(bytes(3) - bytes(1), parameters * 2 * sizeof(float));
  EXPECT_EQ(bytes(5) - bytes(1), parameters * (6 * sizeof(double) - 4));
  EXPECT_EQ(bytes(6), bytes(1000));  // the run has 6 steps

  experiment.train.sequences_per_batch = 1 << 24;  // a sampled step
  EXPECT_EQ(bytes(6), bytes(1));
}

TEST(ProbeMemory, CountsTwoRunsOfAReference) {
  const train::Experiment experiment = TinyExperiment();
  ProbeOptions options = {.reference = &experiment.arms.front()};
  const double run = train::EstimatedBytes(experiment);
  const double record = EstimatedRecordBytes(experiment);

  EXPECT_EQ(EstimatedProbeBytes(experiment, experiment.arms[1], options),
            2 * (run + record));
}

TEST(ProbeMemory, RefusesWhatFitsOnlyWithoutTheRecord) {
  train::Experiment experiment = TinyExperiment();
  EXPECT_EQ(Refusal(experiment, 1), "");

  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(sysconf(_SC_PAGESIZE));
  const train::Arm& arm = experiment.arms.front();
  while (EstimatedProbeBytes(experiment, arm, {}) <= memory) {
    experiment.train.sequences_per_batch *= 2;
  }

  // The run takes less than half of what the probe takes, which is less than
  // twice the memory.
  EXPECT_NO_THROW(
      train::CheckMemory(experiment, {.workers = 1, .side_by_side = 1}));
  EXPECT_THAT(
      Refusal(experiment, 1),
      AllOf(HasSubstr("experiment.toml: 1 probe of arm bf16 needs "
                      "about "),
            HasSubstr(" GiB, because a probe keeps all tensors of a "
                      "step, but this machine has "),
            HasSubstr("Lower train.sequences_per_batch, "
                      "data.sequence_length or the sizes of [model].")));
  EXPECT_THAT(Refusal(experiment, 2),
              AllOf(HasSubstr("2 probes side by side of arm bf16 need about"),
                    HasSubstr("parallel.workers")));
}

}  // namespace
}  // namespace isoloss::step_checks::probe_memory_test
