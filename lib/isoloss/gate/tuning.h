// Judges whether runs were trained as well as a verdict on precision needs: at
// a tuned learning rate, and beyond what counts of token pairs know.
#pragma once

#include "isoloss/gate/evidence.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::gate {

/// Adds two checks of level L5 to a judgement on precision of isoloss' own runs
/// that is not FAIL or INVALID. They turn PASS into INCONCLUSIVE:
///   tuning  there is no sweep of learning rates, it was of another
///           configuration or text, or the rate of the runs is not within a
///           factor 1.5 of the best one tried
///   learnt  the baseline's final loss is not below the bigram entropy, or has
///           not come nine tenths of the way from the unigrams to the floor of
///           a synthetic source; or the log does not tell these entropies
/// If the policy does not ask for them, doubts become warnings. Then, and for
/// runs of other programs, judgement.rate_note says that nobody judged the
/// rate.
void ApplyTuning(const Evidence& evidence, Judgement& judgement);

}  // namespace isoloss::gate
