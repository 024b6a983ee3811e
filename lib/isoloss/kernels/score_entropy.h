// Measures how evenly a token's scores are spread over the experts.
#pragma once

#include <span>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"

namespace isoloss::kernels {

/// Returns the entropy in nats of scores / sum(scores): ln(S) - sum(s ln s) /
/// S, in FP64, with sums in four lanes. Logarithms of scores come from a table
/// made by Log, which itself would take several times as long; they are good to
/// 1e-12.
/// Special  scores that are 0 count nothing; NaN if one is NaN or all are 0.
double ScoreEntropy(std::span<const float> scores);

/// Computes the entropy of each row.
/// Shapes   scores [T, E]; entropies [T].
void ScoreEntropies(MatrixView<const float> scores, std::span<double> entropies,
                    Executor& executor);

}  // namespace isoloss::kernels
