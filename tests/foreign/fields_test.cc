#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/read.h"

namespace isoloss::foreign::fields_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

ForeignRun Only(std::string_view text, const ReadOptions& options = {}) {
  std::vector<ForeignRun> runs = ParseLog(text, options);
  EXPECT_EQ(runs.size(), 1);
  return std::move(runs.at(0));
}

const Series& Of(const ForeignRun& run, std::string_view name) {
  const Series* series = run.Find(name);
  EXPECT_NE(series, nullptr) << name;
  static const Series kNone;
  return series == nullptr ? kNone : *series;
}

const Series& Loss(const ForeignRun& run) {
  const Series* loss = run.Main(Quantity::kLoss);
  EXPECT_NE(loss, nullptr);
  static const Series kNone;
  return loss == nullptr ? kNone : *loss;
}

std::string ErrorOf(std::string_view text) {
  try {
    ParseLog(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Fields, OfALoggersLineFollowAStep) {
  const ForeignRun run = Only(
      "I0101 7 metrics.py:11] completed step: 0, seconds: 0.300, "
      "Tokens/s/device: 900.1, total_weights: 4096, loss: 5.000\n"
      "I0101 7 metrics.py:11] completed step: 1, seconds: 0.301, "
      "total_weights: 4000, loss: nan\n"
      "I0101 7 metrics.py:11] saved a checkpoint of step 1\n"
      "I0101 7 metrics.py:11] eval metrics after step: 1, loss=4.75, "
      "total_weights=50\n"
      "I0101 7 metrics.py:11] completed step: 2, seconds: 0.301, "
      "total_weights: 0, loss: 0.000\n"
      "I0101 7 metrics.py:11] completed step: 3, seconds: 0.301, "
      "total_weights: 4096, main_model_loss: 4.5\n"
      "I0101 7 metrics.py:11] completed step: 4, seconds: 0.301, "
      "total_weights: 4096, main_model_loss: 4.25\n");
  EXPECT_EQ(run.format, "fields");
  ASSERT_THAT(Loss(run).step, ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(Loss(run).value[0], 5.0);
  EXPECT_TRUE(std::isnan(Loss(run).value[1]));
  EXPECT_EQ(Loss(run).value[2], 4.5);
  EXPECT_THAT(run.Main(Quantity::kEvalLoss)->value, ElementsAre(4.75));
  const Series* tokens = run.Main(Quantity::kTokensSeen);
  ASSERT_NE(tokens, nullptr);
  EXPECT_THAT(tokens->value, ElementsAre(4096, 8096, 8096, 12192, 16288));
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("beside 0 tokens"),
                                     HasSubstr("is called `main_model_loss`")));
}

TEST(Fields, MayStandBehindAProgressBarAndHaveAUnit) {
  const ForeignRun run = Only(
      "Epoch 1/2:  8%|#  | 1/12 [00:01<00:12,  1.00s/it]step:1 - "
      "train/loss:5.000000000000000 - train/lr(1e-3):0.1000\n"
      "Epoch 1/2: 16%|#  | 2/12 [00:01<00:12,  1.00s/it]step:2 - "
      "train/loss:4.859999999999999 - train/lr(1e-3):0.2000\n"
      "step:2 - val/loss:4.5000000001\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(5, 4.859999999999999));
  EXPECT_EQ(run.Main(Quantity::kEvalLoss)->value[0], 4.5000000001);
  const Series* rate = run.Main(Quantity::kLearningRate);
  ASSERT_NE(rate, nullptr);
  EXPECT_DOUBLE_EQ(rate->value[1], 2e-4);
  EXPECT_DOUBLE_EQ(rate->digits.HalfUnit(1), 0.5e-7);
}

TEST(Fields, MayBeIndentedBelowTheirStep) {
  const ForeignRun run = Only(
      "[2026-01-01] INFO [ours.train:1, rank=0] [step=1/1000]\n"
      "    train/CrossEntropyLoss=5\n"
      "    train/Perplexity=148\n"
      "    throughput/total_tokens=65,536\n"
      "[2026-01-01] INFO a word: 3\n"
      "[2026-01-01] INFO [ours.train:1, rank=0] [step=2/1000,epoch=1]\n"
      "    train/CrossEntropyLoss=4.97\n"
      "    throughput/total_tokens=131,072\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(5, 4.97));
  EXPECT_THAT(run.Main(Quantity::kTokensSeen)->value,
              ElementsAre(65536, 131072));
  EXPECT_EQ(run.steps_planned, 1000);
}

// A program that isoloss knows is told by its own lines, however few.
TEST(Fields, AreTheLastResort) {
  const ForeignRun run = Only(
      "iter 0: loss 4.2, time 28.9ms\n"
      "step: 1, loss: 9.0\nstep: 2, loss: 9.0\n");
  EXPECT_EQ(run.format, "nanogpt");
}

TEST(Lines, CountStepsWithAColonOrInBrackets) {
  for (const char* text :
       {"Step 1: loss = 5.0, lr = 1e-4\nStep 2: loss = 4.9, lr = 1e-4\n",
        "Epoch [1/1], Step [1/2], Loss: 5.0\n"
        "Epoch [1/1], Step [2/2], Loss: 4.9\n",
        "Epoch 1 | iter 4 step 1 | loss train: 5.0, val: n/a |\n"
        "Epoch 1 | iter 8 step 2 | loss train: 4.9, val: n/a |\n"}) {
    const ForeignRun run = Only(text);
    EXPECT_THAT(run.Main(Quantity::kLoss)->step, ElementsAre(1, 2)) << text;
    EXPECT_THAT(run.Main(Quantity::kLoss)->value, ElementsAre(5.0, 4.9))
        << text;
  }
}

TEST(Lines, OnEvaluationsAreNoLosses) {
  for (const char* line :
       {"[valid] step: 2 loss: 9.0", "Test: step: 2 loss: 9.0",
        "step: 2 | split: val | loss: 9.0", "step=2, phase=eval, loss=9.0"}) {
    const std::string train =
        std::string(line).find('=') != std::string::npos
            ? "step=1, phase=train, loss=5.0\nstep=2, phase=train, loss=4.9\n"
            : "test-3: step: 1 loss: 5.0\ntest-3: step: 2 loss: 4.9\n";
    const ForeignRun run = Only(train + line + "\n");
    EXPECT_THAT(run.Main(Quantity::kLoss)->value, ElementsAre(5.0, 4.9))
        << line;
    EXPECT_THAT(Of(run, "validation loss").value, ElementsAre(9.0)) << line;
  }
}

TEST(Fields, TakeTheFieldThatRises) {
  const std::string text =
      "epoch 0, iteration 0/1 | loss: 5 | global_step: 0 | at: 10\n"
      "epoch 0, iteration 1/1 | loss: 4 | global_step: 1 | at: 20\n"
      "epoch 1, iteration 0/1 | loss: 3 | global_step: 2 | at: 30\n"
      "epoch 1, iteration 1/1 | loss: 2 | global_step: 3 | at: 40\n";
  const ForeignRun run = Only(text);
  EXPECT_THAT(Of(run, "loss").step, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(run.notes, Contains(HasSubstr("`iteration` begins again")));
  EXPECT_EQ(run.steps_planned, 0);
  EXPECT_THAT(Of(Only(text, {.step = "at", .loss = ""}), "loss").step,
              ElementsAre(10, 20, 30, 40));
}

TEST(Lines, WithDecimalCommasAreNoLosses) {
  const ForeignRun run =
      Only("step 1 | loss: 2,5000 | acc: 0.5\nstep 2 | loss: 2,4 | acc: 0.6\n");
  EXPECT_EQ(run.Main(Quantity::kLoss), nullptr);
  EXPECT_THAT(FindingsOf(run), Contains(HasSubstr("the first is `2,5000`")));
}

// Each pair of lines is a print statement of a trainer, at two steps.
TEST(Lines, OfManyTrainersAreRead) {
  struct Case {
    const char* text;
    std::vector<int64_t> step;
  };
  const Case cases[] = {
      {"step 3 loss 5.0\nstep 4 loss 4.9\n", {3, 4}},
      {"step 1,000 | loss 5.0 | acc 9.00% | tok/s 12.3k\n"
       "step 2,000 | loss 4.9 | acc 9.50% | tok/s 12.3k\n",
       {1000, 2000}},
      {"Steps:   2%|#  | 1/45 [00:01<00:30,  1.0it/s, lr=1e-5, step_loss=5]\r"
       "Steps:   4%|#  | 2/45 [00:02<00:30,  1.0it/s, lr=1e-5, step_loss=4.9]",
       {1, 2}},
      {"1|1|Loss: 5.0:   3%|#  | 1/30 [00:01<00:30,  1.01s/it]\r"
       "1|2|Loss: 5.0:   3%|#  | 2/30 [00:02<00:30,  1.01s/it]\r"
       "1|2|Loss: 4.9:   6%|#  | 2/30 [00:02<00:30,  1.01s/it]\n",
       {1, 2}},
      {"[batch=1/48]:\n\t Train time/batch: 1\n\t Train loss/train/total: 5.0\n"
       "[Eval batch=1/2] Eval on eval data\n"
       "[batch=2/48]:\n\t Train time/batch: 2\n\t Train loss/train/total: "
       "4.9\n",
       {1, 2}},
      {"[12:00:01.123] Epoch: [0]  [ 0/99]  lr: 0.000001  closs: 5.0 (5.1)\n"
       "[12:00:01.123] Epoch: [0]  [10/99]  lr: 0.000001  closs: 4.9 (5.1)\n",
       {1, 11}},
      {"Train: 0 [   0/50 (  2%)]  Loss: 5.00 (5.1)  Time: 0.3s,  742.1/s  "
       "(0.3s,  742.1/s)  LR: 1.000e-05\n"
       "Test: [   0/9]  Time: 0.1 (0.1)  Loss:  9.0 (9.0)\n"
       "Train: 1 [   0/50 (  2%)]  Loss: 4.9 (5.1)  Time: 0.3s\n",
       {1, 51}},
      {"[01/02 03:04:05 d2.utils.events]:  eta: 0:03:45  iter: 19  "
       "total_loss: 5  loss_cls: 1.5  time: 0.3  lr: 1e-5  max_mem: 2727M\n"
       "[01/02 03:04:05 d2.utils.events]:  eta: 0:03:45  iter: 39  "
       "total_loss: 4.9  loss_cls: 1.5\n"
       "[01/02 03:04:05 d2.utils.events]:  eta: 0:03:45  iter: 59  "
       "total_loss: 4.9  loss_cls: 1.5\n",
       {20, 40, 60}},
      {"06/16 08:23:02 - mmengine - INFO - Epoch(train)  [1][10/20]  lr: 1e-2  "
       "eta: 0:00:57  loss: 5.0\n"
       "06/16 08:23:02 - mmengine - INFO - Epoch(val) [1][9/9]  acc/top1: 51\n"
       "06/16 08:23:02 - mmengine - INFO - Epoch(train)  [2][10/20]  lr: 1e-2  "
       "loss: 4.9\n",
       {10, 30}},
      {"INFO:tensorflow:loss = 5.0, step = 0\n"
       "INFO:tensorflow:loss = 4.9, step = 100 (12.345 sec)\n",
       {1, 101}},
      {"01/02/2024 03:04:05 [INFO|DP=0]: iteration: 1 / 100 | consumed_tokens: "
       "131K | lm_loss: 5 | lr: 6.67e-06\n"
       "01/02/2024 03:04:05 [INFO|DP=0]: iteration: 2 / 100 | consumed_tokens: "
       "262K | lm_loss: 4.9 | lr: 6.67e-06\n",
       {1, 2}},
      {"Epoch: 1 Step: 1 Loss: 5.0\nEpoch: 2 Step: 1 Loss: 4.9\n", {1, 2}},
      {"Epoch 0/4  ━━━╸━━ 1/100 0:00:01 • 0:00:10 9.5it/s loss: 5.0\n"
       "Epoch 0/4  ━━━╸━━ 2/100 0:00:01 • 0:00:10 9.5it/s loss: 4.9\n",
       {1, 2}},
      {"epoch     train_loss  valid_loss  time    \n"
       "0         5.0         9.0         00:12   \n"
       "1         4.9         9.0         00:12   \n",
       {1, 2}},
      {"{'accuracy': 0.1,\n 'loss': 5.0,\n 'step': 0}\n"
       "{'accuracy': 0.1,\n 'loss': 4.9,\n 'step': 1}\n",
       {1, 2}}};
  for (const Case& one : cases) {
    const ForeignRun run = Only(one.text);
    EXPECT_THAT(Loss(run).step, testing::ElementsAreArray(one.step))
        << one.text;
    EXPECT_EQ(Loss(run).value[0], 5.0) << one.text;
    EXPECT_EQ(Loss(run).value[1], 4.9) << one.text;
  }
  EXPECT_THAT(Of(Only(cases[10].text), "consumed_tokens").value,
              ElementsAre(131e3, 262e3));
}

TEST(Lines, OfFairseqHaveMeansOfEpochs) {
  const std::string front = "2023-01-02 03:04:05 | INFO | ";
  const ForeignRun run =
      Only(front +
           "train_inner | epoch 001:     10 / 20 loss=9.2, ppl=53, "
           "num_updates=10, lr=1e-06\n" +
           front +
           "train_inner | epoch 001:     20 / 20 loss=8.2, ppl=45, "
           "num_updates=20, lr=1e-06\n" +
           front +
           "valid | epoch 001 | valid on 'valid' subset | loss 8.5 | ppl 99 "
           "| num_updates 20\n" +
           front + "train | epoch 001 | loss 8.7 | ppl 50 | num_updates 20\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(9.2, 8.2));
  EXPECT_THAT(Of(run, "validation loss").value, ElementsAre(8.5));
  EXPECT_THAT(Of(run, "epoch loss").value, ElementsAre(8.7));

  const ForeignRun json =
      Only(front +
           "train_inner | {\"epoch\": 1, \"update\": 0.5, \"loss\": \"9.2\","
           " \"num_updates\": \"10\"}\n" +
           front +
           "train | {\"epoch\": 1, \"train_loss\": \"8.7\", "
           "\"train_num_updates\": \"10\"}\n");
  EXPECT_THAT(Loss(json).value, ElementsAre(9.2));
}

TEST(Lines, OfKerasCountAtTheEndOfAnEpoch) {
  const ForeignRun run = Only(
      "Epoch 1/2\n"
      " 1/20 [>......] - ETA: 3s - loss: 6.0 - accuracy: 0.1\r"
      "20/20 [======] - 4s 20ms/step - loss: 5.0 - val_loss: 5.5\n"
      "Epoch 2/2\n20/20 - 4s - 2ms/step - loss: 4.9 - val_loss: 5.4\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2));
  EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9));
  EXPECT_THAT(Of(run, "val_loss").step, ElementsAre(1, 2));
  EXPECT_EQ(run.step_unit, "epoch");
}

TEST(Lines, WhoseStepsAreOfAnEpochNeedItsLength) {
  const ForeignRun run = Only(
      "Epoch [1/2], Step [1/2], Loss: 5.0\nEpoch [1/2], Step [2/2], Loss: 4\n"
      "Epoch [2/2], Step [1/2], Loss: 3.0\nEpoch [2/2], Step [2/2], Loss: 2\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(run.steps_planned, 4);
  EXPECT_THAT(
      ErrorOf("Epoch: 1 Step: 10 Loss: 5.0\nEpoch: 1 Step: 20 Loss: 4\n"
              "Epoch: 2 Step: 10 Loss: 3.0\nEpoch: 2 Step: 20 Loss: 2\n"),
      HasSubstr("begin again"));
}

TEST(Lines, BelowAHeadingOfAnEvaluationAreItsOwn) {
  for (const char* evaluation :
       {"Evaluation results:\nstep: 2 loss: 9.0\n", "Eval loss: 9.0\n",
        "=== Validation metrics ===\nloss: 9.0\nperplexity: 8103.1\n",
        "Eval batch 1/2: loss: 7.0\nEval batch 2/2: loss: 9.0\n",
        "***** Running Evaluation *****\n  loss: 9.0\n"}) {
    const ForeignRun run =
        Only(std::string("step: 1 loss: 5.0\nstep: 2 loss: 4.9\n") +
             evaluation + "step: 3 loss: 4.8\n");
    EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9, 4.8)) << evaluation;
  }
  // A dump of settings has such a heading, too.
  EXPECT_THAT(Loss(Only("eval:\n  batch_size: 8\nstep: 1 loss: 5.0\n")).step,
              ElementsAre(1));
}

TEST(Lines, WithoutAStepOfTrainingAreNone) {
  const ForeignRun run = Only(
      "warmup steps: 2000\nsave every 500 steps\n"
      "iteration: 0, loss: 5.0, time per step: 0.1s, tokens per step: 4096\n"
      "saved checkpoint at step 20 (best loss: 3.0 at step 19)\n"
      "iteration: 1, loss: 4.9\n"
      "  text = \"step: 10  loss: 3.5\"\n"
      "Best loss 3.2 at step 100\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2));
  EXPECT_THAT(Of(run, "tokens per step").value, ElementsAre(4096));
}

TEST(Lines, ThatRepeatANameTellATest) {
  const ForeignRun run = Only(
      "Epoch  1 | train loss 5.0 acc 10.0 | test loss 6.0 acc 9.0\n"
      "Epoch  2 | train loss 4.9 acc 11.0 | test loss 5.9 acc 9.5\n");
  EXPECT_THAT(Of(run, "acc").value, ElementsAre(10, 11));
  EXPECT_THAT(Of(run, "validation acc").value, ElementsAre(9, 9.5));
  EXPECT_THAT(Of(run, "test loss").value, ElementsAre(6, 5.9));
}

TEST(Lines, OfTqdmThatShowsTheLossBeforeTheBatchCounts) {
  const ForeignRun run = Only(
      "Epoch 1/2:   0%|  | 0/2 [00:00<00:10, 1it/s, loss=5.0]\r"
      "Epoch 1/2:  50%|# | 1/2 [00:01<00:10, 1it/s, loss=5.0]\r"
      "Epoch 1/2:  50%|# | 1/2 [00:01<00:10, 1it/s, loss=4.9]\r"
      "Epoch 1/2: 100%|##| 2/2 [00:02<00:00, 1it/s, loss=4.9]\n"
      "Epoch 2/2:   0%|  | 0/2 [00:00<00:10, 1it/s, loss=4.8]\r"
      "Epoch 2/2: 100%|##| 2/2 [00:02<00:00, 1it/s, loss=4.8]\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2, 3));
  EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9, 4.8));
  EXPECT_EQ(run.steps_planned, 4);
}

TEST(Lines, OfBarsWithoutTitlesThatEndElsewhereAreLeftOut) {
  const ForeignRun run = Only(
      "50%|# | 1/2 [00:01<00:10, 1it/s, loss=5.0]\n"
      "100%|##| 2/2 [00:02<00:00, 1it/s, loss=4.9]\n"
      "100%|##| 1/1 [00:02<00:00, 1it/s, loss=9.0]\n"
      "50%|# | 1/2 [00:01<00:10, 1it/s, loss=4.8]\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1, 2, 3));
  EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9, 4.8));
  EXPECT_THAT(run.notes, Contains(HasSubstr("left out: 1")));
}

TEST(Lines, OfBarsBeyondAllStepsAreLeftOut) {
  const ForeignRun run = Only(
      "Epoch 0: 1%| | 1/4000000000 [00:01<00:10, 1it/s, loss=5.0]\n"
      "Epoch 999999999: 1%| | 1/4000000000 [00:01<00:10, 1it/s, loss=4.0]\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(1));
}

TEST(Names, OfLossesInAUnitOrOfATotal) {
  EXPECT_DOUBLE_EQ(Loss(Only("step:1 - loss(1e-3):1500\n")).value[0], 1.5);
  ForeignRun run = Only("step: 1 ce_loss: 5.0 z_loss: 0.1 total_loss: 5.1\n");
  EXPECT_EQ(Loss(run).name, "ce_loss");
  EXPECT_THAT(FindingsOf(run), Contains(HasSubstr("not `total_loss`")));
  run = Only("step:1 - policy_loss:0.1 - entropy_loss:0.2\n");
  EXPECT_EQ(run.Main(Quantity::kLoss), nullptr);
  run = Only("step:1 - actor/pg_loss:0.1 - critic/vf_loss:0.2\n");
  EXPECT_THAT(FindingsOf(run),
              Contains(HasSubstr("`actor/pg_loss`, `critic/vf_loss`")));
}

TEST(Lines, TellAnEvaluationBeforeOrBehindItsLoss) {
  for (const std::string_view line :
       {"iter: 2 | val: loss 9.0 acc 0.1 | train: loss 4.9",
        "iter: 2, valid: loss=9.0, acc=0.1; train: loss=4.9",
        "iter: 2 loss 4.9 | [dev] loss 9.0",
        "iter: 2, 'eval': {'loss': 9.0}, 'train': {'loss': 4.9}",
        "iter: 2 loss: 4.9 lr: 1e-4\niter: 2, loss: 9.0 (validation)",
        "iter: 2 loss: 4.9\niter: 2, loss: 9.0 [eval]",
        "iter: 2 loss: 4.9\niter: 2, loss: 9.0 on the held-out test set",
        "iter: 2 loss: 4.9\n12:00:01 - evaluator - iter: 2, loss: 9.0",
        "iter: 2 loss: 4.9\nValidating iter: 2, loss: 9.0",
        "iter: 2 loss: 4.9\nholdout iter: 2, loss: 9.0"}) {
    const ForeignRun run =
        Only("iter: 1, loss: 5.0, lr: 1e-4\n" + std::string(line) +
             "\niter: 3, loss: 4.8, val: n/a | lr: 2e-4\n");
    EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9, 4.8)) << line;
    EXPECT_THAT(Of(run, "validation loss").value, ElementsAre(9.0)) << line;
    EXPECT_EQ(Of(run, "lr").value.back(), 2e-4) << line;
  }
}

TEST(Lines, OfPathsAndRunsNamedTestAreOfTraining) {
  for (const std::string_view prefix :
       {"[/home/test/train.py:33] ", "/data/eval/run1/train.py INFO ",
        "run=test "}) {
    const ForeignRun run =
        Only(std::string(prefix) + "iter: 1, loss: 5.0, acc: 0.5\n");
    EXPECT_THAT(Loss(run).value, ElementsAre(5.0)) << prefix;
  }
}

TEST(Lines, MayHaveACommaBehindATotal) {
  const ForeignRun run =
      Only("Epoch 0, Batch 10/30, Loss: 4.5\nEpoch 0, Batch 20/30, Loss: 4\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(10, 20));
  EXPECT_EQ(run.steps_planned, 30);
}

TEST(Lines, BelowARemarkOnAnEvaluationAreOfTraining) {
  for (const std::string_view remark :
       {"Saving evaluation metrics to disk", "Validation metrics improved"}) {
    const ForeignRun run = Only("iter: 1, loss: 5.0\n" + std::string(remark) +
                                "\niter: 2, loss: 4.9\n");
    EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9)) << remark;
  }
}

