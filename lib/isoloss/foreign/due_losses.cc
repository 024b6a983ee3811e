#include "isoloss/foreign/due_losses.h"

#include <algorithm>

#include "isoloss/foreign/told.h"

namespace isoloss::foreign {
namespace {

/// Returns the steps, ascending, whose update the log says was skipped.
std::vector<int64_t> SkippedSteps(const ForeignRun& run) {
  std::vector<int64_t> skipped;
  for (const auto& idle : IdleOf(run)) {
    if (!idle.may_begin) continue;
    for (size_t i = 0; i < idle.step.size(); ++i) {
      if (idle.value[i] == 0) skipped.push_back(idle.step[i]);
    }
  }
  std::ranges::sort(skipped);
  return skipped;
}

}  // namespace

void AppendLost(const std::vector<int64_t>& with_loss,
                std::vector<int64_t>& steps) {
  constexpr size_t kAround = 5;          // gaps on each side
  constexpr size_t kFewest = 4;          // gaps of that distance
  constexpr int64_t kMostLost = 10'000;  // a longer gap is no lost line
  const size_t count = with_loss.size();
  for (size_t i = 1; i < count; ++i) {
    const int64_t gap = with_loss[i] - with_loss[i - 1];
    std::vector<int64_t> around;
    for (size_t j = i - std::min(i - 1, kAround); j <= i + kAround; ++j) {
      if (j == i || j >= count) continue;
      around.push_back(with_loss[j] - with_loss[j - 1]);
    }
    if (around.size() < kFewest) continue;
    std::ranges::nth_element(around, around.begin() + around.size() / 2);
    const int64_t usual = around[around.size() / 2];
    const bool regular =
        std::ranges::count(around, usual) >= std::ssize(around) * 4 / 5;
    if (!regular || gap <= usual || gap % usual != 0 || gap > kMostLost) {
      continue;
    }
    for (int64_t step = with_loss[i - 1] + usual; step < with_loss[i];
         step += usual) {
      steps.push_back(step);
    }
  }
}

void KeepDue(const ForeignRun& run, std::vector<int64_t>& steps) {
  const Series* loss = run.Main(Quantity::kLoss);
  if (steps.empty()) return;
  if (loss == nullptr || loss->step.size() < 2) return steps.clear();
  std::vector<int64_t> with_loss = loss->step;
  std::ranges::sort(with_loss);
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  const std::vector<int64_t> skipped = SkippedSteps(run);
  const int64_t stride = std::max<int64_t>(1, SpacingOf(with_loss).stride);
  std::erase_if(steps, [&](int64_t step) {
    const auto next = std::ranges::lower_bound(with_loss, step);
    return next == with_loss.begin() ||
           (next != with_loss.end() && *next == step) ||
           (step - *(next - 1)) % stride != 0 ||
           std::ranges::binary_search(skipped, step);
  });
}

}  // namespace isoloss::foreign
