// Verifies an evaluation: its loss is the mean of the token losses of held-out
// sequences, in the arithmetic of a training step.
//
// To get both, sequences that a later step trains on are held out. The
// evaluation before this step must find the losses that the step announces.
#pragma once

#include <cstdint>
#include <span>

#include "isoloss/corpus/corpus.h"
#include "isoloss/runlog/run_log.h"
#include "isoloss/step_checks/report_sink.h"
#include "isoloss/train/experiment.h"

namespace isoloss::step_checks {

/// CheckEvaluation adds its comparison under this name.
inline constexpr const char* kHeldOutLoss = "held_out_loss";

/// Returns `experiment` with an evaluation of two batches' sequences after each
/// step. Its training does not change. Replayed routing becomes learned, since
/// no log holds an evaluation's routing.
train::Experiment EvaluatingBatches(train::Experiment experiment);

/// Returns a corpus that trains as `corpus` does. Its held-out sequences are
/// those of the batch of `step`, twice.
corpus::Corpus HoldingOutBatch(const corpus::Corpus& corpus,
                               const train::Experiment& experiment,
                               uint64_t seed, int64_t step);

/// Compares the evaluation before `step` in `log`, a run of the experiment and
/// corpus above. An evaluation is `other` if it is missing or has other
/// sequences.
/// Shapes   token_losses [T], as announced in that step.
void CheckEvaluation(const runlog::RunLog& log, int64_t step,
                     std::span<const float> token_losses, ReportSink& sink);

}  // namespace isoloss::step_checks
