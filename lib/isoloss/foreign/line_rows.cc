#include "isoloss/foreign/line_rows.h"

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

}  // namespace isoloss::foreign
