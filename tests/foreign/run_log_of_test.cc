#include "isoloss/foreign/run_log_of.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/foreign/read.h"

namespace isoloss::foreign {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace isoloss::foreign
