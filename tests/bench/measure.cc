#include "measure.h"

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "measure.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Runs `passes` x 12 fused multiply-adds of a vector, in 12 chains that only
/// touch registers, and returns the floating-point operations done.
double RunFmaLoop(size_t passes) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5f);
  // Starts differ, or the compiler would find the chains equal and keep one.
  const auto start = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  auto c0 = start(0), c1 = start(1), c2 = start(2), c3 = start(3);
  auto c4 = start(4), c5 = start(5), c6 = start(6), c7 = start(7);
  auto c8 = start(8), c9 = start(9), c10 = start(10), c11 = start(11);
  for (size_t pass = 0; pass < passes; ++pass) {
    c0 = hn::MulAdd(c0, factor, factor);
    c1 = hn::MulAdd(c1, factor, factor);
    c2 = hn::MulAdd(c2, factor, factor);
    c3 = hn::MulAdd(c3, factor, factor);
    c4 = hn::MulAdd(c4, factor, factor);
    c5 = hn::MulAdd(c5, factor, factor);
    c6 = hn::MulAdd(c6, factor, factor);
    c7 = hn::MulAdd(c7, factor, factor);
    c8 = hn::MulAdd(c8, factor, factor);
    c9 = hn::MulAdd(c9, factor, factor);
    c10 = hn::MulAdd(c10, factor, factor);
    c11 = hn::MulAdd(c11, factor, factor);
  }
  const auto s0 = hn::Add(hn::Add(c0, c1), hn::Add(c2, c3));
  const auto s1 = hn::Add(hn::Add(c4, c5), hn::Add(c6, c7));
  const auto s2 = hn::Add(hn::Add(c8, c9), hn::Add(c10, c11));
  benchmark::DoNotOptimize(hn::GetLane(hn::Add(s0, hn::Add(s1, s2))));
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d) * passes);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::bench {
namespace {

HWY_EXPORT(RunFmaLoop);

}  // namespace

double WallSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

double FmaPeak() {
  constexpr size_t kPasses = 300'000;
  const double start = ThreadSeconds();
  const double flops = HWY_DYNAMIC_DISPATCH(RunFmaLoop)(kPasses);
  return flops / (ThreadSeconds() - start);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace isoloss::bench

#endif  // HWY_ONCE
