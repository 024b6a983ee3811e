// Orders in which FP32 may sum a product, and the types that tests name others
// by.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace isoloss::oracle {

using Row = std::vector<float>;
using Order = std::function<float(const Row& a, const Row& b)>;

inline float Ascending(const Row& a, const Row& b) {
  float sum = 0.0f;
  for (size_t k = 0; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

inline float Reversed(const Row& a, const Row& b) {
  float sum = 0.0f;
  for (size_t k = a.size(); k-- > 0;) sum = std::fma(a[k], b[k], sum);
  return sum;
}

}  // namespace isoloss::oracle
