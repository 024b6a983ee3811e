// Any bytes as a log of another program: refused with an Error, or runs whose
// series ascend and can be told about.
#include <string>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/read.h"

namespace {

namespace foreign = isoloss::foreign;

void Read(const std::string& text, const foreign::ReadOptions& options) {
  try {
    const auto runs = foreign::ParseLog(text, options);
    ISOLOSS_ASSERT(!runs.empty());
    for (const foreign::ForeignRun& run : runs) {
      ISOLOSS_ASSERT(!run.series.empty());
      ISOLOSS_ASSERT(options.loss.empty() ||
                     run.Main(foreign::Quantity::kLoss)->name == options.loss);
      for (const foreign::Series& series : run.series) {
        ISOLOSS_ASSERT(series.step.size() == series.value.size());
        for (size_t i = 1; i < series.step.size(); ++i) {
          ISOLOSS_ASSERT(series.step[i - 1] < series.step[i]);
        }
      }
      foreign::FindingsOf(run);
    }
  } catch (const isoloss::Error& error) {
    ISOLOSS_ASSERT(error.kind() == isoloss::ErrorKind::kFormat);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Read(text, {});
  // As of the seeds with columns that no program has.
  if (text.find("nll") != std::string::npos) Read(text, {"it", "nll"});
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  return {
      "step:  1  loss:  3.86442  grad_norm:  1.2345  tps: 1,234\n"
      "validate step: 10  loss:  3.5012\n",
      " iteration 10/ 100 | lm loss: 1.0E+01 | number of skipped iterations: 0 "
      "|\n validation loss at iteration 50 | lm loss value: 8.8E+00 |\n",
      ":::MLLOG {\"key\": \"train_loss\", \"value\": 5.25, \"metadata\": "
      "{\"samples_count\": 1152.0}}\n",
      "steps: 10 loss: 5.1 iter time (s): 0.5 samples/sec: 31.2\n",
      "iter 0: loss 4.2, time 28.9ms\nstep 0: train loss 4.2, val loss 4.2\n",
      "s:0 tel:11.0\ns:0 trl:10.9 lr:0.0006 norm:1.2\n",
      "1 8.1313037872314453 1.5\n2 7.9 870000.0\n",
      "{\"log_history\": [{\"loss\": 0.0, \"grad_norm\": NaN, \"step\": 10}]}",
      "{\"lm loss\": {\"step_interval\": 5, \"values\": {\"1\": 10.9}}}",
      "{\"lm loss\": {\"step_interval\": 5, \"values\": [10.9, \"nan\"]}}",
      "{\"0\": {\"lm loss\": 12.5}, \"alloc\": 1.0}",
      "{\"_step\": 0, \"train\": {\"loss\": 3.5}}\n{\"_step\": 1}\n",
      "\"Step\",\"a - loss\",\"a - loss__MIN\",\"a - loss__MAX\"\n"
      "\"0\",\"3.5\",\"3.5\",\"3.5\"\n",
      "epoch,step,train_loss_step\r\n0,49,2.5\r\n",
      "\"Step\",\"loss\",\"loss__MIN\",\"loss__MAX\"\n\"0\",\"3\",\"2\","
      "\"4\"\n",
      "Wall time,Step,Value\n1700000000.5,1,2.5\n1700000001.5,3,2.25\n",
      "it;nll;split\n1;2,5;train\n1;2,75;val\n",
      "it\tnll\n1\t2.5\n2\tnan\n",
      "{\"it\": 1, \"nll\": 2.5}\n{\"it\": 2, \"nll\": NaN, \"split\": "
      "\"eval\"}\n",
      "[{\"step\": 1, \"loss\": 2.5}, {\"step\": 2, \"loss\": -Infinity}]",
      "{\"ref\": {\"Benchmark\": \"b\", \"BS\": 32, \"Epochs to converge\": "
      "[1, 2.5]}}",
      "0: :::MLLOG {\"key\": \"submission_benchmark\", \"value\": \"b\"}\n"
      ":::MLLOG {\"key\": \"eval_accuracy\", \"value\": 0.5, \"metadata\": "
      "{\"epoch_num\": 0.25}}\n:::MLLOG {\"key\": \"tracked_stats\", "
      "\"value\": {\"train_loss\": 2.5}, \"metadata\": {\"step\": 31.0}}\n",
      " samples/sec: 7.5 | iteration  3/ 9 | lm_loss: 1.1E+01 |\n more: 2 |\n",
      "[x] [Rank 0] step=10, skipped=4, lr=[0.0001,0.1], mom=[(0.9, 0.95)]\n",
      "10 | loss 3.1 | lr 3.0e-04 | 12.34ms | mfu 1.5%\n",
      "step    1/74 | train loss 3.1 (+nanz)| norm 1.2 | lr 2.9e-07 | 3 ms\n",
      "0 val 10.9\n0 hella 0.25\n0 train 10.5\n",
      "step:1/9 train_loss:10.5 train_time:1ms\nstep:1/9 val_loss:10.25\n",
      "INFO - layer.1_activation_mean   iteration=000002   value=4.3188\n",
      "{'loss': 8.3368, 'grad_norm': nan, 'epoch': 0.01}\n",
  };
}
