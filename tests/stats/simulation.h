// What the tests of coverage share: random numbers and a judge of rates.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::stats {

/// Independent standard normal numbers by Box and Muller, the same in every
/// run; each name is a stream of its own.
class Normal {
 public:
  explicit Normal(const char* name) : rng_(7, StreamId(name)) {}

  double Next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2 * std::log1p(-rng_.Uniform(index_)));
    const double angle = 2 * std::numbers::pi * rng_.Uniform(index_ + 1);
    index_ += 2;
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

  std::vector<double> Sample(int count, double mean = 0, double sd = 1) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(mean + sd * Next());
    return values;
  }

 private:
  CounterRng rng_;
  uint64_t index_ = 0;
  double spare_ = 0;
  bool has_spare_ = false;
};

/// A stationary first-order autoregression x_t = phi x_{t-1} + e_t.
inline std::vector<double> Autoregression(Normal& normal, int count,
                                          double phi) {
  std::vector<double> values;
  double x = normal.Next() / std::sqrt(1 - phi * phi);
  for (int i = 0; i < count; ++i) {
    values.push_back(x);
    x = phi * x + normal.Next();
  }
  return values;
}

/// Four standard deviations of a rate of `trials` independent trials that each
/// succeed with `probability`. A correct procedure leaves +-4 sigma in one of
/// 16 000 checks; the seeds being fixed, it either does or never does.
inline double FourSigma(double probability, int trials) {
  return 4 * std::sqrt(probability * (1 - probability) / trials);
}

/// hits / trials is `probability`, within four standard deviations.
inline void ExpectRate(int hits, int trials, double probability) {
  EXPECT_NEAR(static_cast<double>(hits) / trials, probability,
              FourSigma(probability, trials));
}

/// hits / trials is at most `probability`, but for four standard deviations.
inline void ExpectRateAtMost(int hits, int trials, double probability) {
  EXPECT_LE(static_cast<double>(hits) / trials,
            probability + FourSigma(probability, trials));
}

}  // namespace isoloss::stats
