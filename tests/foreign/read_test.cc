#include "isoloss/foreign/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "event_file_bytes.h"
#include "isoloss/base/error.h"

namespace isoloss::foreign {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ForeignRun Only(const std::string& text) {
  std::vector<ForeignRun> runs = ParseLog(text);
  EXPECT_EQ(runs.size(), 1u);
  return runs.front();
}

const Series& Loss(const ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  EXPECT_NE(loss, nullptr);
  static const Series kNone;
  return loss == nullptr ? kNone : *loss;
}

std::string ErrorOf(const std::string& text) {
  try {
    ParseLog(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Torchtitan, IsReadWithColoursRanksAndValidation) {
  const std::string time = "[titan] 2026-05-03 02:00:01,123 - root - INFO - ";
  const ForeignRun run = Only(
      "[rank0]:" + time +
      "\x1B[31mstep:  1\x1B[32m  loss: 12.26442\x1B[39m  grad_norm:  1.2345  "
      "memory:  1.04GiB(1.09%)  tps: 1,234  tflops: 0.10  mfu: N/A\n"
      "[rank1]:" +
      time + "step:  1  loss: 12.26442  grad_norm:  1.2345\n" + time +
      "step: 10  loss:      nan  grad_norm:     inf  tps: 2,345\n" + time +
      "validate step: 10  loss:  3.5012  tps: 5\n");
  EXPECT_EQ(run.format, "torchtitan");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 10));
  EXPECT_EQ(Loss(run).value[0], 12.26442);
  EXPECT_TRUE(std::isnan(Loss(run).value[1]));
  EXPECT_EQ(Loss(run).copies, 1);
  EXPECT_EQ(Loss(run).digits.decimals, 5);
  EXPECT_EQ(run.Main(Quantity::kGradNorm)->value[1], INFINITY);
  EXPECT_THAT(run.Main(Quantity::kTokensPerSecond)->value,
              ElementsAre(1234, 2345));
  EXPECT_THAT(run.Main(Quantity::kEvalLoss)->value, ElementsAre(3.5012));
}

TEST(LossTable, IsReadWithComments) {
  const ForeignRun run = Only(
      "# config: debug\n# step loss grad_norm\n1 8.1313037872314453 1.5\n"
      "2 7.9 870000.0\n");
  EXPECT_EQ(run.format, "loss_table");
  EXPECT_THAT(Loss(run).value, ElementsAre(8.1313037872314453, 7.9));
  EXPECT_TRUE(Loss(run).digits.exact());
}

TEST(Megatron, MissesALossThatWasNaN) {
  const ForeignRun run = Only(
      "[default7]: [2026-01-01 00:00:00] iteration        5/     100 | "
      "consumed "
      "samples:          640 | elapsed time per iteration (ms): 19068.3 | "
      "learning rate: 1.0E-04 | lm loss: 1.087423E+01 | grad norm: 2.345 | "
      "number of skipped iterations:   0 |\n"
      " iteration       10/     100 | learning rate: 1.0E-04 | grad norm: nan "
      "| "
      "number of skipped iterations:   0 |\n"
      " iteration       15/     100 | number of skipped iterations:   5 |\n"
      " validation loss at iteration 15 | lm loss value: 8.889540E+00 | lm "
      "loss "
      "PPL: 7.255679E+03 |\n");
  EXPECT_EQ(run.format, "megatron");
  EXPECT_THAT(Loss(run).step, ElementsAre(5, 10));
  EXPECT_EQ(Loss(run).value[0], 10.87423);
  EXPECT_TRUE(std::isnan(Loss(run).value[1]));
  EXPECT_EQ(Loss(run).averaging, Averaging::kIntervalMean);
  EXPECT_EQ(run.Main(Quantity::kEvalLoss)->value[0], 8.88954);
  EXPECT_EQ(run.Find("consumed samples")->value[0], 640);
}

TEST(MegatronGolden, IsReadInBothLayouts) {
  const ForeignRun old = Only(
      R"({"lm loss": {"start_step": 0, "end_step": 3, "step_interval": 5,
          "values": [10.84, 10.7, "nan"]}, "iteration_timing_avg": 0.1})");
  EXPECT_EQ(old.format, "megatron_golden");
  EXPECT_THAT(Loss(old).step, ElementsAre(1, 6));
  const ForeignRun recent = Only(
      R"({"lm loss": {"start_step": 1, "end_step": 10, "step_interval": 5,
          "values": {"1": 10.91103, "10": 10.6, "5": "nan"}}})");
  EXPECT_THAT(Loss(recent).step, ElementsAre(1, 10));
  EXPECT_EQ(Loss(recent).digits.decimals, 5);
}

