#include "isoloss/foreign/run_log_of.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/batch_names.h"
#include "isoloss/foreign/read.h"

namespace isoloss::foreign::run_log_of_test {
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
  EXPECT_FALSE(log.provenance.Knows(runlog::Fact::kExperiment));
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

/// "perhaps " before one that is not sure.
std::string FactNamed(const std::string& name) {
  const BatchName named = BatchNamed(name);
  return named.sure || named.fact.empty() ? named.fact
                                          : "perhaps " + named.fact;
}

TEST(BatchFacts, AreKnownByEachUsualName) {
  for (const char* name :
       {"consumed_samples", "consumed-samples", "train/consumed_samples",
        "Consumed Samples", "samples_seen", "time/sample"}) {
    EXPECT_EQ(FactNamed(name), "samples seen") << name;
  }
  for (const char* name :
       {"global batch size", "global_batch_size", "trainer/global_batch_size",
        "gbs", "total_train_batch_size"}) {
    EXPECT_EQ(FactNamed(name), "global batch size") << name;
  }
  EXPECT_EQ(FactNamed("num_input_tokens_seen"), "tokens seen");
  EXPECT_EQ(FactNamed("num_examples_seen"), "samples seen");
  EXPECT_EQ(FactNamed("effective_batch"), "global batch size");
  EXPECT_EQ(FactNamed("tokens_per_step"), "tokens of a step");
  EXPECT_EQ(FactNamed("num_sequences"), "number of sequences");
  EXPECT_EQ(FactNamed("parallel/dp_degree"), "data-parallel size");
  EXPECT_EQ(FactNamed("total_steps"), "") << "a plan is no batch";
  EXPECT_EQ(FactNamed("world-size"), "world size");
  EXPECT_EQ(FactNamed("train/epoch"), "epochs seen");
  EXPECT_EQ(FactNamed("max_seq_len"), "sequence length");
  EXPECT_EQ(FactNamed("gradient_accumulation_steps"),
            "gradient accumulation steps");
  EXPECT_EQ(FactNamed("samples vs steps"), "samples seen");
  // What a rank takes at once may differ.
  EXPECT_EQ(FactNamed("micro_batch_size"), "");
  EXPECT_EQ(FactNamed("samples_per_second"), "");
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

TEST(BatchFacts, AreReadFromDumpsOfSettings) {
  const auto reads = [](const std::string& line, const std::string& fact) {
    EXPECT_THAT(BatchesOf(line + "\n" + kTitan), ElementsAre(fact)) << line;
  };
  reads("Namespace(batch_size=64, lr=0.1)", "batch size 64 at 0");
  reads("    \"train_batch_size\": 64,", "batch size 64 at 0");
  reads("| sequence length T     | 1024 |", "sequence length 1024 at 0");
  reads("Training on 64 GPUs", "world size 64 at 0");
  reads("torchrun --nproc_per_node=64 train.py",
        "torchrun n proc per node 64 at 0");
  reads("Using 64 GPUs", "number of gpus in the text 64 at 0");
}

TEST(BatchFacts, OfATrainerStateStandBesideItsRows) {
  EXPECT_THAT(
      BatchesOf(R"({"train_batch_size": 8, "num_input_tokens_seen": 2048,
                    "global_step": 2, "log_history": [
                    {"step": 1, "loss": 3.5}, {"step": 2, "loss": 3.25}]})"),
      UnorderedElementsAre("tokens seen 2048 at 2",
                           "train batch size of trainer state 8 at 0"));
}

// A rate falls somewhere, and is none of the counts that its name may mean.
TEST(BatchFacts, CountSomething) {
  const auto of = [](const std::string& name, const std::string& values) {
    std::string text = "step,loss," + name + "\n";
    std::istringstream each(values);
    int step = 0;
    for (std::string value; each >> value; ++step) {
      text += fmt::format("{},{},{}\n", step + 1, 3.5 - 0.1 * step, value);
    }
    return BatchesOf(text);
  };
  EXPECT_THAT(of("throughput/tokens", "5000 5100 4900"), IsEmpty());
  EXPECT_THAT(of("tokens", "64 128 192"), ElementsAre("tokens seen 192 at 3"));
  EXPECT_THAT(of("tokens", "64 64 64"),
              ElementsAre("tokens of a step 64 at 3"));
  // Under a name that is not sure only one number, or one that grows evenly.
  EXPECT_THAT(of("tokens_M", "0.5 1 1.5"), ElementsAre("tokens m 1.5 at 3"));
  EXPECT_THAT(of("cached_tokens", "5 6 9"), IsEmpty());
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
        "mean tokens per step: 5123.25\n", "inference batch size: 4\n",
        "[INFO] prefetch batch size 4\n", "tokenizer batch size = 1000\n",
        "benchmark: num_steps: 10, batch size 3\n",
        "cuda graph capture, batch size 1\n", "Batch size (per GPU): 8\n",
        "CUDA_VISIBLE_DEVICES=3\n"}) {
    EXPECT_THAT(BatchesOf(text + kTitan), IsEmpty()) << text;
  }
  EXPECT_THAT(BatchesOf("***** Running Evaluation *****\n  Batch size = 8\n"
                        "***** Running training *****\n  Batch size = 16\n" +
                        kTitan),
              ElementsAre("batch size 16 at 0"));
}

