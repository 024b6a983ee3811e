// Runs of another program that never happened, as their logs would tell them.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "isoloss/compare/pair.h"

namespace isoloss::test_support {

inline constexpr int64_t kForeignSteps = 100;

/// Losses that fall from 6 to 2 with the noise of batches, equal for equal
/// seeds, and times (1 + percent / 100); at every `stride`-th step.
inline compare::Run ForeignRunOf(const std::string& arm, int64_t seed,
                                 double percent, int64_t stride = 1) {
  compare::Run run;
  run.file = arm + "-seed" + std::to_string(seed) + ".log";
  auto& provenance = run.log.provenance;
  provenance.origin.format = "torchtitan";
  provenance.arm = arm;
  provenance.seed = seed;
  provenance.steps_planned = kForeignSteps;
  provenance.complete = true;
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::normal_distribution<double> noise(0, 0.02);
  for (int64_t step = 1; step <= kForeignSteps; ++step) {
    const double batch = noise(random);
    if (step % stride != 0) continue;
    const double loss = 2 + 4 * std::exp(-static_cast<double>(step) / 10);
    run.log.steps.step.push_back(step);
    run.log.steps.loss_nats.push_back((loss + batch) * (1 + percent / 100));
    run.log.steps.grad_norm.push_back(1);
  }
  return run;
}

/// Seeds 1, 2, ... of "bf16" and, apart by each of `percents`, of "fp8".
inline std::vector<compare::Run> ForeignArms(
    const std::vector<double>& percents, int64_t stride = 1) {
  std::vector<compare::Run> runs;
  for (size_t i = 0; i < percents.size(); ++i) {
    const int64_t seed = static_cast<int64_t>(i) + 1;
    runs.push_back(ForeignRunOf("bf16", seed, 0, stride));
    runs.push_back(ForeignRunOf("fp8", seed, percents[i], stride));
  }
  return runs;
}

}  // namespace isoloss::test_support
