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
  EXPECT_EQ(BatchFactNamed("num_examples_seen"), "samples seen");
  EXPECT_EQ(BatchFactNamed("effective_batch"), "global batch size");
  EXPECT_EQ(BatchFactNamed("tokens_per_step"), "tokens of a step");
  EXPECT_EQ(BatchFactNamed("num_sequences"), "number of sequences");
  EXPECT_EQ(BatchFactNamed("parallel/dp_degree"), "data-parallel size");
  EXPECT_EQ(BatchFactNamed("total_steps"), "") << "a plan is no batch";
  EXPECT_EQ(BatchFactNamed("world-size"), "world size");
  EXPECT_EQ(BatchFactNamed("train/epoch"), "epochs seen");
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

const std::string kTitan = "[titan] - INFO - step:  1  loss:  3.86\n";

TEST(BatchFacts, AreReadFromBannersOfSeveralPrograms) {
  EXPECT_THAT(BatchesOf("| total_batch_size      | 524288        |\n"
                        "step    1/1 | loss 10.785536 (+nanz)| norm 1.2345\n"),
              ElementsAre("global batch size 524288 at 0"));
  EXPECT_THAT(BatchesOf("tokens per iteration will be: 491,520\n"
                        "iter 0: loss 10.7855, time 100.00ms\n"),
              ElementsAre("tokens of a step 491520 at 0"));
  EXPECT_THAT(BatchesOf("  Total train batch size (w. parallel, distributed & "
                        "accumulation) = 64\n" +
                        kTitan),
              ElementsAre("global batch size 64 at 0"));
}

// What differs between good runs of a pair.
TEST(BatchFacts, AreNoneOfAnEvaluationAndNoCounts) {
  for (const char* text :
       {"***** Running Evaluation *****\n  Num examples = 100\n  Batch size = "
        "8\n",
        "[INFO|trainer.py:3512] 2026-01-01 >> ***** Running Evaluation *****\n"
        "[INFO|trainer.py:3515] 2026-01-01 >>   Batch size = 8\n",
        "eval:\n  dataloader:\n    batch_size: 8\n", "eval batch size: 8\n",
        "{'val': {'validation batch size': 8}}\n", "Generated tokens: 55\n",
        "Prefetched samples: 17\n", "cache hit for tokens 12345\n",
        "average throughput, tokens: 5123.2\n", "loading data, epoch: 1\n",
        "mean tokens per step: 5123.25\n"}) {
    EXPECT_THAT(BatchesOf(text + kTitan), IsEmpty()) << text;
  }
  EXPECT_THAT(BatchesOf("***** Running Evaluation *****\n  Batch size = 8\n"
                        "***** Running training *****\n  Batch size = 16\n" +
                        kTitan),
              ElementsAre("batch size 16 at 0"));
}

TEST(Plan, IsToldByBannersAndTotals) {
  const auto planned = [](const std::string& text) {
    return LogOf(text).provenance.steps_planned;
  };
  EXPECT_EQ(planned("Trainer is initialized with global batch size 64, total "
                    "steps 60 (warmup 2).\n" +
                    kTitan),
            60);
  EXPECT_EQ(planned("Overriding: max_iters = 60\niter 0: loss 10.7855, time "
                    "100.00ms\n"),
            60);
  EXPECT_EQ(planned("  train_iters ............ 60\n" + kTitan), 60);
  EXPECT_EQ(planned("step   25/60 | loss 3.7 (+nanz)| norm 1.2\n"), 60);
  EXPECT_EQ(planned("step:25/60 train_loss:3.7 train_time:2400ms\n"), 60);
  EXPECT_EQ(planned("{\"max_steps\": 60}\n{\"step\": 1, \"loss\": 3}\n"), 60);
  EXPECT_EQ(planned("step,loss,total_steps\n1,3,60\n2,2.9,60\n"), 60);
  // Of much else, or a count that grows.
  EXPECT_EQ(planned("env.max_steps: 60\n" + kTitan), 1);
  EXPECT_EQ(planned("step,loss,total_steps\n1,3,60\n2,2.9,61\n"), 2);
}