// By its words, in any order: any name that programs may think of.
TEST(BatchFacts, AreKnownByTheWordsOfAName) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"cum_tokens tokens-trained tokens_so_far TokensSeen", "tokens seen"},
      {"total_samples_seen samples/processed SamplesSeen", "samples seen"},
      {"bs train_bs batchsize optimizer_batch_size", "batch size"},
      {"global_bs batch_size_total total_batch batch-size/global",
       "global batch size"},
      {"ctx_len nctx context_size train_seq_len seqlen", "sequence length"},
      {"n_gpu ngpus gpus num_processes world gpu_count", "world size"},
      {"tokens_in_batch per_step_tokens batch_size_tokens", "tokens of a step"},
      {"grad_acc accum accumulation_steps ga_steps",
       "gradient accumulation steps"},
      {"dp data_parallel dp_world_size", "data-parallel size"},
      // With a word that is not known.
      {"mini_batch_size", "perhaps mini batch size"},
      {"tokens_M", "perhaps tokens m"},
      {"nnodes", "perhaps n nodes"}};
  for (const auto& [of, fact] : names) {
    std::istringstream each(of);
    for (std::string name; each >> name;) {
      EXPECT_EQ(FactNamed(name), fact) << name;
    }
  }
}

// These differ in good pairs, on other machines or with other formats.
TEST(BatchFacts, AreNoneOfOtherWords) {
  for (const char* name : {"samples_per_sec",
                           "tokens_per_gpu",
                           "tokens_per_expert",
                           "loss_per_token",
                           "batch_time",
                           "gpu_util",
                           "gpu_memory",
                           "num_workers",
                           "rank",
                           "dp_rank",
                           "mx_block_size",
                           "amax_history_len",
                           "context-parallel size",
                           "completion_length",
                           "vocab_size",
                           "eval/tokens",
                           "val_batch_size",
                           "batch-size vs samples",
                           "num_epochs",
                           "per_device_train_batch_size",
                           "inference/batch_size",
                           "dropped_tokens"}) {
    EXPECT_EQ(FactNamed(name), "") << name;
  }
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

// By words, since each program has names of its own.
TEST(Plan, IsToldByWordsOfAllSteps) {
  const auto planned = [](const std::string& text) {
    return LogOf(text).provenance.steps_planned;
  };
  for (const char* line :
       {"max_steps: 60", "max_steps=60,", "num_steps: 60", "maxTrainSteps = 60",
        "[rank0] INFO - num_training_steps: 60", "trainer.max_steps=60",
        "Total training steps: 60", "num_iterations: 60", "Max steps: 60",
        "Starting training for 60 steps", "  max_steps ........... 60",
        "config {\"max_steps\": 60, \"lr\": 1}", "Number of training steps: 60",
        "epochs: 2, steps per epoch: 30", "end_step: 60"}) {
    EXPECT_EQ(planned(line + ("\n" + kTitan)), 60) << line;
  }
  // Of a part of the run, of no training, or the step that is at work.
  for (const char* line :
       {"warmup_steps: 60", "eval_max_steps: 60", "env.max_steps: 60",
        "save every 60 steps", "benchmark: num_steps: 60", "train step: 60",
        "num steps per epoch: 60", "lr_decay_steps: 60", "  max_steps: 60",
        "Config: {'agent': {'max_steps': 60}}",
        "scheduler ...... {'total_num_steps': 60}", "steps per epoch: 60",
        "log_interval_steps 60", "num_train_steps_per_env: 60",
        "epochs: 2, steps per epoch: 30, gradient_accumulation_steps: 2",
        "training for 60 epochs", "training for 60 steps per epoch"}) {
    EXPECT_EQ(planned(line + ("\n" + kTitan)), 1) << line;
  }
  // What means nothing else goes before.
  EXPECT_EQ(planned("total steps 30\nnum_steps: 60\n" + kTitan), 30);
  for (const char* name : {"num_training_steps", "max_step", "total_iters",
                           "end_step", "train/num_steps", "steps_total"}) {
    EXPECT_EQ(planned(fmt::format("step,loss,{}\n1,3,60\n2,2.9,60\n", name)),
              60)
        << name;
  }
  EXPECT_EQ(planned("step: 1 / 60 | loss: 3.5\n"), 60);
  EXPECT_EQ(planned(R"({"0": {"lm loss": 3.5}, "1": {"lm loss": 3.4},
                        "2": {"lm loss": "nan"}})"),
            3);
  EXPECT_EQ(planned(R"({"lm loss": {"values": [3.5, 3.4, "nan", "nan"]}})"), 4);
  const std::string trainer =
      R"("num_train_epochs": 4, "max_steps": -1, "global_step": 30,
         "log_history": [{"step": 30, "loss": 3}]})";
  EXPECT_EQ(planned("{\"epoch\": 2.0, " + trainer), 60);
  EXPECT_EQ(planned("{\"epoch\": 3.97, " + trainer), 30);
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

