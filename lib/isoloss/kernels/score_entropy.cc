#include "isoloss/kernels/score_entropy.h"

#include <array>

#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/score_log.h"

namespace isoloss::kernels {

double ScoreEntropy(std::span<const float> scores) {
  static const auto intervals = [] {
    std::array<ScoreLog::Interval, ScoreLog::kIntervals> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = ScoreLog::IntervalOf(i);
    return all;
  }();
  return ScoreEntropyOf({intervals.data()}, scores.data(), scores.size());
}

void ScoreEntropies(MatrixView<const float> scores, std::span<double> entropies,
                    Executor& executor) {
  RequireLength("ScoreEntropies", "entropies", entropies.size(), scores.rows());
  if (RanElsewhere(&ScoreEntropies, scores, entropies, executor)) return;
  ForEachRow(scores.rows(), executor, [&](size_t t) {
    entropies[t] = ScoreEntropy({scores.Row(t), scores.cols()});
  });
}

}  // namespace isoloss::kernels
