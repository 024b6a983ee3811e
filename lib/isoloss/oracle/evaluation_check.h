// The oracle of an evaluation: its loss is the mean over held-out sequences of
// what a training step computes of each token, in the same arithmetic.
//
// So sequences that a later step trains on are held out: what that step
// announces, the evaluation before it must have found, too.
#pragma once

#include <cstdint>
#include <span>

#include "isoloss/corpus/corpus.h"
#include "isoloss/oracle/report_sink.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/train/experiment.h"

namespace isoloss::oracle {

/// The name of what CheckEvaluation compares.
inline constexpr const char* kHeldOutLoss = "held_out_loss";

/// `experiment`, with an evaluation after each step of two batches' sequences.
/// What it trains on stays as it is. Routing that is replayed is learned, since
/// no log holds that of an evaluation.
train::Experiment EvaluatingBatches(train::Experiment experiment);

/// Trains as `corpus` does, but its held-out sequences are those of the batch
/// of `step`, twice.
corpus::Corpus HoldingOutBatch(const corpus::Corpus& corpus,
                               const train::Experiment& experiment,
                               uint64_t seed, int64_t step);

/// The evaluation before `step` in `log`, a run of the two above. An evaluation
/// that is not there, or of other sequences, is `other`.
/// Shapes   token_losses [T], as announced in that step.
void CheckEvaluation(const runlog::RunLog& log, int64_t step,
                     std::span<const float> token_losses, ReportSink& sink);

}  // namespace isoloss::oracle
