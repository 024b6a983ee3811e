#include "isoloss/step_checks/evaluation_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/corpus/batches.h"
#include "isoloss/oracle/comparison.h"

namespace isoloss::step_checks {
namespace {

/// The batch is held out twice, so that an evaluation's second forward pass is
/// checked, too.
constexpr size_t kTimes = 2;

/// Returns the estimate of an FP64 mean, whose error is far below what FP32
/// shows.
oracle::Estimate Mean(double sum, size_t count) {
  const double mean = sum / static_cast<double>(count);
  return {.exact = mean,
          .bound = static_cast<double>(count + 1) * 0x1p-52 * std::fabs(mean)};
}

}  // namespace

train::Experiment EvaluatingBatches(train::Experiment experiment) {
  experiment.log.eval_every = 1;
  experiment.log.eval_sequences = kTimes * experiment.train.sequences_per_batch;
  if (experiment.routing.mode == train::RoutingMode::kReplay) {
    experiment.routing.mode = train::RoutingMode::kLearned;
  }
  return experiment;
}

/// Puts the batch's sequences side by side, each with the label of its last
/// token. The share holds exactly as many evaluation windows, so that each
/// window begins where a sequence does.
corpus::Corpus HoldingOutBatch(const corpus::Corpus& corpus,
                               const train::Experiment& experiment,
                               uint64_t seed, int64_t step) {
  corpus::Batch batch;
  corpus::Batches(corpus, experiment.data.sequence_length, 1)
      .Training(seed, step, experiment.train.sequences_per_batch, batch);
  std::vector<int32_t> held_out;
  for (size_t time = 0; time < kTimes; ++time) {
    size_t begin = 0;
    for (const size_t end : batch.sequence_ends) {
      for (size_t t = begin; t < end; ++t) held_out.push_back(batch.tokens[t]);
      held_out.push_back(batch.labels[end - 1]);
      begin = end;
    }
  }
  return corpus.HoldingOut(std::move(held_out));
}

void CheckEvaluation(const runlog::RunLog& log, int64_t step,
                     std::span<const float> token_losses, ReportSink& sink) {
  oracle::Comparison comparison(oracle::Grid::kFp32);
  const auto found = std::ranges::find(log.eval.step, step - 1);
  const auto place = static_cast<size_t>(found - log.eval.step.begin());
  const auto sequences = static_cast<size_t>(log.eval.sequences);
  const bool fits = found != log.eval.step.end() && sequences > 0 &&
                    token_losses.size() * kTimes % sequences == 0;
  if (!fits) {
    comparison.AddOther(0, 0, std::nanf(""), 0.0);
    sink.Add(kHeldOutLoss, comparison);
    return;
  }
  const size_t length = token_losses.size() * kTimes / sequences;
  double of_all = 0.0;
  for (size_t i = 0; i < sequences; ++i) {
    double sum = 0.0;
    for (size_t t = 0; t < length; ++t) {
      const size_t token = (i * length + t) % token_losses.size();
      sum += static_cast<double>(token_losses[token]);
    }
    const double logged =
        log.eval.per_sequence_loss_nats[place * sequences + i];
    comparison.Add(i + 1, 0, static_cast<float>(logged), Mean(sum, length));
    of_all += sum;
  }
  comparison.Add(0, 0, static_cast<float>(log.eval.loss_nats[place]),
                 Mean(of_all, sequences * length));
  sink.Add(kHeldOutLoss, comparison);
}

}  // namespace isoloss::step_checks
