#include "isoloss/foreign/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "event_file_bytes.h"
#include "isoloss/base/error.h"

namespace isoloss::foreign::read_test {
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

TEST(Lines, OfStepZeroCount) {
  const std::string titan = "[titan] 2026-01-01 00:00:00,000 - root - INFO - ";
  const std::string forms[] = {
      titan + "step:  0  loss:  5.0  grad_norm: 1.0\n" + titan +
          "step:  1  loss:  4.9  grad_norm: 1.0\n",
      " iteration        0/       2 | lm loss: 5.0E+00 | grad norm: 1.0 |\n"
      " iteration        1/       2 | lm loss: 4.9E+00 | grad norm: 1.0 |\n",
      "steps: 0 loss: 5.0 iter time (s): 0.5\n"
      "steps: 1 loss: 4.9 iter time (s): 0.5\n"};
  for (const std::string& text : forms) {
    const ForeignRun run = Only(text);
    EXPECT_THAT(Loss(run).step, ElementsAre(1, 2)) << text;
    EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9)) << text;
    EXPECT_EQ(run.step_base, 0) << text;
  }
  // An evaluation before training is no update.
  EXPECT_EQ(Only(titan + "validate step:  0  loss:  5.0\n" + titan +
                 "step:  1  loss:  4.9\n")
                .step_base,
            1);
}

TEST(Lines, WhoseLossIsNoNumberHaveNaNThere) {
  const std::string front = "[titan] 2026-01-01 00:00:00,000 - root - INFO - ";
  for (const std::string word :
       {"None", "N/A", "1.#INF", "1_0", "4,70386", "4,703", "\u221E", "1.03k",
        "1.03/nan", "1.03e", "1.03%"}) {
    const ForeignRun run = Only(front + "step:  1  loss:  5.0\n" + front +
                                "step:  2  loss:  " + word + "\n");
    ASSERT_EQ(Loss(run).value.size(), 2u) << word;
    EXPECT_TRUE(std::isnan(Loss(run).value[1])) << word;
    EXPECT_EQ(Loss(run).unreadable_text, word);
  }
  const std::string forms[] = {
      " iteration 1/ 2 | lm loss: 5.0E+00 |\n"
      " iteration 2/ 2 | lm loss: None | grad norm: 1.0 |\n",
      " iteration 1/ 2 | lm loss: 5.0E+00 |\n"
      " iteration 2/ 2 | lm loss: 1.03k | grad norm: 1.0 |\n",
      "steps: 1 loss: 5.0 iter time (s): 0.5\n"
      "steps: 2 loss: None iter time (s): 0.5\n",
      "step 0 | loss 5.0 | lr 1e-3\nstep 1 | loss 1.03k | lr 1e-3\n",
      "step=1 loss=5.0, lr=1e-3\nstep=2 loss=1.03k, lr=1e-3\n"};
  for (const std::string& text : forms) {
    EXPECT_EQ(Loss(Only(text)).value.at(0), 5.0) << text;
    EXPECT_TRUE(std::isnan(Loss(Only(text)).value.at(1))) << text;
  }
}

TEST(Plan, IsToldByLinesAndFiles) {
  EXPECT_EQ(Only(" iteration 1/ 30 | lm loss: 5.0E+00 |\n").steps_planned, 30);
  const ForeignRun golden = Only(
      R"({"lm loss": {"start_step": 1, "end_step": 60, "step_interval": 1,
          "values": {"1": 5.0, "2": "nan", "3": Infinity}}})");
  EXPECT_EQ(golden.steps_planned, 60);
  // The text is no sample; the number is a value.
  EXPECT_THAT(Loss(golden).step, ElementsAre(1, 3));
  EXPECT_EQ(Loss(golden).value[1], INFINITY);
}

