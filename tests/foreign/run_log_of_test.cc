#include "isoloss/foreign/run_log_of.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/read.h"
#include "isoloss/foreign/told.h"

namespace isoloss::foreign {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

runlog::RunLog LogOf(const std::string& text) {
  return RunLogOf(ParseLog(text).front());
}

TEST(RunLogOf, HasWhatTheLogTellsAndNothingElse) {
  const runlog::RunLog log = LogOf(
      "step,loss,grad_norm,lr,tokens_seen\n"
      "1,3.125,0.5,1e-4,100\n2,3.0000,0.25,1e-4,200\n");
  EXPECT_THAT(log.steps.step, ElementsAre(1, 2));
  EXPECT_THAT(log.steps.loss_nats, ElementsAre(3.125, 3));
  EXPECT_THAT(log.steps.grad_norm, ElementsAre(0.5, 0.25));
  EXPECT_THAT(log.steps.lr, ElementsAre(1e-4, 1e-4));
  EXPECT_THAT(log.steps.tokens_seen, ElementsAre(100, 200));
  EXPECT_THAT(log.steps.batch_digest, IsEmpty());
  EXPECT_TRUE(log.provenance.IsForeign());
  EXPECT_EQ(log.provenance.tokens_per_step, 100);
  EXPECT_EQ(log.provenance.steps_planned, 2);
  EXPECT_EQ(log.provenance.config_digest, "");
  EXPECT_TRUE(std::isnan(log.provenance.unigram_entropy_nats));
  EXPECT_DOUBLE_EQ(log.provenance.origin.loss_half_unit, 0.5e-4);
}

TEST(RunLogOf, LeavesOutWhatLacksAStep) {
  const runlog::RunLog log =
      LogOf("step,loss,grad_norm\n1,3.5,0.5\n2,3.25,\n3,3.0,0.5\n");
  EXPECT_THAT(log.steps.step, ElementsAre(1, 2, 3));
  EXPECT_THAT(log.steps.grad_norm, IsEmpty());
}

TEST(RunLogOf, CountsFromOne) {
  const runlog::RunLog log = LogOf("step,loss\n0,3.5\n10,3.25\n");
  EXPECT_THAT(log.steps.step, ElementsAre(1, 11));
  EXPECT_THAT(log.events, Contains(Field(&runlog::Event::text,
                                         HasSubstr("first step is 0"))));
}

TEST(RunLogOf, NeedsATrainingLoss) {
  try {
    LogOf("step,accuracy,val_loss\n1,0.5,3\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("`accuracy`"));
    EXPECT_THAT(error.what(), HasSubstr("--loss"));
  }
}

TEST(SplitName, FindsTheSeed) {
  const auto is = [](const std::string& name, const std::string& arm,
                     int64_t seed) {
    const ArmAndSeed found = SplitName(name);
    EXPECT_EQ(found.arm, arm) << name;
    EXPECT_EQ(found.seed, seed) << name;
  };
  is("fp8-seed3", "fp8", 3);
  is("bf16_s12", "bf16", 12);
  is("8b mxfp8 run 2", "8b mxfp8", 2);
  is("bf16/seed=7", "bf16", 7);
  // A digit alone may belong to the name, and a seed alone is no arm.
  is("fp8", "fp8", -1);
  is("bf16", "bf16", -1);
  is("loss1", "loss1", -1);
  is("seed3", "seed3", -1);
  is("fp8-seed99999999999999999999", "fp8-seed99999999999999999999", -1);
  is("", "", -1);
}

/// "global batch size 128" of what a log tells of its batches at its last step.
std::vector<std::string> BatchesOf(const std::string& text) {
  std::vector<std::string> facts;
  for (const auto& number : LogOf(text).told.numbers) {
    facts.push_back(fmt::format("{} {} at {}", number.name, number.value.back(),
                                number.step.back()));
  }
  return facts;
}

TEST(BatchFacts, AreKnownByEachUsualName) {
  for (const char* name :
       {"consumed_samples", "consumed-samples", "train/consumed_samples",
        "Consumed Samples", "samples_seen", "time/sample"}) {
    EXPECT_EQ(BatchFactNamed(name), "samples seen") << name;
  }
  for (const char* name :
       {"global batch size", "global_batch_size", "trainer/global_batch_size",
        "gbs", "total_train_batch_size"}) {
    EXPECT_EQ(BatchFactNamed(name), "global batch size") << name;
  }
  EXPECT_EQ(BatchFactNamed("num_input_tokens_seen"), "tokens seen");
  EXPECT_EQ(BatchFactNamed("world-size"), "world size");
  EXPECT_EQ(BatchFactNamed("max_seq_len"), "sequence length");
  EXPECT_EQ(BatchFactNamed("gradient_accumulation_steps"),
            "gradient accumulation steps");
  // What a rank takes at once may differ.
  EXPECT_EQ(BatchFactNamed("micro_batch_size"), "");
  EXPECT_EQ(BatchFactNamed("samples_per_second"), "");
}

TEST(BatchFacts, AreReadFromColumnsAndFields) {
  EXPECT_THAT(
      BatchesOf("step,loss,consumed_samples,world_size\n"
                "1,3,128,8\n2,2.9,256,8\n"),
      UnorderedElementsAre("samples seen 256 at 2", "world size 8 at 2"));
  EXPECT_THAT(
      BatchesOf(" iteration 1/ 2 | consumed samples: 128 | global batch size: "
                "128 | lm loss: 3.5E+00 | number of nan iterations: 0 |\n"
                " iteration 2/ 2 | consumed samples: 256 | global batch size: "
                "128 | lm loss: 3.4E+00 | number of nan iterations: 0 |\n"),
      UnorderedElementsAre("samples seen 256 at 2",
                           "global batch size 128 at 2"));
  // Steps are counted from 1, here as there.
  EXPECT_THAT(BatchesOf("step,loss,gbs\n0,3,8\n1,2.9,8\n"),
              ElementsAre("global batch size 8 at 2"));
}

TEST(BatchFacts, AreReadFromSettings) {
  EXPECT_THAT(
      BatchesOf("[titan] - INFO - Training starts at step 1, with local batch "
                "size 8, global batch size 64, sequence length 2048, total "
                "steps 1000 (warmup 200)\n"
                "[titan] - INFO - step:  1  loss:  3.86  grad_norm: 1.0\n"),
      UnorderedElementsAre("global batch size 64 at 0",
                           "sequence length 2048 at 0"));
  EXPECT_THAT(
      BatchesOf("  global_batch_size ............................... 128\n"
                "  micro_batch_size ................................ 4\n"
                "  world_size ...................................... 8\n"
                " iteration 1/ 2 | lm loss: 3.5E+00 | number of nan "
                "iterations: 0 |\n"),
      UnorderedElementsAre("global batch size 128 at 0", "world size 8 at 0"));
  EXPECT_THAT(
      BatchesOf("[INFO] >>   Total train batch size (w. parallel) = 64\n"
                "[INFO] >>   Gradient Accumulation steps = 8\n"
                "step:  1  loss:  3.86  grad_norm: 1.0\n"),
      UnorderedElementsAre("global batch size 64 at 0",
                           "gradient accumulation steps 8 at 0"));
  EXPECT_THAT(BatchesOf("{\"seq_len\": 512}\n{\"step\": 1, \"loss\": 3}\n"
                        "{\"step\": 2, \"loss\": 2}\n"),
              ElementsAre("sequence length 512 at 0"));
  // A restart on other machines: nobody knows which holds.
  EXPECT_THAT(BatchesOf("world size: 8\nstep:  1  loss:  3.86  norm: 1.0\n"
                        "world size: 16\nstep:  2  loss:  3.8  norm: 1.0\n"),
              IsEmpty());
}

}  // namespace
}  // namespace isoloss::foreign