TEST(MegatronBridgeGolden, CountsFromZero) {
  const ForeignRun run = Only(
      R"({"0": {"lm loss": 12.5}, "1": {"lm loss": 12.25}, "alloc": 1.0})");
  EXPECT_EQ(run.format, "megatron_bridge_golden");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2));
}

TEST(HuggingFace, SaysNaNWhereTheFilterHidIt) {
  const ForeignRun run = Only(
      R"({"log_history": [{"loss": 0.0, "grad_norm": NaN, "step": 10},
          {"loss": 2.5, "grad_norm": 1.0, "step": 20}, {"eval_loss": 2.75,
          "step": 20}, {"train_loss": 1.0, "step": 20}]})");
  EXPECT_TRUE(std::isnan(Loss(run).value[0]));
  EXPECT_THAT(Loss(run).step, ElementsAre(10, 20));
  EXPECT_EQ(Loss(run).averaging, Averaging::kIntervalMean);
  EXPECT_THAT(run.Main(Quantity::kEvalLoss)->value, ElementsAre(2.75));
  EXPECT_THAT(ErrorOf("{'loss': 8.3, 'grad_norm': nan, 'epoch': 0.01}\n"),
              HasSubstr("trainer_state.json"));
}

TEST(Mllog, KnowsLossFromAccuracy) {
  const std::string head =
      R"(0: :::MLLOG {"key": "submission_benchmark", "value": "llama31_8b"})"
      "\n[1,0]<stdout>:"
      R"(:::MLLOG {"key": "seed", "value": 7, "metadata": {}})"
      "\nprogress\r";
  const ForeignRun run = Only(
      head +
      R"(:::MLLOG {"key": "tracked_stats", "value": {"reduced_train_loss": 5.5,
)" + "\n" +
      R"(:::MLLOG {"key": "train_loss", "value": 5.25, "metadata": {"samples_count": 1152.0}})"
      "\n"
      R"(:::MLLOG {"key": "eval_accuracy", "value": 3.5, "metadata": {"epoch_num": 12288}})"
      "\n");
  EXPECT_EQ(run.seed, 7);
  EXPECT_EQ(run.step_unit, "sample");
  EXPECT_THAT(Loss(run).step, ElementsAre(1152));
  EXPECT_THAT(run.Main(Quantity::kEvalLoss)->step, ElementsAre(12288));
}

TEST(WandbChart, HasSeveralRunsAndSaysWhatIsABucket) {
  const auto runs = ParseLog(
      "\"Step\",\"a - b - loss\",\"a - b - loss__MIN\",\"a - b - loss__MAX\","
      "\"c - loss\",\"c - loss__MIN\",\"c - loss__MAX\"\n"
      "\"0\",\"3.5\",\"3.5\",\"3.5\",\"\",\"\",\"\"\n"
      "\"1\",\"3.25\",\"3.25\",\"3.25\",\"3.0\",\"2.5\",\"3.5\"\n");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].name, "a - b");
  EXPECT_EQ(runs[0].format, "wandb_chart");
  EXPECT_THAT(Loss(runs[0]).step, ElementsAre(0, 1));
  EXPECT_EQ(Loss(runs[0]).averaging, Averaging::kInstant);
  EXPECT_THAT(Loss(runs[1]).value, ElementsAre(3.0));
  EXPECT_EQ(Loss(runs[1]).averaging, Averaging::kBucketMean);
}

TEST(Csv, OfLightningCountsFromZero) {
  const ForeignRun run = Only(
      "epoch,lr-AdamW,step,train_loss_epoch,train_loss_step\r\n"
      ",0.001,49,,\r\n0,,49,,2.5\r\n0,,99,,2.25\r\n0,,99,2.4,\r\n");
  EXPECT_EQ(run.format, "lightning");
  EXPECT_EQ(Loss(run).name, "train_loss_step");
  EXPECT_THAT(Loss(run).step, ElementsAre(50, 100));
}

