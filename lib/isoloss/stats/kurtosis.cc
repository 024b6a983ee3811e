#include "isoloss/stats/kurtosis.h"

#include <cstddef>

namespace isoloss::stats {

double Kurtosis(std::span<const float> values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  const double mean = sum / count;
  double squares = 0;
  double fourth = 0;
  for (const float value : values) {
    const double deviation = static_cast<double>(value) - mean;
    const double square = deviation * deviation;
    squares += square;
    fourth += square * square;
  }
  return count * fourth / (squares * squares);
}

}  // namespace isoloss::stats