TEST(Lines, OfASingleMeanAtTheEndAreNoLastLoss) {
  const ForeignRun run = Only(
      "iter: 1, loss: 5.0\niter: 2, loss: 4.9\niter: 3, mean_loss: 4.95\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(5.0, 4.9));
}

TEST(Lines, OfTokensBeforeTheFirstStepHaveNoSum) {
  const ForeignRun run = Only(
      "step: 1, total_weights: 4096, loss: 5.0\n"
      "step: 1, total_weights: 4096, loss: 4.9\n"
      "step: 1, global_step: 3, loss: 4.8\nstep: 1, global_step: 4, loss: "
      "4.7\n");
  EXPECT_THAT(Loss(run).step, ElementsAre(3, 4));
  EXPECT_EQ(run.Main(Quantity::kTokensSeen), nullptr);
}

TEST(Lines, ThatBreakOffWithinANumberAreLeftOut) {
  const std::string text =
      "iter: 1, loss=5.0000, x=1\niter: 2, loss=4.9000, x=1\n"
      "iter: 3, loss=4.8000, x=1\niter: 4, loss=";
  for (const std::string_view cut : {"3", "3.", "3.77"}) {
    const ForeignRun run = Only(text + std::string(cut));
    EXPECT_THAT(Loss(run).step, ElementsAre(1, 2, 3)) << cut;
    EXPECT_THAT(run.notes, Contains(HasSubstr("within a number"))) << cut;
  }
  EXPECT_THAT(Loss(Only(text + "3.7000")).step, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Loss(Only(text + "3.7\n")).step, ElementsAre(1, 2, 3, 4));
}

TEST(Lines, OfEvaluationsAloneAreSaid) {
  EXPECT_THAT(FindingsOf(Only("iter: 1, dev: loss=5.0\n")),
              Contains(HasSubstr("are of an evaluation")));
}

TEST(Lines, BelowColumnsWithoutANumberAreNoRow) {
  const ForeignRun run = Only("step loss\n7 2.5\n8 2.25\n7 warnings\n");
  EXPECT_THAT(Loss(run).value, ElementsAre(2.5, 2.25));
}

TEST(Lines, WithDecimalCommasAreRefused) {
  EXPECT_THAT(ErrorOf("step 1 | loss 2,5\nstep 2 | loss 2,4\n"),
              HasSubstr("Decimals need a point"));
}

TEST(Lines, MayBeUtf16) {
  std::string text = "\xFE\xFF";
  for (const char c : std::string_view("step: 5, loss: 2.5\n")) {
    text += {'\0', c};
  }
  EXPECT_THAT(Loss(Only(text)).step, ElementsAre(5));
}

}  // namespace
}  // namespace isoloss::foreign::fields_test
