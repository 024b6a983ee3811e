#include "isoloss/stats/isotonic.h"

#include <cstddef>

namespace isoloss::stats {

std::vector<double> IsotonicFit(std::span<const double> values) {
  struct Pool {
    double mean;
    double count;
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    Pool last{value, 1};
    while (!pools.empty() && pools.back().mean >= last.mean) {
      const Pool& before = pools.back();
      const double count = before.count + last.count;
      last = {(before.mean * before.count + last.mean * last.count) / count,
              count};
      pools.pop_back();
    }
    pools.push_back(last);
  }
  std::vector<double> fit;
  for (const Pool& pool : pools) {
    fit.insert(fit.end(), static_cast<size_t>(pool.count), pool.mean);
  }
  return fit;
}

}  // namespace isoloss::stats