TEST(LossTable, IsReadWithComments) {
  const ForeignRun run = Only(
      "# config: debug\n# step loss grad_norm\n1 8.1313037872314453 1.5\n"
      "2 7.9 870000.0\n");
  EXPECT_EQ(run.format, "loss_table");
  EXPECT_THAT(Loss(run).value, ElementsAre(8.1313037872314453, 7.9));
  EXPECT_TRUE(Loss(run).digits.exact());
  // Two numbers on a line are found in any text.
  EXPECT_THAT(ErrorOf("# A document\nwith text\n1 2.5\nand more\n"),
              HasSubstr("hold no value"));
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
      "PPL: 7.255679E+03 |\n"
      " validation loss at iteration 15 on test set | lm loss value: "
      "8.500000E+00 | lm loss PPL: 4.9E+03 |\n"
      // What a killed program left of a line says nothing of its loss.
      " iteration       20/     100 | learning rate: 1.0E-04 | lm lo");
  EXPECT_EQ(run.format, "megatron");
  EXPECT_THAT(Loss(run).step, ElementsAre(5, 10));
  EXPECT_EQ(Loss(run).value[0], 10.87423);
  EXPECT_TRUE(std::isnan(Loss(run).value[1]));
  EXPECT_EQ(Loss(run).averaging, Averaging::kIntervalMean);
  EXPECT_EQ(run.Main(Quantity::kEvalLoss)->value[0], 8.88954);
  EXPECT_EQ(run.Find("lm loss test")->value[0], 8.5);
  EXPECT_EQ(run.Find("consumed samples")->value[0], 640);
}

