// Lines as trainers print them today, one sample of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/read.h"

namespace isoloss::foreign::trainers_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ForeignRun Only(const std::string& text, const ReadOptions& options = {}) {
  std::vector<ForeignRun> runs = ParseLog(text, options);
  EXPECT_EQ(runs.size(), 1u);
  return runs.front();
}

const Series& Of(const ForeignRun& run, const std::string& name) {
  const Series* series = run.Find(name);
  EXPECT_NE(series, nullptr) << name;
  static const Series kNone;
  return series == nullptr ? kNone : *series;
}

TEST(Nemo, CountsUpdatesOfAllEpochs) {
  const ForeignRun run = Only(
      "Training epoch 0, iteration 1/1 | lr: 1e-05 | global_step: 1 | "
      "reduced_train_loss: 10.9 | train_step_timing in s: 0.45\n"
      "Validation: iteration 1/5\n"
      "Training epoch 1, iteration 0/1 | lr: 2e-05 | global_step: 2 | "
      "reduced_train_loss: nan | train_step_timing in s: 0.45\n");
  EXPECT_EQ(run.format, "nemo");
  EXPECT_THAT(Of(run, "reduced_train_loss").step, ElementsAre(2, 3));
  EXPECT_TRUE(std::isnan(run.Main(Quantity::kLoss)->value[1]));
  EXPECT_THAT(Of(run, "lr").value, ElementsAre(1e-5, 2e-5));
  EXPECT_EQ(run.steps_planned, 4);
}

TEST(ProgressBars, GiveTheLastStateOfEachStep) {
  const ForeignRun run = Only(
      "Epoch 0: :  1%|#  | 1/500 [00:12<1:00, loss=9.2, "
      "reduced_train_loss=9.10, global_step=0.000]\r"
      "Epoch 0: :  1%|#  | 2/500 [00:12<1:00, loss=9.2, "
      "reduced_train_loss=9.10, global_step=0.000]\r"
      "Epoch 0: :  1%|#  | 2/500 [00:12<1:00, loss=9.1, "
      "reduced_train_loss=9.00, global_step=1.000]\r"
      "Epoch 0: :  2%|#  | 3/500 [00:12<1:00, loss=9.1, "
      "reduced_train_loss=9.00, global_step=1.000]\r"
      "Epoch 0: :  2%|#  | 3/500 [00:12<1:00, loss=9.1, "
      "reduced_train_loss=8.90, global_step=1e+4]\n");
  EXPECT_EQ(run.format, "progress_bars");
  EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(1, 2, 3));
  EXPECT_THAT(run.Main(Quantity::kLoss)->value, ElementsAre(9.1, 9, 8.9));
  EXPECT_EQ(run.steps_planned, 500);
}

TEST(HuggingFaceStdout, TakesStepsFromTheBarBehindEachLine) {
  const ForeignRun run = Only(
      "Map: 100%|##| 50/50 [00:00<00:00, 9.9it/s]\n"
      "  0%|   | 0/40 [00:00<?, ?it/s]\r      \r"
      "{'loss': '5.5', 'grad_norm': '1.25', 'epoch': '0.25'}\n"
      " 25%|#  | 10/40 [00:01<00:02, 5.0it/s]\r"
      "100%|## | 3/3 [00:00<00:00, 9.0it/s]\n"
      "{'eval_loss': 5.25, 'eval_runtime': 1.5, 'epoch': 0.25}\n"
      " 25%|#  | 10/40 [00:01<00:02, 5.0it/s]\r      \r"
      "{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.5}\n"
      " 50%|## | 20/40 [00:01<00:02, 5.0it/s]\n"
      "{'train_runtime': 4.0, 'train_loss': 3.0, 'epoch': 0.5}\n");
  EXPECT_EQ(run.format, "hugging_face_stdout");
  EXPECT_THAT(Of(run, "loss").step, ElementsAre(10, 20));
  EXPECT_EQ(Of(run, "loss").value[0], 5.5);
  EXPECT_TRUE(std::isnan(Of(run, "loss").value[1]));
  EXPECT_THAT(Of(run, "eval_loss").step, ElementsAre(10));
  EXPECT_EQ(run.steps_planned, 40);
}

TEST(HuggingFaceStdout, CountsLinesWhereNothingTellsTheStep) {
  const std::string lines =
      "{'loss': 5.5, 'epoch': 0.1}\n{'loss': 5.0, 'epoch': 0.2}\n";
  ForeignRun run = Only(lines);
  EXPECT_THAT(Of(run, "loss").step, ElementsAre(1, 2));
  EXPECT_EQ(run.step_unit, "log line");
  EXPECT_THAT(run.notes, Contains(HasSubstr("The lines have no step")));

  EXPECT_THROW(ParseLog(lines + lines), Error);

  // A buffered stream shows the bar of a later step, so it is not believed.
  run = Only("| 10/100 [00:01<00:02]\n| 40/100 [00:01<00:02]\n" + lines);
  EXPECT_EQ(run.step_unit, "log line");
}

