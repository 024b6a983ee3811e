// Any bytes as a log of another program: refused with an Error, or runs whose
// series ascend and can be told about.
#include <string>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/foreign/findings.h"
#include "isoloss/foreign/read.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using isoloss::Error;
  using isoloss::ErrorKind;
  namespace foreign = isoloss::foreign;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto runs = foreign::ParseLog(text);
    ISOLOSS_ASSERT(!runs.empty());
    for (const foreign::ForeignRun& run : runs) {
      ISOLOSS_ASSERT(!run.series.empty());
      for (const foreign::Series& series : run.series) {
        ISOLOSS_ASSERT(series.step.size() == series.value.size());
        for (size_t i = 1; i < series.step.size(); ++i) {
          ISOLOSS_ASSERT(series.step[i - 1] < series.step[i]);
        }
      }
      foreign::FindingsOf(run);
    }
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
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
  };
}