TEST(Megatron, KnowsTheLossOfItsForksAndNoOtherLineWithBars) {
  const ForeignRun neox = Only(
      "[2023-01-01] [INFO] [logging.py:96:log_dist] [Rank 0] step=33, "
      "skipped=0, lr=[2e-06], mom=[[0.9, 0.95]]\n"
      "[2023-01-01] [INFO] [logging.py:96:log_dist] [Rank 0] step=34, "
      "skipped=0, lr=[2e-06], mom=[[0.9, 0.95]]\n"
      " samples/sec: 7.5 | iteration       34/   10000 | learning rate: "
      "2.1E-06 "
      "| approx flops per GPU: 112.9TFLOPS | lm_loss: 1.125000E+01 | number of "
      "skipped iterations:   0 | number of nan iterations:   0 |\n"
      "time (ms) | forward: 659.86 | backward: 2164.69\n"
      "validation loss at the end of training | lm loss value: 8.5E+00 |\n");
  EXPECT_EQ(neox.format, "megatron");
  EXPECT_THAT(Loss(neox).value, ElementsAre(11.25));
  EXPECT_EQ(neox.series.size(), 5u);
  const ForeignRun wrapped = Only(
      "[Rank 0 | Local Rank 0] INFO => iteration  1/  100 | consumed samples: "
      "8 | loss: 1.875000E+00 |\n grad norm: 134.300 |\nmemory | used: 5 |\n");
  EXPECT_THAT(Loss(wrapped).value, ElementsAre(1.875));
  EXPECT_THAT(wrapped.Main(Quantity::kGradNorm)->value, ElementsAre(134.3));
  EXPECT_EQ(wrapped.series.size(), 3u);
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
  const std::string engine =
      "[2026] [Rank 0] step=1, skipped=0, lr=[0.5], mom=[(0.9, 0.95)]\n";
  EXPECT_EQ(
      Only(engine + engine + "{'loss': 8.3, 'grad_norm': nan, 'epoch': 0.01}\n")
          .format,
      "hugging_face_stdout");
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

TEST(Mllog, NumbersValuesAtFractionsOfAnEpoch) {
  const std::string head =
      R"(0: :::MLLOG {"key": "submission_benchmark", "value": "dlrm_dcnv2"})"
      "\n";
  const std::string first =
      R"(0: :::MLLOG {"key": "eval_accuracy", "value": 0.75, "metadata": {"lineno": 97, "epoch_num": 0.049980888}})"
      "\n";
  const ForeignRun run = Only(
      head + first + first +
      R"(:::MLLOG {"key": "eval_accuracy", "value": 0.8, "metadata": {"epoch_num": 1}})"
      "\n");
  EXPECT_EQ(run.Main(Quantity::kEvalLoss), nullptr);
  const Series& accuracy = *run.Find("eval_accuracy");
  EXPECT_THAT(accuracy.step, ElementsAre(1, 2));
  EXPECT_THAT(accuracy.value, ElementsAre(0.75, 0.8));
  EXPECT_EQ(run.step_unit, "value");
  EXPECT_THAT(run.notes[0], HasSubstr("fraction of an epoch"));
}

TEST(Mllog, MayHaveSeveralAccuracies) {
  const ForeignRun run = Only(
      R"(:::MLLOG {"key": "eval_accuracy", "value": {"BBOX": 0.25, "SEGM": 0.5}, "metadata": {"epoch_num": 3}})"
      "\n");
  EXPECT_THAT(run.Find("eval_accuracy/BBOX")->value, ElementsAre(0.25));
  EXPECT_THAT(run.Find("eval_accuracy/SEGM")->step, ElementsAre(3));
  EXPECT_EQ(run.step_unit, "epoch");
}

TEST(Mllog, SaysWhatItLacks) {
  EXPECT_THAT(ErrorOf(R"(:::MLLOG {"key": "seed", "value": 1})"),
              HasSubstr("1 lines with :::MLLOG hold no eval_accuracy"));
  EXPECT_THAT(ErrorOf(":::MLPv0.5.0 ncf 1541635596.9 (ncf.py:1) eval: 1\n"),
              HasSubstr("round 0.7 or later"));
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
      "iter 10: loss 3.1000, time 12.50ms, lr 0.0006, grad_norm 0.0\n");
  EXPECT_EQ(run.format, "nanogpt");
  EXPECT_THAT(run.Main(Quantity::kLearningRate)->value, ElementsAre(0.0006));
  EXPECT_THAT(run.Main(Quantity::kGradNorm)->value, ElementsAre(0));
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

TEST(NanoGpt, HasRelativesThatCountWhatIsDone) {
  const ForeignRun modded = Only(
      "step:0/9 val_loss:10.8258 train_time:0ms\n"
      "step:1/9 train_loss:10.5000 train_time:10ms step_avg:nanms\n");
  EXPECT_THAT(Loss(modded).step, ElementsAre(1));
  EXPECT_THAT(modded.Main(Quantity::kEvalLoss)->step, ElementsAre(0));
  EXPECT_EQ(modded.step_base, 1);
  const ForeignRun llm_c = Only(
      "step    1/18865 | loss 11.009594 (+nanz)| norm 15.3366 (+nanz)| lr "
      "2.86e-07 | 3.50 ms | 50.2% bf16 MFU | 49905 tok/s\n"
      "step    2/18865 | train loss 10.953327 | norm 15.25\n");
  EXPECT_THAT(Loss(llm_c).step, ElementsAre(1, 2));
  EXPECT_THAT(Loss(llm_c).value, ElementsAre(11.009594, 10.953327));
  EXPECT_THAT(llm_c.Main(Quantity::kGradNorm)->value,
              ElementsAre(15.3366, 15.25));
}

TEST(NanoGpt, HasRelativesThatWriteOtherLines) {
  const ForeignRun llama2_c = Only(
      "step 0: train loss 10.5000, val loss 10.6250\n"
      "0 | loss 10.5000 | lr 0.000000e+00 | 2006.12ms | mfu -100.00%\n"
      "10 | loss nan | lr 5.000000e-07 | 206.12ms | mfu 1.68%\n");
  EXPECT_EQ(llama2_c.format, "nanogpt");
  EXPECT_THAT(Loss(llama2_c).step, ElementsAre(1, 11));
  EXPECT_THAT(llama2_c.Main(Quantity::kLearningRate)->value,
              ElementsAre(0, 5e-7));
  EXPECT_TRUE(std::isnan(Loss(llama2_c).value[1]));
  EXPECT_EQ(llama2_c.step_base, 0);
  const ForeignRun build = Only(
      "0 val 10.9375\n0 hella 0.2500\n0 train 10.925000\n"
      "1 train 10.875000\n");
  EXPECT_THAT(Loss(build).step, ElementsAre(1, 2));
  EXPECT_THAT(Loss(build).value, ElementsAre(10.925, 10.875));
  EXPECT_THAT(build.Main(Quantity::kEvalLoss)->step, ElementsAre(0));
  EXPECT_THAT(build.Find("hellaswag accuracy")->value, ElementsAre(0.25));
  const ForeignRun stdout_of_build = Only(
      "step    0 | loss: 10.925000 | lr 8.4e-07 | norm: 15.25 | dt: 8.00ms\n");
  EXPECT_THAT(Loss(stdout_of_build).step, ElementsAre(1));
  EXPECT_THAT(stdout_of_build.Main(Quantity::kGradNorm)->value,
              ElementsAre(15.25));
}

TEST(TransformerEngine, HasStatisticsWithoutALoss) {
  const ForeignRun run = Only(
      "2026-01-01 10:00:00 INFO - Default logging to file enabled\n"
      "INFO - decoder.1.mlp.fc1_activation_l1_norm                     \t\t "
      "iteration=000000 \t\t value=125.5000\n"
      "INFO - decoder.1.mlp.fc1_gradient_underflows%   iteration=000002   "
      "value=-0.0000\n"
      "INFO - decoder.1.mlp.fc1_activation_l1_norm   iteration=000002   "
      "value=nan\n");
  EXPECT_EQ(run.format, "transformer_engine");
  EXPECT_EQ(run.Main(Quantity::kLoss), nullptr);
  const Series& norm = *run.Find("decoder.1.mlp.fc1_activation_l1_norm");
  EXPECT_THAT(norm.step, ElementsAre(0, 2));
  EXPECT_EQ(norm.value[0], 125.5);
  EXPECT_TRUE(std::isnan(norm.value[1]));
  EXPECT_EQ(norm.digits.decimals, 4);
}

TEST(DeepSpeed, HasLossAndLearningRate) {
  const ForeignRun run = Only(
      "steps: 10 loss: 5.1234 iter time (s): 0.512 samples/sec: 31.25\n"
      "[2026-01-01] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, "
      "skipped=4, lr=[0.0001], mom=[(0.9, 0.95)]\n");
  EXPECT_EQ(run.format, "deepspeed");
  EXPECT_THAT(Loss(run).value, ElementsAre(5.1234));
  EXPECT_THAT(run.Main(Quantity::kLearningRate)->value, ElementsAre(1e-4));
  EXPECT_THAT(run.Find("step_seconds")->value, ElementsAre(0.512));
  EXPECT_THAT(run.Find("samples/sec")->value, ElementsAre(31.25));
  const ForeignRun mixture = Only(
      "steps: 20 loss: 5.5000 lm loss: 5.3750 moe loss: 0.1250 iter time (s): "
      "0.936 samples/sec: 136.5\n");
  EXPECT_THAT(mixture.Find("loss")->value, ElementsAre(5.5));
  EXPECT_THAT(Loss(mixture).value, ElementsAre(5.375));
  EXPECT_THAT(mixture.Find("moe loss")->value, ElementsAre(0.125));
}

TEST(EventFile, HasASeriesForEachTag) {
  const ForeignRun run =
      Only(isoloss::test_support::VersionRecord() +
           isoloss::test_support::SimpleEvent(0, "train/loss", 4.5F) +
           isoloss::test_support::SimpleEvent(10, "train/loss", 3.25F) +
           isoloss::test_support::SimpleEvent(256, "train/loss vs samples", 3) +
           isoloss::test_support::SimpleEvent(-1, "lr", 0.5F));
  EXPECT_EQ(run.Find("train/loss vs samples"), nullptr);
  EXPECT_EQ(run.format, "tensorboard");
  EXPECT_THAT(Loss(run).step, ElementsAre(0, 10));
  EXPECT_THAT(Loss(run).value, ElementsAre(4.5, 3.25));
  EXPECT_TRUE(Loss(run).digits.exact());
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("negative step")));
  EXPECT_THAT(ErrorOf(isoloss::test_support::VersionRecord()),
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
}  // namespace isoloss::foreign::read_test