TEST(Csv, RefusesRowsOfOtherLengths) {
  EXPECT_THAT(Loss(Only("step\tloss\n1\t2.5\n2")).step, ElementsAre(1));
  EXPECT_THAT(ErrorOf("step,loss\n1,2.5\n2\n3,2.0\n"), HasSubstr("row 3"));
  EXPECT_THAT(ErrorOf("Name,State,step,loss\nx,finished,5,2.0\n"),
              HasSubstr("a run in each row"));
}

TEST(JsonLines, AreReadWithSparseKeys) {
  const ForeignRun run = Only(
      "{\"_step\": 0, \"train\": {\"loss\": 3.5}, \"_runtime\": 1}\n"
      "{\"_step\": 1, \"val/loss\": \"NaN\"}\n"
      "{\"_step\": 2, \"train\": {\"loss\": NaN}}\n{\"_step\": 3, \"tr");
  EXPECT_EQ(run.format, "json_lines");
  EXPECT_EQ(run.step_unit, "log call");
  EXPECT_THAT(Loss(run).step, ElementsAre(0, 2));
  EXPECT_TRUE(std::isnan(Loss(run).value[1]));
}

TEST(NanoGpt, AndItsRelativesCountFromZero) {
  const ForeignRun run = Only(
      "step 0: train loss 4.2874, val loss 4.2823\n"
      "iter 0: loss 4.2649, time 28518.92ms, mfu -100.00%\n"
      "iter 10: loss 3.1000, time 12.50ms, mfu 30.00%\n");
  EXPECT_EQ(run.format, "nanogpt");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 11));
  EXPECT_THAT(run.Main(Quantity::kEvalLoss)->step, ElementsAre(0));
  const ForeignRun llm_c =
      Only("s:0 tel:11.0\ns:0 trl:10.9876 lr:0.000600 norm:1.23\n");
  EXPECT_THAT(Loss(llm_c).value, ElementsAre(10.9876));
  const ForeignRun modded = Only(
      "print(f\"step:{step}/{steps} val_loss:{val_loss:.4f}\")\n"
      "step:125/1480 val_loss:3.2786 train_time:1ms step_avg:1ms\n"
      "step:126/1480 train_time:2ms step_avg:1ms\n");
  EXPECT_THAT(modded.Main(Quantity::kEvalLoss)->value, ElementsAre(3.2786));
}

TEST(DeepSpeed, HasLossAndLearningRate) {
  const ForeignRun run = Only(
      "steps: 10 loss: 5.1234 iter time (s): 0.512 samples/sec: 31.25\n"
      "[2026-01-01] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, "
      "skipped=4, lr=[0.0001], mom=[(0.9, 0.95)]\n");
  EXPECT_EQ(run.format, "deepspeed");
  EXPECT_THAT(Loss(run).value, ElementsAre(5.1234));
  EXPECT_THAT(run.Main(Quantity::kLearningRate)->value, ElementsAre(1e-4));
}

TEST(EventFile, HasASeriesForEachTag) {
  const ForeignRun run =
      Only(isoloss::testing::VersionRecord() +
           isoloss::testing::SimpleEvent(0, "train/loss", 4.5F) +
           isoloss::testing::SimpleEvent(10, "train/loss", 3.25F) +
           isoloss::testing::SimpleEvent(-1, "lr", 0.5F));
  EXPECT_EQ(run.format, "tensorboard");
  EXPECT_THAT(Loss(run).step, ElementsAre(0, 10));
  EXPECT_THAT(Loss(run).value, ElementsAre(4.5, 3.25));
  EXPECT_TRUE(Loss(run).digits.exact());
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("negative step")));
  EXPECT_THAT(ErrorOf(isoloss::testing::VersionRecord()),
              HasSubstr("no scalar"));
}

TEST(Unknown, SaysWhatIsKnown) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("0 bytes hold no value"));
  EXPECT_THAT(ErrorOf("# A document\nwith text\n"), HasSubstr("torchtitan"));
  EXPECT_THAT(ErrorOf("{\"request\": {\"generated_text\": \"x\"}}"),
              HasSubstr("JSON object with 1 keys"));
  EXPECT_THAT(ErrorOf("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("git lfs pull"));
}

}  // namespace
}  // namespace isoloss::foreign
