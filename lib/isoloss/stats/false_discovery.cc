#include "isoloss/stats/false_discovery.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "isoloss/base/error.h"

namespace isoloss::stats {

/// A value at a rank is min over k >= rank of min(1, m / k * p_(k)).
std::vector<double> BenjaminiHochberg(std::span<const double> p_values) {
  for (const double p : p_values) {
    if (!(p >= 0 && p <= 1)) {
      ThrowError(ErrorKind::kConfig,
                 "false discovery rate: a p-value is {}, but it must lie in "
                 "[0, 1].",
                 p);
    }
  }
  const size_t m = p_values.size();
  std::vector<size_t> order(m);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(m);
  double smallest = 1;
  for (size_t rank = m; rank > 0; --rank) {
    const size_t index = order[rank - 1];
    const double factor = static_cast<double>(m) / static_cast<double>(rank);
    smallest = std::min(smallest, factor * p_values[index]);
    adjusted[index] = smallest;
  }
  return adjusted;
}

}  // namespace isoloss::stats
