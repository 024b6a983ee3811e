#include "isoloss/estimators/gap_cell.h"

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/stats/student_t.h"
#include "isoloss/stats/summary.h"

namespace isoloss::estimators {

CellMean MeanOfCell(std::span<const double> values) {
  const stats::Summary summary = stats::Summarize(values);
  if (summary.count < 2 || !std::isfinite(summary.mean)) {
    ThrowError(ErrorKind::kConfig,
               "ladder: a size has {} seeds with mean {}, but each needs at "
               "least 2, all of them finite.",
               summary.count, summary.mean);
  }
  double largest = 1e-12;
  for (const double value : values) {
    largest = std::max(largest, std::fabs(value));
  }
  const auto count = static_cast<double>(summary.count);
  return {.mean = summary.mean,
          .error = std::max(summary.sd / std::sqrt(count), 1e-9 * largest),
          .degrees_of_freedom = count - 1};
}

std::vector<double> DrawMeans(std::span<const CellMean> means, size_t resamples,
                              uint64_t seed, const char* stream) {
  const CounterRng rng(seed, StreamId(stream));
  std::vector<double> draws;
  draws.reserve(resamples * means.size());
  for (size_t i = 0; i < resamples; ++i) {
    for (const CellMean& cell : means) {
      // Half a step is added, so that neither 0 nor 1 occurs.
      const double uniform = rng.Uniform(draws.size()) + 0x1p-54;
      draws.push_back(cell.mean +
                      cell.error * stats::StudentTQuantile(
                                       uniform, cell.degrees_of_freedom));
    }
  }
  return draws;
}

}  // namespace isoloss::estimators