TEST(BrokeOff, IsAnErrorBehindTheLastStep) {
  const std::string trace =
      "Traceback (most recent call last):\n  File \"t.py\", line 1\n";
  const auto complete = [](const std::string& text) {
    return LogOf(text).provenance.complete;
  };
  EXPECT_TRUE(complete(kTitan));
  EXPECT_FALSE(complete(kTitan + trace));
  EXPECT_FALSE(complete(kTitan +
                        "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT "
                        "2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"));
  // Started again, at its end, or while Python takes itself apart.
  EXPECT_TRUE(complete(trace + kTitan));
  EXPECT_TRUE(complete("total steps 1\n" + kTitan + trace));
  EXPECT_TRUE(complete(kTitan + "INFO - Training completed\n" + trace));
  EXPECT_TRUE(
      complete(kTitan + "Exception ignored in: <function x>\n" + trace));
}

TEST(RunLogOf, KnowsACoarseFormatBehindFineDigits) {
  std::string coarse = "step,loss\n";
  std::string fine = coarse;
  for (int i = 0; i < 40; ++i) {
    coarse += fmt::format("{},{:.6f}\n", i + 1, 3 + (i * 7 % 16) / 16.0);
    fine += fmt::format("{},{:.6f}\n", i + 1, 3 + (i * 7 % 16) / 16.1);
  }
  EXPECT_EQ(LogOf(coarse).told.loss_step, 1 / 16.0);
  EXPECT_EQ(LogOf(fine).told.loss_step, 0);
}

TEST(RunLogOf, TellsWhereUpdatesWereSkipped) {
  const auto idle = [](const std::string& text) {
    const auto told = LogOf(text).told.idle;
    return told.empty() ? std::vector<double>() : told.front().value;
  };
  const std::string end = " | number of nan iterations: 0 |\n";
  const std::string skipped = " | number of skipped iterations: ";
  EXPECT_THAT(
      idle(" iteration 1/ 3 | lm loss: 3.5E+00" + skipped + "1" + end +
           " iteration 2/ 3 | lm loss: 3.4E+00" + skipped + "0" + end +
           " iteration 12/ 30 | lm loss: 3.4E+00" + skipped + "4" + end),
      ElementsAre(0, 1, 1));
  EXPECT_THAT(idle("[Rank 0] step=1, skipped=1, lr=[0.1], mom=[0.9]\n"
                   "steps: 1 loss: 2.3 iter time (s): 0.5\n"
                   "[Rank 0] step=2, skipped=1, lr=[0.1], mom=[0.9]\n"
                   "steps: 2 loss: 2.2 iter time (s): 0.5\n"),
              ElementsAre(0, 1));
  EXPECT_THAT(idle("step,loss,update_norm\n1,3,0.5\n2,2.9,0.0\n"),
              ElementsAre(0.5, 0));
}

TEST(Names, OfOptimizersAreKnownByTheirLastPart) {
  for (const char* name : {"optim/total_grad_norm", "actor/grad_norm",
                           "total_norm", "gnorm", "learning/grad_norm"}) {
    EXPECT_EQ(FindName(name).quantity, Quantity::kGradNorm) << name;
  }
  for (const char* name :
       {"optim/learning_rate_group0", "actor/lr", "lr_0", "optimizer/lr"}) {
    EXPECT_EQ(FindName(name).quantity, Quantity::kLearningRate) << name;
  }
  // Of a part that may be frozen, and of no norm.
  for (const char* name : {"embedding/grad_norm", "norm_0", "actor/loss"}) {
    EXPECT_EQ(FindName(name).quantity, Quantity::kOther) << name;
  }
}

}  // namespace
}  // namespace isoloss::foreign