TEST(HuggingFaceStdout, TakesTheOnlyIntervalThatFitsTheEpochs) {
  const std::string lines =
      "{'loss': 5.5, 'epoch': 0.25}\n{'loss': 5.0, 'epoch': 0.5}\n"
      "{'loss': 4.5, 'epoch': 0.75}\n{'loss': 4.0, 'epoch': 1.0}\n"
      "{'train_runtime': 4.0, 'train_loss': 3.0, 'epoch': 1.02}\n";
  ForeignRun run = Only("  Total optimization steps = 41\n" + lines);
  EXPECT_THAT(Of(run, "loss").step, ElementsAre(10, 20, 30, 40));
  EXPECT_EQ(run.step_unit, "step");
  run = Only("  Total optimization steps = 1,003\n" + lines);
  EXPECT_EQ(run.step_unit, "log line");
}

TEST(Nanochat, CountsFromZeroAndSmooths) {
  const ForeignRun run = Only(
      "Step 00000 | Validation bpb: 3.2\n"
      "step 00000/21400 (0.00%) | loss: 11.0 | lrm: 1.00 | tok/sec: 1,234\n"
      "step 00001/21400 (0.00%) | loss: 10.5 | lrm: 1.00 | tok/sec: 1,235\n");
  EXPECT_EQ(run.format, "nanogpt");
  EXPECT_THAT(Of(run, "loss").step, ElementsAre(1, 2));
  EXPECT_EQ(Of(run, "loss").averaging, Averaging::kSmoothed);
  EXPECT_THAT(Of(run, "tok/sec").value, ElementsAre(1234, 1235));
  EXPECT_THAT(Of(run, "Validation bpb").step, ElementsAre(0));
  EXPECT_EQ(run.steps_planned, 21400);
}

TEST(Verl, HasNumbersOfNumpy) {
  const ForeignRun run = Only(
      "(TaskRunner pid=7) step:1 - actor/pg_loss:np.float64(-1.5e-05) - "
      "val-core/openai/gsm8k/acc/mean@1:0.5 - actor/lr:1e-06\n"
      "(TaskRunner pid=7) step:2 - actor/pg_loss:0.25 - actor/lr:1e-06\n");
  EXPECT_THAT(Of(run, "actor/pg_loss").value, ElementsAre(-1.5e-5, 0.25));
  EXPECT_THAT(Of(run, "val-core/openai/gsm8k/acc/mean@1").step, ElementsAre(1));
}

TEST(Olmo, HasBlocksBehindPrefixes) {
  const ForeignRun run = Only(
      "2026-01-01T00:00:00Z 2026 INFO\t[step=1/???,epoch=1,eta=1:20:33]\n"
      "2026-01-01T00:00:00Z     train/CE loss=10.90\n"
      "2026-01-01T00:00:00Z     throughput/total tokens=65,536\n"
      "2026-01-01T00:00:00Z 2026 INFO\t[step=2/???,epoch=1,eta=1:20:33]\n"
      "2026-01-01T00:00:00Z     train/CE loss=10.80\n");
  EXPECT_THAT(Of(run, "train/CE loss").value, ElementsAre(10.9, 10.8));
  EXPECT_EQ(run.Main(Quantity::kTokensSeen)->value[0], 65536);
  EXPECT_EQ(run.Find("eta"), nullptr);
}

TEST(MaxText, TellsStepsOfEvaluationsApart) {
  const ForeignRun run = Only(
      "Config param steps: 3\n"
      "completed step: 0, seconds: 1.2, total_weights: 8, loss: 5.000, "
      "lm_loss: 4.990\n"
      "Completed eval step: 7, seconds: 0.1, running loss=4.9\n"
      "Completed eval after train step 0, loss=4.800, perplexity=121.5\n"
      "completed step: 1, seconds: 1.2, total_weights: 8, loss: 4.900, "
      "lm_loss: 4.890\n");
  EXPECT_THAT(Of(run, "loss").step, ElementsAre(1, 2));
  EXPECT_THAT(Of(run, "validation loss").value, ElementsAre(4.8));
  EXPECT_THAT(Of(run, "validation perplexity").step,
              testing::ElementsAreArray(Of(run, "validation loss").step));
  EXPECT_EQ(run.Find("validation running loss"), nullptr);
  EXPECT_EQ(run.steps_planned, 3);
}

}  // namespace
}  // namespace isoloss::foreign::trainers_test
