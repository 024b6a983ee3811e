#include "isoloss/foreign/run_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "isoloss/foreign/event_file.h"
#include "isoloss/foreign/read.h"

namespace isoloss::foreign {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Three steps, evaluations before the first and after the last.
runlog::RunLog ThreeSteps() {
  runlog::RunLog log;
  log.events = {{1'777'773'601.25, "start", ""}, {1'777'773'700, "finish", ""}};
  log.steps.step = {1, 2, 3};
  log.steps.loss_nats = {12.264423, 1.0 / 3, NAN};
  log.steps.grad_norm = {1.23456, INFINITY, 123456.5};
  log.steps.lr = {1e-5, 2e-5, 0};
  log.steps.tokens_per_second = {1234567.5, 999.4, NAN};
  log.steps.step_seconds = {0.5, 1.25, NAN};
  log.eval.step = {0, 3};
  log.eval.loss_nats = {5.54517744, 2.5};
  return log;
}

TEST(RunText, AsEventsHasTorchtitansTags) {
  const EventFile file =
      ParseEventFile(RunText(ThreeSteps(), RunForm::kTensorBoard), "events");

  EXPECT_EQ(file.note, "");
  EXPECT_EQ(file.records, 1u + 4 * 3 + 2);
  ASSERT_EQ(file.series.size(), 5u);
  const auto& loss = file.series.at("loss_metrics/global_avg_loss");
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_EQ(loss[0], (EventScalar{1, 1'777'773'601.75, double{12.264423F}}));
  EXPECT_EQ(loss[1], (EventScalar{2, 1'777'773'603.0, double{1.0F / 3}}));
  EXPECT_EQ(loss[2].wall_time, 1'777'773'603.0);
  EXPECT_TRUE(std::isnan(loss[2].value));
  EXPECT_EQ(file.series.at("grad_norm")[1].value, INFINITY);
  EXPECT_EQ(file.series.at("lr")[1].value, double{2e-5F});
  EXPECT_EQ(file.series.at("throughput(tps)")[0].value, 1234567.5);
  EXPECT_THAT(file.series.at("validation_metrics/loss"),
              ElementsAre(EventScalar{0, 1'777'773'601.25, double{5.54517744F}},
                          EventScalar{3, 1'777'773'603.0, 2.5}));
}

TEST(RunText, AsTorchtitansLinesIsRounded) {
  EXPECT_EQ(RunText(ThreeSteps(), RunForm::kTorchtitan),
            "[titan] 2026-05-03 02:00:01,250 - root - INFO - "
            "validate step:  0  loss:  5.5452\n"
            "[titan] 2026-05-03 02:00:01,750 - root - INFO - "
            "step:  1  loss: 12.26442  grad_norm:  1.2346  tps: 1,234,568\n"
            "[titan] 2026-05-03 02:00:03,000 - root - INFO - "
            "step:  2  loss:  0.33333  grad_norm:     inf  tps: 999\n"
            "[titan] 2026-05-03 02:00:03,000 - root - INFO - "
            "step:  3  loss:      nan  grad_norm: 123456.5000\n"
            "[titan] 2026-05-03 02:00:03,000 - root - INFO - "
            "validate step:  3  loss:  2.5000\n");
}

TEST(RunText, AsCsvHasEmptyCellsWhereNothingIs) {
  EXPECT_EQ(RunText(ThreeSteps(), RunForm::kWandbCsv),
            "_step,trainer/global_step,_timestamp,_runtime,"
            "loss_metrics/global_avg_loss,grad_norm,lr,throughput(tps),"
            "validation_metrics/loss\n"
            "0,0,1777773601.25,0,,,,,5.54517744\n"
            "1,1,1777773601.75,0.5,12.264423,1.23456,1e-05,1234567.5,\n"
            "2,2,1777773603,1.75,0.3333333333333333,Infinity,2e-05,999.4,\n"
            "3,3,1777773603,1.75,NaN,123456.5,0,NaN,2.5\n");
}

TEST(RunText, AsJsonLinesHasOnlyWhatIsThere) {
  const std::string text = RunText(ThreeSteps(), RunForm::kWandbJsonl);

  EXPECT_THAT(text, HasSubstr("{\"_step\":0,\"trainer/global_step\":0,"
                              "\"_timestamp\":1777773601.25,\"_runtime\":0,"
                              "\"validation_metrics/loss\":5.54517744}\n"));
  EXPECT_THAT(text,
              HasSubstr("\"_runtime\":1.75,\"loss_metrics/global_avg_loss\":"
                        "0.3333333333333333,\"grad_norm\":\"Infinity\","
                        "\"lr\":2e-05,\"throughput(tps)\":999.4}\n"));
}

TEST(RunText, LeavesOutColumnsThatTheLogLacks) {
  runlog::RunLog log;
  log.steps.step = {1};
  log.steps.loss_nats = {2.5};

  EXPECT_EQ(RunText(log, RunForm::kTorchtitan),
            "[titan] 1970-01-01 00:00:00,000 - root - INFO - "
            "step:  1  loss:  2.50000\n");
  EXPECT_EQ(RunText(log, RunForm::kWandbCsv),
            "_step,trainer/global_step,_timestamp,_runtime,"
            "loss_metrics/global_avg_loss\n1,1,0,0,2.5\n");
  EXPECT_EQ(
      ParseEventFile(RunText(log, RunForm::kTensorBoard), "e").series.size(),
      1u);
}

// What this module's own readers make of each text form. They know no step 0.
TEST(RunText, IsReadBack) {
  for (const RunForm form :
       {RunForm::kTorchtitan, RunForm::kWandbCsv, RunForm::kWandbJsonl}) {
    const std::vector<ForeignRun> runs = ParseLog(RunText(ThreeSteps(), form));
    ASSERT_EQ(runs.size(), 1u);
    const Series* loss = runs[0].Main(Quantity::kLoss);
    const Series* norm = runs[0].Main(Quantity::kGradNorm);
    const Series* eval = runs[0].Main(Quantity::kEvalLoss);
    ASSERT_TRUE(loss != nullptr && norm != nullptr && eval != nullptr);

    const bool rounded = form == RunForm::kTorchtitan;
    EXPECT_THAT(loss->step, ElementsAre(1, 2, 3));
    EXPECT_EQ(loss->value[1], rounded ? 0.33333 : 1.0 / 3);
    EXPECT_TRUE(std::isnan(loss->value[2]));
    EXPECT_EQ(norm->value[1], INFINITY);
    EXPECT_EQ(eval->step.back(), 3);
    EXPECT_EQ(eval->value.back(), 2.5);
    EXPECT_THAT(runs[0].step_unit, Not(HasSubstr("call")));
  }
}

}  // namespace
}  // namespace isoloss::foreign