TEST(BrokeOff, IsSaidByErrorsSignalsAndExitCodes) {
  const auto complete = [](const std::string& line) {
    return LogOf(kTitan + line + "\n").provenance.complete;
  };
  for (const char* line :
       {"torch.OutOfMemoryError: CUDA out of memory.", "KeyboardInterrupt",
        "[rank0]: torch.distributed.DistBackendError: NCCL error",
        "RuntimeError: loss is NaN", "Killed", "Aborted (core dumped)",
        "run.sh: line 3:  1234 Killed      python train.py", "Bus error",
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 123.0",
        "srun: error: n1: task 3: Exited with exit code 1",
        "E torch.distributed.elastic failed (exitcode: -9) local_rank: 0",
        "[Rank 0] Watchdog caught collective operation timeout",
        "Loss is nan, stopping training", "exiting program at iteration 60",
        "received SIGTERM, saving checkpoint", "Training interrupted"}) {
    EXPECT_FALSE(complete(line)) << line;
  }
  for (const char* line :
       {"exit code 0", "process exited with exit code: 0", "Errors: 0",
        "saving a checkpoint", "number of nan iterations: 0", "Error rate: 0.5",
        "peak signal 3", "UserWarning: destroy it",
        "Early stopping, no improvement"}) {
    EXPECT_TRUE(complete(line)) << line;
  }
  EXPECT_TRUE(
      complete("Exception ignored in: <x>\nTraceback (most recent "
               "call last):\n  File\nOSError: closed"));
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

// Megatron-LM leaves the loss out then, and DeepSpeed's is none.
TEST(RunLogOf, MissesNoLossOfASkippedUpdate) {
  std::string text;
  for (int i = 1; i <= 20; ++i) {
    const bool skips = i == 18;
    text += fmt::format(
        " iteration {}/ 20 | learning rate: 1.0E-4 |{} number of skipped "
        "iterations: {} | number of nan iterations: 0 |\n",
        i, skips ? "" : " lm loss: 3.5E+00 |", skips ? 1 : 0);
  }
  const ForeignRun run = ParseLog(text).front();
  EXPECT_EQ(run.Main(Quantity::kLoss)->step.size(), 19u);
  EXPECT_THAT(run.without_loss, IsEmpty());
}

}  // namespace
}  // namespace isoloss::foreign::run_log_of_test
