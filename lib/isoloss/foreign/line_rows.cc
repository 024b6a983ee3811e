#include "isoloss/foreign/line_rows.h"

#include <algorithm>

namespace isoloss::foreign {

void SetSteps(const std::vector<int64_t>& step_of_row, ForeignRun& run) {
  for (Series& series : run.series) {
    size_t kept = 0;
    for (size_t i = 0; i < series.step.size(); ++i) {
      const int64_t step = step_of_row[static_cast<size_t>(series.step[i])];
      if (step < 0) continue;
      series.step[kept] = step;
      series.value[kept++] = series.value[i];
    }
    series.step.resize(kept);
    series.value.resize(kept);
    if (series.unreadable > 0) {
      series.first_unreadable =
          step_of_row[static_cast<size_t>(series.first_unreadable)];
    }
  }
}

bool CountsFromZero(const std::vector<int64_t>& steps) {
  if (steps.empty()) return false;
  constexpr int64_t kLeastStride = 5;  // 1, 3, 5 may count from 1
  const int64_t stride = steps.front() + 1;
  if (std::ranges::min(steps) == 0) return true;
  return stride >= kLeastStride && steps.size() > 2 &&
         steps[1] == steps.front() + stride &&
         std::ranges::all_of(steps, [stride](int64_t step) {
           return (step + 1) % stride == 0;
         });
}

}  // namespace isoloss::foreign
