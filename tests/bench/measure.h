// Clocks, the machine's own limit, medians.
#pragma once

#include <cstddef>
#include <vector>

namespace isoloss::bench {

/// Seconds since an unspecified beginning.
using Clock = double (*)();

double WallSeconds();
/// Seconds this thread has run on a processor: other programs on the machine do
/// not count, but what they do to caches and clock does.
double ThreadSeconds();

/// FP32 operations a second of a register-only loop of fused multiply-adds on
/// the calling thread; takes about half a millisecond.
double FmaPeak();

/// The middle one, the upper of two. At least one.
double Median(std::vector<double> values);

}  // namespace isoloss::bench
