// Sums along a row in 16 logical lanes, as rowwise.h defines them. It is
// constexpr, so that kernels of a device can share this text.
#pragma once

#include <cmath>
#include <cstddef>

namespace isoloss::kernels {

/// Element i of a row is added to lane i mod kLanes.
inline constexpr size_t kLanes = 16;

/// Returns the sum of a(i) * b(i) over the elements of one lane. A short last
/// group of lanes is padded with zeros, which turn -0 into +0.
template <typename T, typename A, typename B>
constexpr T SumOfLane(size_t lane, size_t count, const A& a, const B& b) {
  T sum{0};
  for (size_t i = lane; i < count; i += kLanes) sum = std::fma(a(i), b(i), sum);
  const bool padded = lane >= count % kLanes && count % kLanes != 0;
  return padded ? std::fma(T{0}, T{0}, sum) : sum;
}

/// Adds lanes pairwise: 8, 4, 2, 1 apart. Overwrites them.
template <typename T>
constexpr T FoldLanes(T* lanes) {
  for (size_t apart = kLanes / 2; apart > 0; apart /= 2) {
    for (size_t i = 0; i < apart; ++i) lanes[i] += lanes[i + apart];
  }
  return lanes[0];
}

/// Returns the sum of a(i) * b(i) over i < count.
template <typename T, typename A, typename B>
constexpr T LaneDot(size_t count, const A& a, const B& b) {
  T lanes[kLanes] = {};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = SumOfLane<T>(lane, count, a, b);
  }
  return FoldLanes(lanes);
}

/// Returns the larger value. NaN is passed over: the exponentials that follow
/// spread it.
constexpr float Larger(float largest, float value) {
  return value > largest ? value : largest;
}

}  // namespace isoloss::kernels
